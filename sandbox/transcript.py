"""Text to token ids exactly once: the chat format of a checkpoint, and the append-only record of one episode.

Nothing here encodes a text twice. The prompt is rendered through the checkpoint's own template; each turn
appends the sampled ids as they came and then a tool result inside framing that was derived from the same
template. Text that is not ours (instructions, tool output) is encoded without the added tokens, so that no
text becomes a control token: in Qwen's vocabulary `<tool_call>` and `<think>` are not even flagged special,
so `split_special_tokens` would not do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, Turn

END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
# What a scripted assistant may write as control tokens; the end of its turn is appended, never written.
_ASSISTANT_CONTROLS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


class ChatFormat:
    """The tokenizer and chat template of a checkpoint, without the transformers library.

    `opens_thinking` tells whether the generation prompt opens a think block (Qwen3.5's does).
    """

    def __init__(
        self, tokenizer_json: str, template: str, template_options: dict[str, Any] | None = None
    ) -> None:
        spec = json.loads(tokenizer_json)
        added = {token["content"]: token["id"] for token in spec.get("added_tokens", [])}
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        # The twin knows no added token, not even as a word of its vocabulary, so its output cannot hold a
        # control id.
        spec["added_tokens"], spec["post_processor"] = [], None
        for token in added:
            spec["model"]["vocab"].pop(token, None)
        self._twin = Tokenizer.from_str(json.dumps(spec))
        self._controls = added
        self._control_ids = frozenset(added.values())
        self._splitter = _alternatives(added)
        self._options = dict(template_options or {})
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = lambda value, **kw: json.dumps(value, ensure_ascii=False, **kw)
        environment.globals["raise_exception"] = _raise_template_error
        self._template = environment.from_string(template)
        self.stop_ids: tuple[int, ...] = tuple(
            added[token] for token in (END_OF_TURN, END_OF_TEXT) if token in added
        )
        self.end_of_turn_id: int = added[END_OF_TURN]
        self._frames, self._trims = self._derive_framing()
        self.opens_thinking: bool = self._frames[-1].rstrip().endswith("<think>")
        # Attempts of one task share a prompt; a template of several kilobytes is not free 64 times over.
        self._prompt = lru_cache(maxsize=256)(self._render_prompt)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        template: str | Path | None = None,
        template_options: dict[str, Any] | None = None,
    ) -> ChatFormat:
        """Read tokenizer.json and chat_template.jinja (or the single *chat_template.jinja) of a checkpoint
        folder.

        `template_options` are the template's own switches, the same for all turns. Raises InputError when a
        file is missing or holds no chat format with `<|im_end|>`.
        """
        folder = Path(folder)
        vocabulary = folder / "tokenizer.json"
        if not vocabulary.is_file():
            raise InputError(
                f"checkpoint {folder}: no tokenizer.json, expected a checkpoint or tokenizer folder"
            )
        found = [Path(template)] if template else sorted(folder.glob("*chat_template.jinja"))
        if len(found) != 1 or not found[0].is_file():
            raise InputError(f"checkpoint {folder}: no chat_template.jinja beside tokenizer.json")
        try:
            return cls(vocabulary.read_text("utf-8"), found[0].read_text("utf-8"), template_options)
        except (TemplateError, KeyError, ValueError) as error:
            raise InputError(
                f"checkpoint {folder}: tokenizer.json or {found[0].name} is not usable ({error!r}), "
                f"expected a template with {END_OF_TURN} turns and tool results"
            ) from error

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._tokenizer.get_vocab_size()

    def prompt_ids(self, system: str, instruction: str, tools: Sequence[dict[str, Any]]) -> list[int]:
        """Ids of the opening prompt, generation prompt included, as the template renders it."""
        return list(self._prompt(system, instruction, json.dumps(list(tools))))

    def tool_result_ids(self, outputs: Sequence[str], truncated: bool = False) -> list[int]:
        """Ids that follow an assistant turn: the rest of its framing, one tool result per call, the next
        turn's opening.

        `truncated` says that the turn did not sample `<|im_end|>` itself (it stopped at `<|endoftext|>`), so
        that the framing holds it.
        """
        head, between, tail = self._frames
        texts = [output.strip() if self._trims else output for output in outputs]
        parts: list[tuple[str, bool]] = [(END_OF_TURN + head if truncated else head, True)]
        for index, text in enumerate(texts):
            parts += [(between, True)] if index else []
            parts.append((text, False))
        return self._encode_parts([*parts, (tail, True)])

    def assistant_ids(self, text: str, *, end: bool = True) -> list[int]:
        """Ids of an assistant turn written by a script, with `<|im_end|>` appended unless `end` is False."""
        ids = self._encode(text, _ASSISTANT)
        return [*ids, self.end_of_turn_id] if end else ids

    def assistant_text(self, call_text: str) -> str:
        """A turn without reasoning: closes the think block where the template opened one."""
        return f"\n</think>\n\n{call_text}" if self.opens_thinking else call_text

    def text_ids(self, text: str) -> list[int]:
        """Ids of text that is not ours: never a control token."""
        return self._twin.encode(text, add_special_tokens=False).ids

    def cut(self, text: str, max_tokens: int) -> str:
        """Keep the head and the tail of `text` within about `max_tokens` tokens, and say how many were left
        out.
        """
        if len(text) <= max_tokens:  # a token is at least one byte, and texts this short are the rule
            return text
        encoding = self._twin.encode(text, add_special_tokens=False)
        if len(encoding.ids) <= max_tokens:
            return text
        head, tail = max_tokens - max_tokens // 2, max_tokens // 2
        first = text[: encoding.offsets[head - 1][1]]
        last = text[encoding.offsets[-tail][0] :] if tail else ""
        return f"{first}\n[... {len(encoding.ids) - max_tokens} tokens cut ...]\n{last}"

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        return self._template.render(
            messages=messages, tools=tools, add_generation_prompt=True, **self._options
        )

    def _render_prompt(self, system: str, instruction: str, tools_json: str) -> tuple[int, ...]:
        # The real text goes through the template (which may trim it), with a mark inside whatever would read
        # as a control token; the mark is taken out again once the template's own control tokens are known.
        mark = _unused_character(system + instruction + tools_json)
        broken = [
            self._splitter.sub(lambda m: m[0][0] + mark + m[0][1:], text)
            for text in (system, instruction, tools_json)
        ]
        messages = [{"role": "system", "content": broken[0]}] if system else []
        messages.append({"role": "user", "content": broken[1]})
        rendered = self._render(messages, json.loads(broken[2]) or None)
        ids: list[int] = []
        for text, control in _split(rendered, self._splitter):
            ids += [self._controls[text]] if control else self.text_ids(text.replace(mark, ""))
        return tuple(ids)

    def _derive_framing(self) -> tuple[tuple[str, str, str], bool]:
        """What the template writes between two assistant turns, found by rendering dummies once."""
        call = {"type": "function", "function": {"name": "finish", "arguments": {}}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "QUESTION"},
            {"role": "assistant", "content": "", "tool_calls": [call, call]},
            {"role": "tool", "name": "finish", "content": " RESULT-A "},
            {"role": "tool", "name": "finish", "content": " RESULT-B "},
        ]
        rendered = self._render(messages, None)
        start = rendered.rindex("</tool_call>") + len("</tool_call>")
        before, first, rest = rendered[start:].partition("RESULT-A")
        between, second, tail = rest.partition("RESULT-B")
        if not before.startswith(END_OF_TURN) or not first or not second:
            raise ValueError("tool results are not rendered after a closed assistant turn")
        trims = not before.endswith(" ")
        head = before[len(END_OF_TURN) :]
        return (head, between, tail) if trims else (head[:-1], between[1:-1], tail[1:]), trims

    def _encode_parts(self, parts: list[tuple[str, bool]]) -> list[int]:
        """Encode (text, is ours) parts; text between two control tokens is encoded jointly, as in the
        template.
        """
        ids: list[int] = []
        pending = ""
        for text, ours in parts:
            for piece, control in _split(text, self._splitter) if ours else [(text, False)]:
                if not control:
                    pending += piece
                    continue
                ids += [*self.text_ids(pending), self._controls[piece]]
                pending = ""
        return ids + self.text_ids(pending)

    def _encode(self, text: str, controls: re.Pattern[str]) -> list[int]:
        ids: list[int] = []
        for piece, control in _split(text, controls):
            ids += [self._controls[piece]] if control and piece in self._controls else self.text_ids(piece)
        return ids


class Transcript:
    """The append-only record of one episode: ids, what was sampled, and the experts that ran.

    Routes arrive one generation at a time and without gaps: `routes_stored` rows are there, and the next
    generation is asked for those that follow. The row of the last sampled token therefore comes with the next
    turn's answer.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._versions: list[int] = []
        self._routes: list[np.ndarray] = []
        self._valid: list[np.ndarray] = []
        self.routes_stored = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def append_prompt(self, ids: Sequence[int]) -> tuple[int, int]:
        """Append ids that no policy sampled; returns their span."""
        count = len(ids)
        return self._append(ids, [False] * count, [0.0] * count, [-1] * count)

    append_observation = append_prompt

    def append_sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int], *, counts: bool = True
    ) -> tuple[int, int]:
        """Append ids exactly as they were sampled; returns their span.

        `counts` False keeps them as context only (no loss). Raises ValueError when the lengths differ.
        """
        if not len(ids) == len(logprobs) == len(versions):
            raise ValueError(f"{len(ids)} sampled ids, {len(logprobs)} log-probs, {len(versions)} versions")
        return self._append(ids, [counts] * len(ids), logprobs, versions)

    def _append(
        self,
        ids: Sequence[int],
        mask: Iterable[bool],
        logprobs: Iterable[float],
        versions: Iterable[int],
    ) -> tuple[int, int]:
        start = len(self.tokens)
        self.tokens += ids
        self._mask += mask
        self._logprobs += logprobs
        self._versions += versions
        return start, len(self.tokens)

    def add_routes(self, start_row: int, rows: np.ndarray, valid: np.ndarray | None = None) -> None:
        """Append rows (uint8 or uint16 [R, L, K]) for tokens start_row .. start_row + R.

        `valid` (bool [R]) is False where the engine recorded nothing. Raises ValueError on a gap, an overlap,
        another width or dtype, or rows for tokens that do not exist: a bad record is refused, never reshaped.
        """
        if start_row != self.routes_stored:
            raise ValueError(f"routes start at row {start_row}, {self.routes_stored} rows are stored")
        if rows.ndim != 3 or rows.dtype not in (np.uint8, np.uint16):
            raise ValueError(f"routes are {rows.dtype} {rows.shape}, expected uint8 or uint16 [R, L, K]")
        if self._routes and (
            rows.shape[1:] != self._routes[0].shape[1:] or rows.dtype != self._routes[0].dtype
        ):
            raise ValueError(
                f"routes are {rows.dtype} {rows.shape[1:]}, earlier ones {self._routes[0].dtype} "
                f"{self._routes[0].shape[1:]}"
            )
        if start_row + len(rows) > len(self.tokens):
            raise ValueError(
                f"routes end at row {start_row + len(rows)}, there are {len(self.tokens)} tokens"
            )
        self._routes.append(rows)
        self._valid.append(np.ones(len(rows), bool) if valid is None else valid)
        self.routes_stored += len(rows)

    def to_trajectory(
        self,
        *,
        rollout_id: str,
        group_id: str,
        task: str,
        reward: float | None,
        ending: str,
        tests: dict[str, bool] | None = None,
        turns: Sequence[Turn] = (),
        segment: int = 0,
        metadata: dict[str, Any] | None = None,
    ) -> Trajectory:
        """Freeze the record. Rows that were never forwarded stay invalid (zeros)."""
        length = len(self.tokens)
        routes = valid = None
        if self._routes:
            routes = np.zeros((length, *self._routes[0].shape[1:]), self._routes[0].dtype)
            valid = np.zeros(length, bool)
            np.concatenate(self._routes, out=routes[: self.routes_stored])
            np.concatenate(self._valid, out=valid[: self.routes_stored])
        return Trajectory(
            rollout_id=rollout_id,
            group_id=group_id,
            task=task,
            tokens=np.asarray(self.tokens, np.int32),
            loss_mask=np.asarray(self._mask, bool),
            rollout_logprobs=np.asarray(self._logprobs, np.float32),
            versions=np.asarray(self._versions, np.int32),
            routed_experts=routes,
            routed_valid=valid,
            reward=reward,
            ending=ending,
            tests=tests or {},
            turns=tuple(turns),
            segment=segment,
            metadata=metadata or {},
        )


def _alternatives(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern of any of the tokens, longest first."""
    return re.compile(
        "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True)) or r"(?!)"
    )


_ASSISTANT = _alternatives(_ASSISTANT_CONTROLS)


def _split(text: str, pattern: re.Pattern[str]) -> Iterable[tuple[str, bool]]:
    """Cut text at the pattern's matches: (piece, whether it is a match), without empty pieces."""
    end = 0
    for match in pattern.finditer(text):
        if match.start() > end:
            yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    if end < len(text):
        yield text[end:], False


def _unused_character(text: str) -> str:
    """A private-use character that the text does not hold."""
    return next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)


def _raise_template_error(message: str) -> None:
    raise TemplateError(message)
