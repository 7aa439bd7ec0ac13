"""What acts: the policy protocol, one generation, and a policy that plays a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sandbox.tools import ToolCall, format_tool_call
from sandbox.transcript import ChatFormat


class PolicyError(Exception):
    """The policy could not answer: an infrastructure failure, never the model's fault."""


class ContextLengthError(PolicyError):
    """The transcript no longer fits the policy's context."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One sampled turn of n ids.

    `routed_experts` (uint8 or uint16 [R, L, K], or None when the policy records none) starts at the row that
    was asked for; `routed_valid` (bool [R]) is None when every row was recorded. `version_spans` are
    half-open spans (version, start, end) that tile the output ids.
    """

    output_ids: list[int]
    logprobs: list[float]
    finish_reason: str  # "stop" | "length" | "abort"
    routed_experts: np.ndarray | None = None
    routed_valid: np.ndarray | None = None
    version_spans: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def versions(self) -> list[int]:
        """The policy version of each output id."""
        return [version for version, start, end in self.version_spans for _ in range(start, end)]


class Policy(Protocol):
    """Token ids in, token ids out."""

    async def generate(
        self,
        input_ids: list[int],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        routed_from: int,
        rid: str,
    ) -> Generation:
        """Sample one turn.

        `routed_from` is the first token whose experts are wanted; `rid` is "<rollout id>:<try>:<turn>".
        Raises PolicyError when no answer can be had.
        """
        ...


class ScriptedPolicy:
    """Plays assistant texts in order, then `finish`; log-probs 0, version -1, no routes.

    The turn is read off `rid`, so that a try on a fresh sandbox starts the script again.
    """

    def __init__(self, texts: Sequence[str], chat: ChatFormat) -> None:
        finish = chat.assistant_text(format_tool_call(ToolCall(name="finish")))
        self._turns = [chat.assistant_ids(text) for text in [*texts, finish]]

    async def generate(
        self,
        input_ids: list[int],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        routed_from: int,
        rid: str,
    ) -> Generation:
        """The turn's ids, cut at `max_new_tokens` as a sampled turn would be."""
        turn = min(int(rid.rpartition(":")[2]), len(self._turns) - 1)
        ids = self._turns[turn][:max_new_tokens]
        return Generation(
            output_ids=ids,
            logprobs=[0.0] * len(ids),
            version_spans=[(-1, 0, len(ids))],
            finish_reason="stop" if len(ids) == len(self._turns[turn]) else "length",
        )
