"""Whether a task differs in substance from those before it, not in names and numbers only.

A text is normalised: lower case, every name of kit's pools one symbol, every number another. What is left are
the words of the instruction, the programs of the solution and how they are put together. Two tasks of a
family are the same where

- their normalised solutions are equal: the same work, whatever the wording; or
- the Jaccard similarity of their shingles (runs of SHINGLE tokens of instruction and solution) is NEAR or
  more (Broder, "On the resemblance and containment of documents", 1997).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.factory.kit import NOUNS, PEOPLE, PLACES

SHINGLE = 4
NEAR = 0.9

_NAMES = frozenset([*NOUNS, *PEOPLE, *PLACES])
_TOKEN = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")


def normalise(text: str) -> list[str]:
    """The tokens of a text, without what does not count."""
    tokens = _TOKEN.findall(text.lower())
    return ["0" if token.isdigit() else "_" if token in _NAMES else token for token in tokens]


def shingles(tokens: Sequence[str]) -> set[tuple[str, ...]]:
    """Every run of SHINGLE tokens."""
    return set(zip(*(tokens[start:] for start in range(SHINGLE)), strict=False))


class Seen:
    """The tasks of one family so far."""

    def __init__(self) -> None:
        self._solutions: set[tuple[str, ...]] = set()
        self._bits: dict[tuple[str, ...], int] = {}
        self._tasks: list[int] = []

    def refuse(self, instruction: str, steps: Sequence[str]) -> str:
        """Why a task is too much like one that was seen: "same solution", "near duplicate"; else "", and it
        is seen from now on.
        """
        solution = tuple(normalise("\n".join(steps)))
        if solution in self._solutions:
            return "same solution"
        task = self._mask(shingles(normalise(instruction)) | shingles(solution))
        if any(similarity(task, other) >= NEAR for other in self._tasks):
            return "near duplicate"
        self._solutions.add(solution)
        self._tasks.append(task)
        return ""

    def _mask(self, found: set[tuple[str, ...]]) -> int:
        """A set of shingles as a number with a bit for each: sets of hundreds compare in a microsecond."""
        mask = 0
        for shingle in found:
            mask |= 1 << self._bits.setdefault(shingle, len(self._bits))
        return mask


def similarity(a: int, b: int) -> float:
    """Jaccard, 0 to 1, of two sets given as masks."""
    return (a & b).bit_count() / max(1, (a | b).bit_count())
