"""Text processing with filters."""
