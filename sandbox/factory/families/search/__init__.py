"""Finding things in files and in text."""
