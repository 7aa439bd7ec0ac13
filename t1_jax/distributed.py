"""Several processes as one program: start-up, and what only one of them does.

Every process runs the same code on the same data (batches are a function of seed and step) and holds a part
of every array; files are written by the first.
"""

from __future__ import annotations

import os

import jax
import numpy as np

from sandbox.errors import InputError

_VARIABLES = ("T1_COORDINATOR", "T1_PROCESSES", "T1_PROCESS")


def initialize() -> None:
    """Join the processes of a run, where the environment says that there are several.

    T1_DISTRIBUTED=auto finds them as TPU slices and clusters announce them; T1_COORDINATOR=host:port with
    T1_PROCESSES and T1_PROCESS (from 0) names them, which also works on CPUs. Call before anything asks for
    devices. Raises InputError when only some of the variables are set, or are no numbers.
    """
    if os.environ.get("T1_DISTRIBUTED") == "auto":
        jax.distributed.initialize()
        return
    values = [os.environ.get(name) for name in _VARIABLES]
    if not any(values):
        return
    if not all(values) or not (values[1] or "").isdigit() or not (values[2] or "").isdigit():
        raise InputError(f"environment: expected all of {', '.join(_VARIABLES)}, the last two as numbers")
    coordinator, processes, process = values
    jax.distributed.initialize(coordinator, int(processes or 0), int(process or 0))


def is_first() -> bool:
    """Whether this process writes what is written once."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Wait for all processes; nothing where there is one."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process: all get the same answer."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))
