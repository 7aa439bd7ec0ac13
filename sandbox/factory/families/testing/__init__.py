"""Writing tests."""
