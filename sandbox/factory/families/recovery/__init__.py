"""Getting back what is hidden, damaged or lost."""
