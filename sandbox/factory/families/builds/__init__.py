"""Build systems and compilers."""
