"""One module a task family, each with a FAMILY."""
