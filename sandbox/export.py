"""Trajectories for other people's tools: ATIF (Harbor's Agent Trajectory Interchange Format) and Parquet."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sandbox.errors import InputError
from sandbox.files import write_whole
from sandbox.tools import TOOLS
from sandbox.trajectory import Trajectory, Turn, read_frames
from sandbox.transcript import END_OF_TEXT, END_OF_TURN

ATIF_VERSION = "ATIF-v1.7"
FORMATS = ("atif", "parquet")
_ROW_GROUP = 64  # trajectories; those of a large model are tens of megabytes each


def export(source: Path, form: str, out: Path) -> int:
    """Write the trajectories of a frames file, or of every *.frames below a folder; returns how many.

    `atif`: a line of JSON for each trajectory. `parquet`: a row each (needs pyarrow, the extra `parquet`).
    Raises InputError for another form, a source without trajectories, or one that is cut.
    """
    if form not in FORMATS:
        raise InputError(f"export: --to {form!r}, expected one of {', '.join(FORMATS)}")
    files = sorted(source.rglob("*.frames")) if source.is_dir() else [source]
    if not files or not files[0].is_file():
        raise InputError(
            f"export: {source} holds no trajectories, expected a .frames file or a folder of them"
        )
    trajectories = (trajectory for file in files for trajectory in read_frames(file.read_bytes()))
    if form == "parquet":
        return _write_parquet(trajectories, out)
    lines = [json.dumps(to_atif(trajectory), ensure_ascii=False) for trajectory in trajectories]
    write_whole(out, "".join(f"{line}\n" for line in lines))
    return len(lines)


def to_atif(trajectory: Trajectory) -> dict[str, Any]:
    """One trajectory as an ATIF document: a user's step with the instruction, then a step for each turn with
    its text, reasoning, calls, results, sampled ids and their log-probs. Reward and ending are in `extra`.
    """
    metadata = trajectory.metadata
    first = {"step_id": 1, "source": "user", "message": metadata.get("instruction") or trajectory.task}
    steps = [first, *(_step(trajectory, turn, n) for n, turn in enumerate(trajectory.turns, 2))]
    sampled = [turn.sampled for turn in trajectory.turns]
    return {
        "schema_version": ATIF_VERSION,
        "session_id": trajectory.rollout_id,
        "trajectory_id": f"{trajectory.rollout_id}#{trajectory.segment}",
        "agent": {"name": "t1-jax", "version": _version(), "tool_definitions": TOOLS},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(start for start, _ in sampled),
            "total_completion_tokens": sum(end - start for start, end in sampled),
            "total_steps": len(steps),
        },
        "extra": {
            "task": trajectory.task,
            "group_id": trajectory.group_id,
            "reward": trajectory.reward,
            "ending": trajectory.ending,
            "tests": trajectory.tests,
            "segment": trajectory.segment,
            "metadata": metadata,
        },
    }


def _step(trajectory: Trajectory, turn: Turn, number: int) -> dict[str, Any]:
    start, end = turn.sampled
    message, reasoning = _spoken(turn.text)
    calls: list[dict[str, Any]] = (
        [{"tool": turn.tool, "arguments": turn.arguments, "observation": turn.observation}, *turn.more]
        if turn.tool
        else []
    )
    step: dict[str, Any] = {"step_id": number, "source": "agent", "message": message, "llm_call_count": 1}
    if reasoning:
        step["reasoning_content"] = reasoning
    results = [
        {"source_call_id": f"{number}-{k}", "content": call["observation"]}
        for k, call in enumerate(calls)
        if call["tool"] != "finish" and "observation" in call
    ]
    if calls:
        step["tool_calls"] = [
            {
                "tool_call_id": f"{number}-{k}",
                "function_name": call["tool"],
                "arguments": call.get("arguments", {}),
            }
            for k, call in enumerate(calls)
        ]
    elif turn.observation:  # what the model was told about a malformed call
        results = [{"content": turn.observation}]
    if results:
        step["observation"] = {"results": results}
    step["metrics"] = {
        "prompt_tokens": start,
        "completion_tokens": end - start,
        "completion_token_ids": trajectory.tokens[start:end].tolist(),
        "logprobs": trajectory.rollout_logprobs[start:end].tolist(),
    }
    extra = {"error": turn.error, "exit_code": turn.exit_code, "seconds": turn.seconds}
    step["extra"] = {name: value for name, value in extra.items() if value not in ("", None)}
    return step


def _spoken(text: str) -> tuple[str, str]:
    """(message, reasoning) of an assistant turn: what stands before its calls, without control tokens."""
    for token in (END_OF_TURN, END_OF_TEXT):
        text = text.removesuffix(token)
    thought, closed, rest = text.partition("</think>")
    if not closed:
        thought, rest = "", text
    return rest.partition("<tool_call>")[0].strip(), thought.replace("<think>", "").strip()


def _version() -> str:
    try:
        return version("t1-jax")
    except PackageNotFoundError:
        return "unknown"


def _write_parquet(trajectories: Iterator[Trajectory], out: Path) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            "export: pyarrow is not installed, expected pip install 't1-jax[parquet]'"
        ) from error
    text, numbers = pa.string(), pa.list_(pa.int32())
    schema = pa.schema(
        [
            ("rollout_id", text), ("group_id", text), ("segment", pa.int32()), ("task", text),
            ("reward", pa.float64()), ("ending", text), ("tests", pa.map_(text, pa.bool_())),
            ("tokens", numbers), ("loss_mask", pa.list_(pa.bool_())),
            ("rollout_logprobs", pa.list_(pa.float32())), ("versions", numbers),
            ("routed_experts", pa.large_binary()), ("routed_experts_dtype", text),
            ("routed_experts_shape", numbers), ("routed_valid", pa.list_(pa.bool_())),
            ("turns", text), ("metadata", text),
        ]
    )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    count = 0
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            rows: list[dict[str, Any]] = []
            for trajectory in trajectories:
                rows.append(_row(trajectory))
                count += 1
                if len(rows) == _ROW_GROUP:
                    writer.write_table(pa.Table.from_pylist(rows, schema))
                    rows = []
            writer.write_table(pa.Table.from_pylist(rows, schema))
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _row(trajectory: Trajectory) -> dict[str, Any]:
    """Arrays as they are; `routed_experts` as raw little-endian bytes; turns and metadata as JSON."""
    same: Sequence[str] = ("rollout_id", "group_id", "segment", "task", "reward", "ending", "tests", "tokens",
                           "loss_mask", "rollout_logprobs", "versions", "routed_valid")  # fmt: skip
    routes = trajectory.routed_experts
    return {name: getattr(trajectory, name) for name in same} | {
        "tests": list(trajectory.tests.items()),
        "routed_experts": None if routes is None else routes.astype(routes.dtype.newbyteorder("<")).tobytes(),
        "routed_experts_dtype": None if routes is None else routes.dtype.name,
        "routed_experts_shape": None if routes is None else list(routes.shape),
        "turns": json.dumps([turn.__dict__ for turn in trajectory.turns]),
        "metadata": json.dumps(trajectory.metadata),
    }
