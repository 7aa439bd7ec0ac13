"""Drills: small tasks of separate requirements that a tiny model can learn, for the quick start."""

from sandbox.factory.drills.build import FAMILIES, HELD_OUT_FAMILIES, TRAINING_FAMILIES, build
from sandbox.factory.drills.notes import notes

__all__ = ["FAMILIES", "HELD_OUT_FAMILIES", "TRAINING_FAMILIES", "build", "notes"]
