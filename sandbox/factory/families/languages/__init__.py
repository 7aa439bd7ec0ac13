"""Parsers and interpreters."""
