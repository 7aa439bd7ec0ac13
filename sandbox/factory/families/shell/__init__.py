"""Shell scripts that take options and input."""
