"""The shape of a task family, and the helpers that families share.

A family is a name and a function from a random generator to an Instance. An Instance is pure data: rendering
it to a task folder is render.py's work, so a family never touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from sandbox.factory.words import WORDS


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test, worth one share of the partial reward.

    `name` is what follows `test_`; each of `asserts` is a Python expression over the helpers of
    render.PRELUDE that must be true. At least one of them is false in the untouched environment.
    """

    name: str
    asserts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One of the separate things that an instruction asks for: how to say, do and test it."""

    text: str
    command: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One task as data. `files` maps paths under /app to contents; `steps` are the solution's commands."""

    instruction: str
    files: dict[str, str | bytes]
    checks: tuple[Check, ...]
    steps: tuple[str, ...]
    difficulty: int


@dataclass(frozen=True, kw_only=True)
class Family:
    """A task family. `generate` draws only from the Random given to it, so its seed decides an instance."""

    name: str
    area: str
    skills: tuple[str, ...]
    generate: Callable[[Random], Instance] = field(repr=False)


class Names:
    """Hands out the words of one instance, none twice, so that no two things of a task are confused."""

    def __init__(self, rng: Random) -> None:
        self._words = rng.sample(WORDS, len(WORDS))

    def word(self) -> str:
        return self._words.pop()

    def take(self, count: int) -> list[str]:
        return [self.word() for _ in range(count)]

    def file(self, extension: str = "txt") -> str:
        return f"{self.word()}.{extension}"

    def lines(self, count: int) -> str:
        """Text of `count` one-word lines."""
        return "".join(f"{word}\n" for word in self.take(count))


def check(name: str, *asserts: str) -> Check:
    return Check(name=name.replace(".", "_"), asserts=asserts)


def listing(parts: Sequence[str], last: str = "and") -> str:
    """`a, b, and c`."""
    return f"{', '.join(parts[:-1])}, {last} {parts[-1]}"


def grouped(rng: Random, commands: Sequence[str]) -> tuple[str, ...]:
    """The commands as terminal calls: mostly one a call, in three tasks of ten all in one call."""
    return ("\n".join(commands),) if rng.random() < 0.3 else tuple(commands)


def assemble(
    rng: Random,
    *,
    phrasings: Sequence[str],
    requirements: Sequence[Requirement],
    files: dict[str, str | bytes],
    difficulty: int,
    look: str | None = None,
    **fields: str,
) -> Instance:
    """An Instance of separate requirements.

    A phrasing is a format string with {items} (the requirements, listed) and the names in `fields`. With
    `look`, that command comes first as a call of its own, since the later commands depend on what it shows.
    """
    instruction = rng.choice(phrasings).format(items=listing([r.text for r in requirements]), **fields)
    commands = [r.command for r in requirements]
    steps = grouped(rng, commands) if look is None else (look, *grouped(rng, commands))
    return Instance(
        instruction=instruction,
        files=files,
        checks=tuple(r.check for r in requirements),
        steps=steps,
        difficulty=difficulty,
    )
