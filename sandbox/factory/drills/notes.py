"""Notes: what to do in a few words, and the commands that do it. A toy model's pretraining.

A base model has read how people write down commands before it is taught to act. A model that starts from
random numbers has not, and the names of files that a call must repeat are a few tokens in hundreds: it learns
the framing of the calls and guesses the names. In short notes most tokens matter, and what is learned there
(read a name, write it at its place) carries over to long conversations. There is no chat, tool or terminal in
a note, and nothing of the held-out families.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from sandbox.errors import InputError
from sandbox.factory.drills.base import Drill, numbered
from sandbox.factory.drills.build import FAMILIES, choose
from sandbox.trajectory import Trajectory
from sandbox.transcript import ChatFormat

# How many things a note is about, drawn from an instance of the size: short notes teach how to read and write
# names, longer ones which comes next. What no note is long enough to show, RL can't practise.
_SIZES = (1, 2, 4, 4)
_INSTANCE_SIZES = (3, 4, 4, 4, 4)
# One note in so many has the whole instruction.
_WHOLE = 5


def notes(count: int, seed: int, families: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yields `count` pairs (what to do, commands), both ending with a newline; the same for the same seed.

    Families whose commands depend on what a terminal shows have no notes. Raises InputError as
    `factory.build` does, and for families without any note.
    """
    names = [name for name in choose(families, held_out=False) if "look" not in FAMILIES[name].skills]
    if not names:
        raise InputError("tasks notes: families has only such that look first, expected others")
    for index in range(count):
        digest = hashlib.sha256(f"notes/{seed}/{index}".encode()).digest()
        rng = Random(int.from_bytes(digest[:8], "big"))
        yield _note(FAMILIES[names[index % len(names)]].generate(rng, rng.choice(_INSTANCE_SIZES)), rng)


def _note(instance: Drill, rng: Random) -> tuple[str, str]:
    if not instance.requirements or rng.randrange(_WHOLE) == 0:
        return instance.instruction + "\n", "".join(f"{command}\n" for command in instance.steps)
    size = min(rng.choice(_SIZES), len(instance.requirements))
    chosen = sorted(rng.sample(range(len(instance.requirements)), size))
    parts = [instance.requirements[index] for index in chosen]
    if rng.random() < 0.5:
        parts = [part.alone() for part in parts]
    text = ", ".join(numbered([part.text for part in parts]))
    return text + "\n", "".join(f"{part.command}\n" for part in parts)


def to_trajectory(name: str, note: tuple[str, str], chat: ChatFormat) -> Trajectory:
    """A note as a record to train on: its commands are learned, its text (random draws) is only read."""
    text, commands = (chat.text_ids(part) for part in note)
    length = len(text) + len(commands)
    return Trajectory(
        rollout_id=name,
        group_id=name,
        task="note",
        tokens=np.array([*text, *commands], np.int32),
        loss_mask=np.arange(length) >= len(text),
        rollout_logprobs=np.zeros(length, np.float32),
        versions=np.full(length, -1, np.int32),
    )
