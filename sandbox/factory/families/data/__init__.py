"""Questions to tables of numbers."""
