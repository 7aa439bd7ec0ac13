"""Reading what programs have logged."""
