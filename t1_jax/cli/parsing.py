"""Argument parsers for the commands that read their own options."""

from __future__ import annotations

import argparse
from typing import Any

from sandbox.errors import InputError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 2, like every other bad input."""

    def error(self, message: str) -> Any:
        raise InputError(f"{self.prog}: {message}")


def names(text: str) -> list[str]:
    """The words of a comma-separated option."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """The whole numbers of a comma-separated option."""
    return [int(word) for word in text.split(",")]


def make_parser(name: str, description: str | None) -> Parser:
    """The parser of `launch.py NAME`; names of options can't be shortened."""
    return Parser(prog=f"launch.py {name}", description=description, allow_abbrev=False)
