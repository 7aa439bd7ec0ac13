"""Terminal text: bounded capture, clean output, key names."""

from __future__ import annotations

import pytest

from sandbox.errors import InputError
from sandbox.terminal import Capture, clean, clip, encode_keys


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


def test_capture_keeps_both_ends_in_bounded_memory() -> None:
    capture = Capture(1000)
    capture.feed(b"start\n")
    for _ in range(2000):
        capture.feed(b"y\n" * 1000)
    capture.feed(b"end\n")
    text = capture.text()
    assert text.startswith("start\n") and text.endswith("end\n")
    assert "bytes omitted" in text and len(text) < 1100
    assert len(capture._head) + len(capture._tail) <= 5 * 1000


def test_capture_below_the_limit_is_whole_and_characters_may_be_split() -> None:
    capture = Capture(100)
    for byte in "h\u00e9llo w\u00f6rld".encode():
        capture.feed(bytes([byte]))
    assert capture.text() == "h\u00e9llo w\u00f6rld"


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
