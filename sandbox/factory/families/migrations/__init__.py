"""Migrations of data."""
