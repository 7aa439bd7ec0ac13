"""Archives, compression and backups."""
