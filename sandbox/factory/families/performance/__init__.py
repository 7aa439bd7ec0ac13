"""Programs and queries that are too slow."""
