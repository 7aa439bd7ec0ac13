"""Version control with git."""
