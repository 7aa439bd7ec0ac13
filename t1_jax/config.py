"""Strict configuration: frozen dataclasses filled from YAML and dotted command-line overrides.

An unknown key, a missing value or a wrong type is an `InputError` that names the path of the field, where it
was given and what was expected. There are no aliases and no silent conversions: what is written is what runs.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from sandbox.errors import InputError
from sandbox.files import write_whole

Config = TypeVar("Config")


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice and reads 1e-4 as a number, as people mean it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise InputError(f"config {node.start_mark.name}: key {key!r} is given twice")
        return super().construct_mapping(node, deep)


def load_config(cls: type[Config], path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Build a `cls` from a YAML file and overrides in the form `--a.b value` or `--a.b=value`.

    Raises InputError for an unreadable file, an unknown key, a missing required field or a wrong type.
    """
    values: dict[str, Any] = {}
    source = "command line"
    if path is not None:
        source = str(path)
        values = read_yaml(path)
    for key, text in parse_overrides(overrides):
        _set(values, key, text)
    return build(cls, values, source)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping. Raises InputError when it is missing, is not YAML or holds something else."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise InputError(f"config {path}: {error.strerror}") from error
    try:
        loader = _Loader(text)
        loader.name = str(path)  # what errors call it
        values = loader.get_single_data()
    except yaml.YAMLError as error:
        raise InputError(f"config {path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict | None):
        raise InputError(f"config {path}: expected a mapping at the top, got {type(values).__name__}")
    return values or {}


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """Parse `--a.b value` and `--a.b=value` words into (dotted key, YAML-parsed value) pairs."""
    pairs: list[tuple[str, Any]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise InputError(f"command line: {word!r} is not an option; expected --field value")
        key, equals, text = word[2:].partition("=")
        if not equals:
            if not rest:
                raise InputError(f"command line: --{key} has no value")
            text = rest.pop(0)
        try:
            pairs.append((key, yaml.load(text, _Loader)))
        except yaml.YAMLError:
            pairs.append((key, text))
    return pairs


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(values.setdefault(parent, {}), dict):
            raise InputError(f"command line: --{key} goes through {parent!r}, which is not a section")
        values = values[parent]
    values[last] = value


def build(cls: type[Config], values: Mapping[str, Any], source: str, path: str = "") -> Config:
    """Build the dataclass `cls` from plain values; `source` and `path` name the place in errors."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            known = ", ".join(sorted(fields))
            raise InputError(f"{source}: unknown key {path}{key}; expected one of {known}")
    built = {}
    for name, field in fields.items():
        if name in values:
            built[name] = _convert(hints[name], values[name], source, f"{path}{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{source}: {path}{name} is missing; expected {_describe(hints[name])}")
    return cls(**built)


def _convert(kind: Any, value: Any, source: str, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if isinstance(value, str):  # a section may be given as the file that holds it
            return build(kind, read_yaml(value), value)
        if isinstance(value, Mapping):
            return build(kind, value, source, f"{path}.")
    elif origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        inner = [argument for argument in arguments if argument is not type(None)]
        for option in inner[:-1]:
            try:
                return _convert(option, value, source, path)
            except InputError:
                continue
        return _convert(inner[-1], value, source, path)
    elif origin is Literal:
        if value in arguments and type(value) in {type(argument) for argument in arguments}:
            return value
    elif origin is tuple:
        if isinstance(value, list | tuple):
            kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
            if len(kinds) == len(value):
                return tuple(
                    _convert(k, v, source, f"{path}[{i}]")
                    for i, (k, v) in enumerate(zip(kinds, value, strict=True))
                )
    elif origin is dict:
        if isinstance(value, Mapping):
            return {key: _convert(arguments[1], v, source, f"{path}.{key}") for key, v in value.items()}
    elif kind is Any:
        return value
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):  # YAML 1.1 reads 1e-4 as text
            try:
                return float(value)
            except ValueError:
                pass
    elif kind is Path:
        if isinstance(value, str | Path):
            return Path(value)
    elif kind is str:
        if isinstance(value, str | Path):
            return str(value)
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise InputError(f"{source}: {path} is {value!r}; expected {_describe(kind)}")


def _describe(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if a is type(None) else _describe(a) for a in arguments)
    if origin is tuple:
        return "a list of " + ", ".join(_describe(a) for a in arguments if a is not Ellipsis)
    if dataclasses.is_dataclass(kind):
        return "a section or a YAML file"
    return {int: "an integer", float: "a number", str: "text", bool: "true or false", Path: "a path"}.get(
        kind, str(kind)
    )


def to_dict(config: Any) -> Any:
    """The inverse of `build`: plain dicts, lists and scalars that YAML and JSON can hold."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_dict(getattr(config, f.name)) for f in dataclasses.fields(config) if f.init}
    if isinstance(config, Mapping):
        return {key: to_dict(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_dict(value) for value in config]
    return str(config) if isinstance(config, Path) else config


def save_config(config: Any, path: str | Path) -> None:
    """Write the resolved config as YAML, creating its folder. Raises InputError when it cannot."""
    try:
        write_whole(path, yaml.safe_dump(to_dict(config), sort_keys=False))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
