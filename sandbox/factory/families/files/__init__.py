"""Files, folders and their permissions."""
