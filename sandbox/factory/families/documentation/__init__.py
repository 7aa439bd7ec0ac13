"""Documents about programs, and their upkeep."""
