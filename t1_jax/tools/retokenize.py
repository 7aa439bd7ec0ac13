"""An episode as a text pipeline sees it: decoded turn by turn, joined, and encoded again as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tokenizers import Tokenizer

from sandbox.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class Retokenized:
    """The text, its tokens (int32 [S]) and where each recorded token stands among them (int [T], -1 nowhere).

    A recorded token stands where a new token with its id covers the same characters.
    """

    text: str
    tokens: np.ndarray
    positions: np.ndarray


def retokenize(trajectory: Trajectory, tokenizer: Tokenizer) -> Retokenized:
    """Decode each stretch of sampled and of other tokens to text, join the texts, and encode the whole.

    Bytes that are no UTF-8 (a character that was cut, ids sampled in an odd order) become replacement
    characters, as in any text interface; from the first such byte on, a stretch's tokens stand nowhere.
    `tokenizer` must be byte-level.
    """
    added = {token: entry.content.encode() for token, entry in tokenizer.get_added_tokens_decoder().items()}
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    offset = 0
    for start, end in _stretches(trajectory):
        ids = trajectory.tokens[start:end].tolist()
        pieces = [added[token] if token in added else _vocabulary_bytes(token, tokenizer) for token in ids]
        text = b"".join(pieces).decode("utf-8", "replace")
        spans += [(a + offset, b + offset) if a >= 0 else (a, b) for a, b in character_spans(pieces)]
        texts.append(text)
        offset += len(text)
    whole = "".join(texts)
    encoding = tokenizer.encode(whole, add_special_tokens=False)
    places = {key: place for place, key in enumerate(_keys(encoding.offsets, encoding.ids))}
    recorded = _keys(spans, trajectory.tokens.tolist())
    positions = [places.get(key, -1) if key[0] >= 0 else -1 for key in recorded]
    return Retokenized(
        text=whole, tokens=np.asarray(encoding.ids, np.int32), positions=np.asarray(positions, np.int64)
    )


def character_spans(pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Spans [first character, last character + 1) of consecutive pieces of UTF-8 text, as encoders count.

    A piece that holds a part of a character covers all of it. (-1, -1) for an empty piece and from the first
    byte on that is no UTF-8.
    """
    whole = b"".join(pieces)
    good = len(whole)
    try:
        whole.decode("utf-8")
    except UnicodeDecodeError as error:
        good = error.start
    # The character that each byte belongs to: continuation bytes (10xxxxxx) belong to the one before them.
    characters = np.cumsum([byte & 0xC0 != 0x80 for byte in whole]) - 1
    spans, at = [], 0
    for piece in pieces:
        start, at = at, at + len(piece)
        known = piece and at <= good
        spans.append((int(characters[start]), int(characters[at - 1]) + 1) if known else (-1, -1))
    return spans


def _keys(spans: Sequence[tuple[int, int]], ids: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(start, end, id, how many equal ones came before): pieces of one character may have the same id."""
    seen: Counter[tuple[int, int, int]] = Counter()
    keys = []
    for (start, end), token in zip(spans, ids, strict=True):
        keys.append((start, end, token, seen[start, end, token]))
        seen[start, end, token] += 1
    return keys


def _stretches(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Half-open spans between the borders of turns: each is one string in a text interface."""
    borders = {0, len(trajectory.tokens)}
    for turn in trajectory.turns:
        borders |= {*turn.sampled, *turn.observed}
    ordered = sorted(borders)
    return list(pairwise(ordered))


def _byte_table() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_table()


def _vocabulary_bytes(token: int, tokenizer: Tokenizer) -> bytes:
    return bytes(_BYTES[character] for character in tokenizer.id_to_token(token) or "")
