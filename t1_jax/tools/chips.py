"""TPU generations: what a chip can do, by its vendor's tables, and the slices that can be had."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sandbox.errors import InputError


@dataclass(frozen=True)
class Chip:
    """Of one chip: bfloat16 operations/s, bytes of memory, bytes/s of memory and (one way, all links
    together) of the interconnect; `devices` that JAX sees; `slices` by topology, smallest first.
    """

    flops: float
    hbm_bytes: int
    hbm_bandwidth: float
    ici_bandwidth: float
    devices: int
    slices: tuple[str, ...]
    source: str


_GIB = 2**30
CHIPS = {
    # 1,200 GB/s of interconnect are for both directions together.
    "v5p": Chip(
        459e12, 95 * _GIB, 2765e9, 600e9, 1,
        ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16"),
        "https://docs.cloud.google.com/tpu/docs/v5p",
    ),
    # 3,200 Gbit/s.
    "v6e": Chip(
        918e12, 32 * _GIB, 1600e9, 400e9, 1, ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
        "https://docs.cloud.google.com/tpu/docs/v6e",
    ),
    "tpu7x": Chip(
        2307e12, 192 * _GIB, 7380e9, 600e9, 2,
        ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8"),
        "https://docs.cloud.google.com/tpu/docs/tpu7x",
    ),
}  # fmt: skip


def parse_topology(topology: str) -> tuple[Chip, int]:
    """(chip, number of chips) of a topology such as v5p:4x8x8. Raises InputError."""
    name, _, shape = topology.partition(":")
    if name not in CHIPS or not all(part.isdigit() and int(part) > 0 for part in shape.split("x")):
        raise InputError(
            f"topology {topology!r}: expected one of {', '.join(CHIPS)} and a shape, such as v5p:4x8x8"
        )
    return CHIPS[name], math.prod(int(part) for part in shape.split("x"))
