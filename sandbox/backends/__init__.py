"""Where episodes run. Every backend keeps the contract of `base`."""

from sandbox.backends.base import Backend, Sandbox, SandboxError, TerminalResult
from sandbox.backends.bubblewrap import BubblewrapBackend

BACKENDS: dict[str, Backend] = {"bubblewrap": BubblewrapBackend()}

__all__ = ["BACKENDS", "Backend", "Sandbox", "SandboxError", "TerminalResult"]
