"""Task families: small terminal tasks with environment, tests and solution, made from a seed."""

from sandbox.factory.build import FAMILIES, HELD_OUT_FAMILIES, TRAINING_FAMILIES, build
from sandbox.factory.corpus import corpus, episode_messages, junk_command
from sandbox.factory.notes import notes

__all__ = ["FAMILIES", "HELD_OUT_FAMILIES", "TRAINING_FAMILIES", "build", "corpus", "episode_messages",
           "junk_command", "notes"]  # fmt: skip
