"""Programs that do not do what they should."""
