"""Terminal text: bounded capture, clean output, key names."""

from __future__ import annotations

import pytest

from sandbox.backends.supervisor import RING, Ring
from sandbox.errors import InputError
from sandbox.terminal import OUTPUT_LIMIT, clean, clip, encode_keys, shown_text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m\r\n", "red\n"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]11;?\x1b\\after", "after"),
        (b"ask\x1b[6n\x1b[?2004h", "ask"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"a\r\r\nb\r\n", "a\nb\n"),
        (b"ab\bc", "ac"),
        (b"bell\x07\x00", "bell"),
        (b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
        (b"tab\there", "tab\there"),
        (b"cut\x1b[31", "cut"),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def text_of(ring: Ring, path: str = "") -> str:
    return shown_text(bytes(ring.head), bytes(ring.tail), ring.total, path)


def test_both_ends_are_kept_in_bounded_memory() -> None:
    ring = Ring()
    ring.feed(b"start\n")
    for _ in range(2000):
        ring.feed(b"y\n" * 1000)
    ring.feed(b"end\n")
    text = text_of(ring, "/tmp/all.txt")
    assert text.startswith("start\n") and text.endswith("end\n")
    assert "bytes omitted, whole output in /tmp/all.txt ...]" in text and len(text) < OUTPUT_LIMIT + 100
    assert len(ring.head) + len(ring.tail) <= 3 * RING and ring.total == 4_000_010


def test_below_the_limit_it_is_whole_and_characters_may_be_split() -> None:
    ring = Ring(4)
    for byte in "h\u00e9llo w".encode():
        ring.feed(bytes([byte]))
    assert text_of(ring) == "h\u00e9llo w"


def test_clip_states_what_is_missing() -> None:
    text = clip("a" * 600 + "b" * 600, 100)
    assert text == "a" * 50 + "\n[... 1100 bytes omitted ...]\n" + "b" * 50
    assert clip("\u00e9" * 100, 50).count("\u00e9") <= 25


@pytest.mark.parametrize(
    ("keys", "data"),
    [
        (["ls", "Enter"], b"ls\r"),
        (["C-c"], b"\x03"),
        (["C-d", "^Z"], b"\x04\x1a"),
        (["Up", "Down", "Left", "Right"], b"\x1b[A\x1b[B\x1b[D\x1b[C"),
        (["Tab", "Escape", "BSpace", "Space"], b"\t\x1b\x7f "),
        (["M-x"], b"\x1bx"),
        (["two\nlines"], b"two\rlines"),
        (["C-compile", "Entering"], b"C-compileEntering"),
        ([":wq", "Enter"], b":wq\r"),
    ],
)
def test_keys(keys: list[str], data: bytes) -> None:
    assert encode_keys(keys) == data


def test_keys_must_be_strings() -> None:
    with pytest.raises(InputError, match="keys"):
        encode_keys("Enter")  # type: ignore[arg-type]
