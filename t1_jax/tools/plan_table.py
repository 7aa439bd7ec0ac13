"""A committed table of plans, a row for each config by the name of its file, and what has changed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.errors import InputError
from sandbox.files import write_json

TOLERANCE = 0.05
# What differs from run to run and from machine to machine.
_NOT_COMPARED = ("compile_seconds", "compile_cpu_seconds", "tried")


def read_table(path: Path) -> dict[str, dict[str, Any]]:
    """The rows; none where there is no file yet. Raises InputError when it is not a table."""
    if not path.exists():
        return {}
    try:
        table = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: {error}, expected a table of plans") from None
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise InputError(f"{path}: expected an object of rows")
    return table


def record(path: Path, name: str, found: dict[str, Any]) -> None:
    """Put a plan into the table as the row `name`, in place of the one that is there."""
    table = read_table(path) | {name: found}
    write_json(path, dict(sorted(table.items())))


def differences(found: Any, expected: Any, name: str = "") -> list[str]:
    """What is not as the row says; numbers may differ by `TOLERANCE` of the larger one."""
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [key for key in sorted(found.keys() | expected.keys()) if key not in _NOT_COMPARED]
        return [
            line
            for key in names
            for line in differences(found.get(key), expected.get(key), f"{name}.{key}" if name else key)
        ]
    numbers = all(type(value) in (int, float) for value in (found, expected))
    if numbers and abs(found - expected) <= TOLERANCE * max(abs(found), abs(expected)):
        return []
    return [] if found == expected else [f"{name} is {found}, the table has {expected}"]


def check(path: Path, name: str, found: dict[str, Any]) -> None:
    """Raises InputError when the table has no such row, or a line for each difference from it."""
    table = read_table(path)
    if name not in table:
        raise InputError(f"{path}: has no row {name}, expected one of {', '.join(table) or 'none yet'}")
    if lines := differences(found, table[name]):
        raise InputError(f"{path}, {name}: {'; '.join(lines)}")
