"""Databases, with SQLite."""
