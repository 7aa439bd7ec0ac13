"""Where episodes run. Every backend keeps the contract of `base`."""

from sandbox.backends.base import Backend, Sandbox, SandboxError, TerminalResult
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.backends.docker import DockerBackend

BACKENDS: dict[str, Backend] = {"bubblewrap": BubblewrapBackend(), "docker": DockerBackend()}

__all__ = ["BACKENDS", "Backend", "Sandbox", "SandboxError", "TerminalResult"]
