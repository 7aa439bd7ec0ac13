"""The shape of a drill's family, and the helpers that these families share.

A drill is a small task of separate requirements, each a command or two, that a model of a million parameters
can learn. Its family is a name and a function from a random generator to a Drill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import ClassVar, TypeVar

from sandbox.factory import base
from sandbox.factory.drills.prelude import PRELUDE
from sandbox.factory.drills.words import WORDS

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One test, worth one share of the partial reward.

    `name` is what follows `test_`; each of `asserts` is a Python expression over the helpers of
    prelude.PRELUDE that must be true. At least one of them is false in the untouched environment.
    """

    name: str
    asserts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One of the separate things that an instruction asks for: how to say, do and test it.

    `verb` is for where no sentence around it says what to do with `text`.
    """

    text: str
    command: str
    check: Check
    verb: str = ""

    def alone(self) -> Requirement:
        """The same, worded to stand for itself."""
        return replace(self, text=f"{self.verb} {self.text}", verb="") if self.verb else self


@dataclass(frozen=True, kw_only=True)
class Drill(base.Instance):
    """One drill as data. `requirements` are those that can be read apart from the instruction (see notes.py),
    often none.
    """

    image: ClassVar[str] = "debian:bookworm-slim"
    agent_timeout: ClassVar[float] = 120.0
    memory_mb: ClassVar[int] = 512

    checks: tuple[Check, ...]
    requirements: tuple[Requirement, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(f"test_{item.name}" for item in self.checks)

    @property
    def test_files(self) -> dict[str, str]:
        """test_outputs.py: the helpers that the asserts use, then one function a check."""
        tests = []
        for item in self.checks:
            body = "\n".join(f"    assert {expression}" for expression in item.asserts)
            tests.append(f"def test_{item.name}():\n{body}\n")
        return {"test_outputs.py": "\n\n".join([PRELUDE, *tests])}


@dataclass(frozen=True, kw_only=True)
class Family(base.Family):
    """A family of drills.

    `generate(rng, size)` makes a drill that asks for `size` things, each with a test: MIN_SIZE (its default)
    to MAX_SIZE of them. It draws only from the Random given to it, so its seed decides a drill.
    """

    generate: Callable[..., Drill] = field(repr=False)

    def instance(self, rng: Random, size: int) -> Drill:
        """A drill whose difficulty counts its size too."""
        made = self.generate(rng, size)
        return replace(made, difficulty=min(5, made.difficulty + size - MIN_SIZE))


MIN_SIZE, MAX_SIZE = 3, 6  # of an instance
_POOLS = 2 * MAX_SIZE  # of files, and as many of parameters: most things have two of a kind
_POOL_SIZE = 5


class Names:
    """Hands out the words of one instance, none twice, so that no two things of a task are confused.

    Files, other parameters and contents have words of their own, and the n-th file (or parameter) of an
    instance comes from the n-th of several small pools: a small model can tell what a word is for by the
    word, as people can tell a host name from a user name.
    """

    def __init__(self, rng: Random) -> None:
        size = _POOL_SIZE
        parts = [rng.sample(WORDS[i : i + size], size) for i in range(0, 2 * _POOLS * size, size)]
        self._files, self._words = parts[:_POOLS], parts[_POOLS:]
        self._contents = rng.sample(WORDS[2 * _POOLS * size :], len(WORDS) - 2 * _POOLS * size)
        self._drawn = [0, 0]

    def _next(self, kind: int, pools: list[list[str]]) -> str:
        self._drawn[kind] += 1
        return pools[(self._drawn[kind] - 1) % _POOLS].pop()

    def word(self) -> str:
        """A parameter: a directory, a word to write or to look for."""
        return self._next(1, self._words)

    def file(self, extension: str = "txt") -> str:
        """A file name."""
        return f"{self._next(0, self._files)}.{extension}"

    def take(self, count: int) -> list[str]:
        """Words of contents."""
        return [self._contents.pop() for _ in range(count)]

    def lines(self, count: int) -> str:
        """Text of `count` one-word lines."""
        return "".join(f"{word}\n" for word in self.take(count))


def check(name: str, *asserts: str) -> Check:
    return Check(name=name.replace(".", "_"), asserts=asserts)


def spread(rng: Random, options: Sequence[_T], count: int) -> list[_T]:
    """`count` of the options in random order; none comes again before all others have come."""
    drawn: list[_T] = []
    while len(drawn) < count:
        drawn += rng.sample(options, min(len(options), count - len(drawn)))
    return drawn


def numbered(parts: Sequence[str]) -> list[str]:
    """`(1) a`, `(2) b`, ...: what an agent can name when it says which of them it does next."""
    return [f"({number}) {part}" for number, part in enumerate(parts, 1)]


def listing(parts: Sequence[str], last: str = "and") -> str:
    """`a, b, and c`."""
    return f"{', '.join(parts[:-1])}, {last} {parts[-1]}"


def assemble(
    rng: Random,
    *,
    phrasings: Sequence[str],
    requirements: Sequence[Requirement],
    files: dict[str, str | bytes],
    difficulty: int,
    look: str | None = None,
    **fields: str,
) -> Drill:
    """A Drill of separate requirements.

    A phrasing is a format string with {items} (the requirements, listed) and the names in `fields`. With
    `look`, that command comes first as a call of its own, since the later commands depend on what it shows.
    """
    items = numbered([r.text for r in requirements])
    instruction = rng.choice(phrasings).format(items=listing(items), **fields)
    steps = [r.command for r in requirements]
    if look is not None:
        steps.insert(0, look)
    return Drill(
        instruction=instruction,
        files=files,
        checks=tuple(r.check for r in requirements),
        steps=tuple(steps),
        difficulty=difficulty,
        requirements=() if look or fields else tuple(requirements),
    )
