"""Results on disk that are whole or absent: a reader, or a resumed run, never finds half of one."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from sandbox.errors import InputError


def require_writable(path: str | Path, *, folder: bool = False) -> None:
    """Find out before the work, not after it, that `path` could not be written; writes nothing itself.

    Raises InputError when a file is to be written (or, with `folder`, files in the folder `path`) and the
    nearest folder above that exists takes none, or when there is a folder in the file's place.
    """
    path = Path(path).absolute()
    if not folder and path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder, expected a file path")
    places = [path, *path.parents] if folder else path.parents
    above = next(place for place in places if place.exists())
    if not above.is_dir():
        raise InputError(f"cannot write {path}: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: no permission to write in {above}")


def write_whole(path: str | Path, content: bytes | str) -> None:
    """Write a file under another name and rename it; folders are made. Text is written as UTF-8.

    Raises OSError; what was at `path` is then as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """`write_whole` of a value as indented JSON."""
    write_whole(path, json.dumps(value, indent=2) + "\n")
