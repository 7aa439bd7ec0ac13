"""The wire and disk schema of one recorded episode: token ids, masks, log-probs, experts, versions and
reward.

Everything that training needs to replay an episode exactly, and nothing that has to be tokenised again.
Imports numpy only, so that the rollout service and the learner share it without sharing their libraries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sandbox.errors import InputError

SCHEMA = 1
_MAGIC = b"T1TRAJ\x00\x01"
_ARRAYS = {
    "tokens": "<i4",
    "loss_mask": "|b1",
    "rollout_logprobs": "<f4",
    "versions": "<i4",
    "routed_valid": "|b1",
}

# How an episode can end. Only the last kind has no reward: nothing that the policy did caused it.
ENDINGS = ("finish", "max_turns", "context", "max_tokens", "timeout", "format_errors", "infra_error")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One assistant turn: token spans [start, end) in the trajectory, the parsed call and what came back."""

    sampled: tuple[int, int]  # the sampled ids
    observed: tuple[int, int]  # the observation's ids, framing included
    tool: str = ""  # "" when the turn held no valid call
    arguments: dict[str, Any] = field(default_factory=dict)
    observation: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    error: str = ""  # why a call was malformed
    text: str = ""  # the sampled ids as text, for people; training never reads it
    more: tuple[
        dict[str, Any], ...
    ] = ()  # further calls of the same turn, as {tool, arguments, observation, ...}


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One segment of one rollout.

    Shapes: T tokens, L MoE layers, K experts per token. Row t of `routed_experts` belongs to the forward that
    consumed token t; `routed_valid[t]` is False where no row was recorded (always the case for a last sampled
    token, which is never forwarded). `versions[t]` is the policy version that sampled token t, -1 where no
    policy did.
    """

    rollout_id: str
    group_id: str
    task: str
    tokens: np.ndarray  # int32 [T]
    loss_mask: np.ndarray  # bool [T], True exactly on sampled ids that count
    rollout_logprobs: np.ndarray  # float32 [T], 0 where no policy sampled
    versions: np.ndarray  # int32 [T]
    routed_experts: np.ndarray | None = None  # uint8 or uint16 [T, L, K]
    routed_valid: np.ndarray | None = None  # bool [T]
    reward: float | None = None  # 0..1; None when the infrastructure failed
    ending: str = "finish"
    tests: dict[str, bool] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    segment: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)  # family, temperature, seed, seconds by stage, ...

    def __post_init__(self) -> None:
        where = f"trajectory {self.rollout_id}"
        length = len(self.tokens)
        for name in ("loss_mask", "rollout_logprobs", "versions"):
            if getattr(self, name).shape != (length,):
                raise InputError(
                    f"{where}: {name} has shape {getattr(self, name).shape}, expected ({length},)"
                )
        if self.ending not in ENDINGS:
            raise InputError(f"{where}: ending {self.ending!r}, expected one of {', '.join(ENDINGS)}")
        if self.routed_experts is not None:
            routes = self.routed_experts
            if routes.ndim != 3 or routes.shape[0] != length or routes.dtype not in (np.uint8, np.uint16):
                raise InputError(
                    f"{where}: routed_experts is {routes.dtype} {routes.shape},"
                    f" expected uint8 or uint16 [{length}, L, K]"
                )
            if self.routed_valid is None or self.routed_valid.shape != (length,):
                raise InputError(
                    f"{where}: routed_valid must be bool [{length}] when routed_experts are present"
                )

    @property
    def solved(self) -> bool:
        """Whether every test passed."""
        return bool(self.tests) and all(self.tests.values())

    @property
    def version_spans(self) -> list[tuple[int, int, int]]:
        """Half-open spans (start, end, version) of consecutive sampled tokens of one policy version."""
        spans: list[tuple[int, int, int]] = []
        for t in np.flatnonzero(self.versions >= 0):
            version = int(self.versions[t])
            if spans and spans[-1][1] == t and spans[-1][2] == version:
                spans[-1] = (spans[-1][0], int(t) + 1, version)
            else:
                spans.append((int(t), int(t) + 1, version))
        return spans

    def encode(self) -> bytes:
        """Serialise: magic, header length, JSON header, then each array's raw little-endian bytes, then a
        SHA-256.
        """
        arrays = {
            name: np.ascontiguousarray(getattr(self, name), _ARRAYS[name])
            for name in _ARRAYS
            if getattr(self, name) is not None
        }
        if self.routed_experts is not None:
            kind = self.routed_experts.dtype.newbyteorder("<")
            arrays["routed_experts"] = np.ascontiguousarray(self.routed_experts, kind)
        header = {
            "schema": SCHEMA,
            "rollout_id": self.rollout_id,
            "group_id": self.group_id,
            "task": self.task,
            "reward": self.reward,
            "ending": self.ending,
            "tests": self.tests,
            "segment": self.segment,
            "metadata": self.metadata,
            "turns": [turn.__dict__ for turn in self.turns],
            "arrays": {name: [array.dtype.str, array.shape] for name, array in arrays.items()},
        }
        head = json.dumps(header, separators=(",", ":")).encode()
        body = b"".join(
            [_MAGIC, len(head).to_bytes(8, "little"), head, *(array.tobytes() for array in arrays.values())]
        )
        return body + hashlib.sha256(body).digest()

    @classmethod
    def decode(cls, data: bytes) -> Trajectory:
        """The inverse of `encode`. Raises InputError when the bytes are cut, corrupt or of another schema."""
        if len(data) < 48 or not data.startswith(_MAGIC):
            raise InputError(f"trajectory: {len(data)} bytes that do not start with the trajectory magic")
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise InputError("trajectory: checksum does not match, the bytes are cut or corrupt")
        size = int.from_bytes(data[8:16], "little")
        header = json.loads(data[16 : 16 + size])
        if header.pop("schema") != SCHEMA:
            raise InputError(f"trajectory: schema is not {SCHEMA}")
        offset = 16 + size
        arrays: dict[str, Any] = {}
        for name, (kind, shape) in header.pop("arrays").items():
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(data, np.dtype(kind), count, offset).reshape(shape)
            offset += arrays[name].nbytes
        turns = tuple(
            Turn(
                **{
                    **turn,
                    **{name: tuple(turn[name]) for name in ("sampled", "observed", "more") if name in turn},
                }
            )
            for turn in header.pop("turns")
        )
        return cls(**header, **arrays, turns=turns)


def write_frames(trajectories: list[Trajectory]) -> bytes:
    """Concatenate encoded trajectories, each behind its length as 8 little-endian bytes."""
    return b"".join(len(data).to_bytes(8, "little") + data for data in (t.encode() for t in trajectories))


def read_frames(data: bytes) -> Iterator[Trajectory]:
    """Yield the trajectories that `write_frames` put together. Raises InputError on a cut frame."""
    offset = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 8], "little")
        if offset + 8 + size > len(data):
            raise InputError(f"trajectory frames: cut at byte {offset}, {size} bytes were announced")
        yield Trajectory.decode(data[offset + 8 : offset + 8 + size])
        offset += 8 + size
