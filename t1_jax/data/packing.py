"""Packing documents into rows of one fixed length.

Legend: R rows, T row length, M microbatches, B rows per microbatch, L MoE layers, K experts per token.

A batch is a dict of NumPy arrays [R, T]: `tokens`, `segment_ids` (0 = padding, 1..n documents), `positions`
(restart with every document), `loss_mask`, `loss_weights`, `rollout_logprobs`, `advantages`, `policy_age`,
and, when a document has a routing record, `routed_experts` [R, T, L, K] with -1 where a row is to be routed
live.

`loss_weights` carry the whole normalisation: the loss of a batch is sum(loss_weights * per-token loss). They
are computed here, over all documents of an optimizer step, so that no packing, microbatch or device split can
change a denominator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from sandbox.errors import InputError
from t1_jax.data.trajectories import Document

Batch = dict[str, np.ndarray]
Aggregation = Literal["token", "sequence", "rollout"]


def aligned(length: int, align: int) -> int:
    """`length` rounded up to a multiple of `align`."""
    return -(-length // align) * align


def places(documents: Sequence[Document], row_length: int, align: int) -> list[int]:
    """How much of a row each document takes: its tokens, and the padding before the next one."""
    return [min(aligned(len(document.tokens), align), row_length) for document in documents]


def first_fit(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Place items into as few rows as first-fit finds: item indices by row, in the order of placement.

    Raises InputError for an item that is longer than a row.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index, length in enumerate(lengths):
        if length > row_length:
            raise InputError(
                f"packing: item {index} has {length} tokens, expected at most row_length {row_length}"
            )
        place_first_fit(index, length, rows, free, row_length, len(rows) + 1)
    return rows


def place_first_fit(
    index: int, length: int, rows: list[list[int]], free: list[int], row_length: int, max_rows: int
) -> bool:
    """Put one item into the first row with room, opening a row while there are fewer than `max_rows`; False
    if none.
    """
    for row, room in enumerate(free):
        if length <= room:
            rows[row].append(index)
            free[row] -= length
            return True
    if len(rows) < max_rows:
        rows.append([index])
        free.append(row_length - length)
        return True
    return False


def loss_weights(documents: Sequence[Document], aggregation: Aggregation = "token") -> list[np.ndarray]:
    """Per document, float32 [T] weights that sum to 1 over all documents' loss tokens (to 0 when there is
    none).

    token: every loss token of the batch counts the same (DAPO, arXiv 2503.14476, eq. 8). sequence: a mean
      within each document, then over documents (GRPO, arXiv 2402.03300, eq. 3). rollout: a mean over all
      segments of a rollout, then over rollouts, so that a rollout which was split by context compaction
      counts once.
    """
    counts = [float(document.loss_mask.sum()) for document in documents]
    if aggregation == "token":
        total = sum(counts)
        scales = [1.0 / total if total else 0.0] * len(documents)
    elif aggregation == "sequence":
        trained = sum(count > 0 for count in counts)
        scales = [1.0 / (count * trained) if count else 0.0 for count in counts]
    else:
        per_rollout: Counter[str] = Counter()
        for document, count in zip(documents, counts, strict=True):
            per_rollout[document.rollout_id] += count  # type: ignore[assignment]
        trained = sum(count > 0 for count in per_rollout.values())
        scales = [
            1.0 / (per_rollout[document.rollout_id] * trained) if per_rollout[document.rollout_id] else 0.0
            for document in documents
        ]
    return [document.loss_mask * np.float32(scale) for document, scale in zip(documents, scales, strict=True)]


def pack(
    documents: Sequence[Document],
    *,
    row_length: int,
    num_rows: int | None = None,
    aggregation: Aggregation = "token",
    plan: Sequence[Sequence[int]] | None = None,
    routes_shape: tuple[int, int] | None = None,
    align: int = 1,
) -> Batch:
    """Pack documents into a batch of `num_rows` rows of `row_length` tokens (as many rows as needed when
    None).

    Args:
      documents: all documents of one optimizer step.
      row_length: T.
      num_rows: R; rows beyond the used ones are padding.
      aggregation: what `loss_weights` average over.
      plan: document indices by row; first-fit in the given order when None.
      align: documents start at multiples of it, with padding between them.
      routes_shape: (L, K) to have a `routed_experts` leaf even when no document is recorded; from the
        documents when None.

    Raises:
      InputError: a document is longer than a row (its rollout id is named), or the rows do not suffice.
    """
    for document in documents:
        if len(document.tokens) > row_length:
            raise InputError(
                f"trajectory {document.rollout_id}: {len(document.tokens)} tokens do not fit a row; "
                f"expected at most row_length {row_length}"
            )
    if plan is None:
        plan = first_fit(places(documents, row_length, align), row_length)
    num_rows = len(plan) if num_rows is None else num_rows
    if len(plan) > num_rows:
        raise InputError(
            f"packing: {len(documents)} documents need {len(plan)} rows, expected at most {num_rows}"
        )
    recorded = [document.routed_experts for document in documents if document.routed_experts is not None]
    if routes_shape is None and recorded:
        routes_shape = recorded[0].shape[1:]
    shape = (num_rows, row_length)
    batch: Batch = {
        "tokens": np.zeros(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "positions": np.zeros(shape, np.int32),
        "loss_mask": np.zeros(shape, np.float32),
        "loss_weights": np.zeros(shape, np.float32),
        "rollout_logprobs": np.zeros(shape, np.float32),
        "advantages": np.zeros(shape, np.float32),
        "policy_age": np.zeros(shape, np.int32),
    }
    if routes_shape is not None:
        batch["routed_experts"] = np.full((*shape, *routes_shape), -1, np.int32)
    weights = loss_weights(documents, aggregation)
    for row, members in enumerate(plan):
        start = 0
        for segment, index in enumerate(members, start=1):
            document = documents[index]
            span = slice(start, start + len(document.tokens))
            batch["tokens"][row, span] = document.tokens
            batch["segment_ids"][row, span] = segment
            batch["positions"][row, span] = np.arange(len(document.tokens))
            batch["loss_mask"][row, span] = document.loss_mask
            batch["loss_weights"][row, span] = weights[index]
            batch["rollout_logprobs"][row, span] = document.rollout_logprobs
            batch["advantages"][row, span] = document.advantage * document.loss_mask
            batch["policy_age"][row, span] = document.policy_age
            if document.routed_experts is not None:
                assert document.routed_valid is not None
                routes = document.routed_experts.astype(np.int32)
                batch["routed_experts"][row, span] = np.where(
                    document.routed_valid[:, None, None], routes, -1
                )
            start = aligned(span.stop, align)
    return batch


def split_microbatches(
    batch: Batch, rows: int, *, num_microbatches: int | None = None, at_least: int = 1
) -> Batch:
    """Reshape [R, ...] leaves to [M, rows, ...], adding rows of padding.

    M is `num_microbatches`, or the next power of two that holds R rows and is `at_least` so many: few shapes
    compile, and the train step spends no time on microbatches that are padding.

    Raises InputError when `num_microbatches` are too few.
    """
    total = len(batch["tokens"])
    needed = max(at_least, -(-total // rows))
    if num_microbatches is None:
        num_microbatches = 1 << (needed - 1).bit_length()
    if needed > num_microbatches:
        raise InputError(
            f"packing: {total} rows need {needed} microbatches of {rows}, expected {num_microbatches}"
        )
    padded: Batch = {}
    for name, leaf in batch.items():
        fill = -1 if name == "routed_experts" else 0
        extra = np.full((num_microbatches * rows - total, *leaf.shape[1:]), fill, leaf.dtype)
        padded[name] = np.concatenate([leaf, extra]).reshape(num_microbatches, rows, *leaf.shape[1:])
    return padded
