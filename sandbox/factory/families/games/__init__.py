"""Games and puzzles of files."""
