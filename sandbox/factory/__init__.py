"""The task factory: terminal tasks with environment, tests and solution, made from a seed.

Full-size tasks come from `families` (see docs/families.md); `drills` are small ones for tiny models.
"""

from sandbox.factory.build import build
from sandbox.factory.corpus import corpus, episode_messages, junk_command
from sandbox.factory.family import families

__all__ = ["build", "corpus", "episode_messages", "families", "junk_command"]
