"""Dates, times and plans."""
