"""Texts made from templates and data."""
