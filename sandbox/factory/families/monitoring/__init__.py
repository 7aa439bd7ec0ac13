"""Metrics, alerts and availability."""
