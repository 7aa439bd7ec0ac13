"""The one exception for input that a person can mend."""


class InputError(Exception):
    """Bad input, told in one line: what, where, and what was expected.

    The command line prints it and exits with 2.
    """
