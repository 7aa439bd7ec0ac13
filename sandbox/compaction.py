"""Context compaction: the model sums up its work, and goes on in a new segment that begins with the summary.

A segment ends with a tool result that asks for the summary and with the summary itself, which is sampled and
therefore trained like every turn. The next prompt is the task's, with the summary below it. Nothing is
taken out of a record: each segment is a trajectory of its own, and all of a rollout share its reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.transcript import END_OF_TEXT, END_OF_TURN

if TYPE_CHECKING:
    from sandbox.agent import EpisodeLimits
    from sandbox.transcript import ChatFormat

REQUEST = (
    "[The context is full. Do not call a tool now: write a summary of what was done and found so far, and of "
    "what is left to do. Only the task and this summary will be kept.]"
)
_MARK_TOKENS = 32  # what `ChatFormat.cut` writes where it cuts, at most


def reserve(chat: ChatFormat, limits: EpisodeLimits) -> int:
    """Tokens that have to be free for a request and its summary."""
    return len(chat.tool_result_ids([REQUEST])) + limits.summary_tokens


def request_ids(chat: ChatFormat, outputs: Sequence[str], closed: bool, room: int) -> list[int] | None:
    """The last turn's results and the request for a summary, in at most `room` tokens: results that are too
    long lose their middle. None where even that does not fit."""
    ids = chat.tool_result_ids([*outputs[:-1], f"{outputs[-1]}\n\n{REQUEST}"], truncated=not closed)
    if len(ids) <= room:
        return ids
    bare = len(chat.tool_result_ids([*[""] * (len(outputs) - 1), REQUEST], truncated=not closed))
    share = (room - bare) // len(outputs) - _MARK_TOKENS
    if share <= 0:
        return None
    kept = [chat.cut(output, share) for output in outputs]
    ids = chat.tool_result_ids([*kept[:-1], f"{kept[-1]}\n\n{REQUEST}"], truncated=not closed)
    return ids if len(ids) <= room else None


def resumed(instruction: str, text: str) -> str:
    """The user's message of the next segment; `text` is the turn that holds the summary."""
    for token in (END_OF_TURN, END_OF_TEXT):
        text = text.removesuffix(token)
    summary = text.rpartition("</think>")[2].strip()
    return f"{instruction.strip()}\n\nThis was begun already. Summary of the work so far:\n{summary}"
