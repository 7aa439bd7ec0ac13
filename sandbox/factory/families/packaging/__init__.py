"""Python packages."""
