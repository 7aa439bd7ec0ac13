"""The text side of the engine: the checkpoint's tokenizer and chat template, for clients that speak text.

Token-in-token-out clients never come here. `tokenizers` and jinja2 read the files themselves; importing
transformers for them would double the server's start-up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from tokenizers import Tokenizer

from t1_jax.engine.request import RequestError

_END_TOKENS = ("<|im_end|>", "<|endoftext|>")


def _refuse(message: str) -> None:
    raise RequestError(message)


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """What turns text into ids and back, as far as the checkpoint folder has it."""

    tokenizer: Tokenizer | None
    template: jinja2.Template | None
    stop_ids: tuple[int, ...]  # the ids that end a text or a turn

    @classmethod
    def load(cls, folder: Path) -> TextFormat:
        """Read tokenizer.json and chat_template.jinja (or tokenizer_config.json's chat_template); each may be
        missing.
        """
        tokenizer = template = None
        if (folder / "tokenizer.json").is_file():
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        source = None
        if (folder / "chat_template.jinja").is_file():
            source = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        elif (folder / "tokenizer_config.json").is_file():
            source = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get(
                "chat_template"
            )
        if source:
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
                trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
            )
            environment.globals["raise_exception"] = _refuse
            # transformers' filter: no HTML escapes, text as it is
            environment.filters["tojson"] = lambda value, indent=None: json.dumps(
                value, ensure_ascii=False, indent=indent
            )
            template = environment.from_string(source)
        ends = [tokenizer.token_to_id(token) for token in _END_TOKENS] if tokenizer else []
        return cls(tokenizer=tokenizer, template=template, stop_ids=tuple(t for t in ends if t is not None))

    def encode(self, text: str) -> list[int]:
        """Ids of a text; control tokens written in it become control ids. Raises RequestError without a
        tokenizer.
        """
        if self.tokenizer is None:
            raise RequestError("this checkpoint has no tokenizer.json, send token ids")
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """Text of the ids, "" without a tokenizer."""
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens) if self.tokenizer else ""

    def chat_ids(self, messages: Any, tools: Any, extra: dict[str, Any]) -> list[int]:
        """Ids of a conversation, ready for the assistant's turn. Raises RequestError when it can't be
        rendered.
        """
        if self.template is None:
            raise RequestError("this checkpoint has no chat template")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise RequestError("messages must be a non-empty list of objects")
        try:
            text = self.template.render(
                messages=[_plain(message) for message in messages],
                tools=tools,
                add_generation_prompt=True,
                **extra,
            )
        except (jinja2.TemplateError, TypeError, AttributeError, KeyError, ValueError) as error:
            raise RequestError(f"messages don't fit the chat template: {error}") from error
        return self.encode(text)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's content parts joined to text, and its JSON-encoded call arguments opened, as templates expect
    them.
    """
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text":
                kind = part.get("type") if isinstance(part, dict) else part
                raise RequestError(
                    f"message content has a part of type {kind!r:.40}, expected text: images are not read"
                )
        content = "".join(str(part.get("text", "")) for part in content)
    out = {**message, "content": "" if content is None else content}
    if message.get("tool_calls"):
        out["tool_calls"] = [_open_arguments(call) for call in message["tool_calls"]]
    return out


def _open_arguments(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    except ValueError as error:
        raise RequestError(f"tool call arguments are not JSON: {error}") from error
