"""What a terminal shows and takes, as text: bounded output, escape sequences removed, key names."""

from __future__ import annotations

import re

from sandbox.errors import InputError

OUTPUT_LIMIT = 8192  # bytes of one observation, half of them from its start and half from its end

# CSI; OSC, DCS, APC, PM and SOS strings; two-byte escapes. Also when cut at the end.
_ESCAPES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    rb"|\x1b[ -/]*[0-~]"
    rb"|\x1b"
)
_CONTROLS = re.compile(r"[\x00-\x07\x0b-\x0d\x0e-\x1f\x7f]")

_KEYS = {
    "Enter": b"\r", "Tab": b"\t", "Escape": b"\x1b", "BSpace": b"\x7f", "Space": b" ", "BTab": b"\x1b[Z",
    "Up": b"\x1b[A", "Down": b"\x1b[B", "Right": b"\x1b[C", "Left": b"\x1b[D", "Home": b"\x1b[H", "End":
    b"\x1b[F",
    "PageUp": b"\x1b[5~", "PPage": b"\x1b[5~", "PageDown": b"\x1b[6~", "NPage": b"\x1b[6~", "DC": b"\x1b[3~",
    "Delete": b"\x1b[3~", "IC": b"\x1b[2~", "Insert": b"\x1b[2~",
    "F1": b"\x1bOP", "F2": b"\x1bOQ", "F3": b"\x1bOR", "F4": b"\x1bOS", "F5": b"\x1b[15~", "F6": b"\x1b[17~",
    "F7": b"\x1b[18~", "F8": b"\x1b[19~", "F9": b"\x1b[20~", "F10": b"\x1b[21~", "F11": b"\x1b[23~", "F12":
    b"\x1b[24~",
}  # fmt: skip


def encode_keys(keys: list[str]) -> bytes:
    """Bytes that a keyboard sends for `keys`: tmux key names (Enter, C-c, M-x, Up, ...); anything else is
    text."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InputError("terminal_input: keys must be a list of strings")
    return b"".join(_encode_key(key) for key in keys)


def _encode_key(key: str) -> bytes:
    if key in _KEYS:
        return _KEYS[key]
    if key.startswith("M-") and len(key) > 2 and (len(key) == 3 or key[2:] in _KEYS or key[2:4] == "C-"):
        return b"\x1b" + _encode_key(key[2:])
    if re.fullmatch(r"(C-|\^)[a-zA-Z@\[\]\\^_?]", key):
        return b"\x7f" if key[-1] == "?" else bytes([ord(key[-1].upper()) & 0x1F])
    if key == "C-Space":
        return b"\x00"
    return key.replace("\r\n", "\r").replace("\n", "\r").encode("utf-8", "replace")


def shown_text(head: bytes, tail: bytes, total: int, path: str = "") -> str:
    """The clean text, within OUTPUT_LIMIT bytes, of a stream of `total` bytes of which both ends were kept.

    The cut, if any, is stated where it is, with `path`, where the sandbox has the whole.
    """
    omitted = total - len(head) - len(tail)
    text = clean(head + tail) if omitted <= 0 else clean(head) + clean(tail)
    return clip(text, OUTPUT_LIMIT, max(omitted, 0), path)


def clean(data: bytes) -> str:
    """Readable text: escape sequences and control characters removed, lines overwritten by \\r kept as last
    seen."""
    text = _ESCAPES.sub(b"", data).decode("utf-8", "replace")
    text = re.sub(r"\r+\n", "\n", text)
    if "\b" in text:
        text = _backspaces(text)
    if (
        "\r" in text
    ):  # a progress bar: what remains visible is what follows the last return to the line's start
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def _backspaces(text: str) -> str:
    out: list[str] = []
    for char in text:
        if char == "\b":
            if out and out[-1] != "\n":
                out.pop()
        else:
            out.append(char)
    return "".join(out)


def clip(text: str, limit: int, omitted: int = 0, path: str = "") -> str:
    """At most `limit` bytes of `text` (UTF-8) from both ends around a line that says how many bytes are
    missing.

    omitted: bytes already lost in the middle of `text`; a positive number forces the cut.
    path: where the whole is.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit and not omitted:
        return text
    half = min(limit, len(data)) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[len(data) - half :].decode("utf-8", "ignore")
    missing = len(data) - 2 * half + omitted
    where = f", whole output in {path}" if path else ""
    return f"{head}\n[... {missing} bytes omitted{where} ...]\n{tail}"
