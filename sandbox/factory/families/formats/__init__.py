"""Reading one data format and writing another."""
