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


def shingles(tokens: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """Every run of SHINGLE tokens."""
    return frozenset(zip(*(tokens[start:] for start in range(SHINGLE)), strict=False))


def similarity(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    """Jaccard: shared shingles over all, 0 to 1."""
    shared = len(a & b)
    return shared / max(1, len(a) + len(b) - shared)


class Seen:
    """The tasks of one family so far."""

    def __init__(self) -> None:
        self._solutions: set[tuple[str, ...]] = set()
        self._tasks: list[frozenset[tuple[str, ...]]] = []

    def refuse(self, instruction: str, steps: Sequence[str]) -> str:
        """Why a task is too much like one that was seen: "same solution", "near duplicate"; else "", and it
        is seen from now on.
        """
        solution = normalise("\n".join(steps))
        if tuple(solution) in self._solutions:
            return "same solution"
        task = shingles(normalise(instruction)) | shingles(solution)
        if any(similarity(task, other) >= NEAR for other in self._tasks):
            return "near duplicate"
        self._solutions.add(tuple(solution))
        self._tasks.append(task)
        return ""
