"""Services and configuration."""
