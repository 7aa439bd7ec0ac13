"""Processes and signals."""
