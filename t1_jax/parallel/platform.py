"""Which platform a computation is compiled for: the default backend, unless a plan says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_TARGET: ContextVar[str | None] = ContextVar("target", default=None)


def platform() -> str:
    """ "cpu", "gpu" or "tpu": what kernels choose their implementation by while they are traced."""
    return _TARGET.get() or jax.default_backend()


@contextmanager
def compiling_for(name: str) -> Iterator[None]:
    """Trace for another platform than this machine's, to compile ahead of time."""
    token = _TARGET.set(name)
    try:
        yield
    finally:
        _TARGET.reset(token)
