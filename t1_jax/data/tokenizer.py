"""A small byte-level BPE tokenizer with Qwen3.5's conventions, trained on the project's own text.

The control tokens, the normal form (NFC), the way text is cut into words and the form of tool calls follow
Qwen3.5, so that what holds for the small model of the quick start (token-exact transcripts, control tokens
that terminal output cannot forge) holds in the same way for the large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from sandbox.errors import InputError

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# Name -> whether it is "special". As in Qwen3.5, what a tool call is made of is not: a reader that skips
# special tokens still sees the call. Each is one id that text never becomes when it is encoded without added
# tokens.
CONTROL_TOKENS = {
    END_OF_TEXT: True, TURN_START: True, TURN_END: True,
    "<tool_call>": False, "</tool_call>": False, "<tool_response>": False, "</tool_response>": False,
    "<think>": False, "</think>": False,
}  # fmt: skip

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")

# How text is cut before merging; merges never cross a cut. In order: a run of letters and marks with at most
# one other character before it; one digit; a run of punctuation with at most one space before it and the
# newlines behind it; newlines with the blanks before them; blanks (the last one is left to the word that
# follows).
_WORDS = "|".join((
    r"[^\r\n\p{L}\p{M}\p{N}]?[\p{L}\p{M}]+",
    r"\p{N}",
    r"[ ]?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
))  # fmt: skip


def train_tokenizer(texts: Iterable[str], vocab_size: int, out_dir: str | Path) -> int:
    """Train a tokenizer and save it as a folder that `transformers.AutoTokenizer.from_pretrained` loads.

    Deterministic: the same texts give the same files. Texts should hold rendered prompts (see `render`) as
    often as they will be read, since framing is most of what a short episode consists of. Control tokens in
    the texts are boundaries and are not learned from.

    Args:
      texts: the corpus, read once.
      vocab_size: ids in total: 256 bytes, merges, then the control tokens with the highest ids. A corpus too
        small for that many merges gives fewer.
      out_dir: receives tokenizer.json, tokenizer_config.json and chat_template.jinja; created when missing.

    Returns:
      The number of ids, at most `vocab_size`.

    Raises:
      InputError: `vocab_size` does not hold the bytes and the control tokens.
    """
    smallest = 256 + len(CONTROL_TOKENS)
    if vocab_size < smallest:
        raise InputError(
            f"tokenizer: vocab_size is {vocab_size}, expected at least {smallest} (bytes and control tokens)"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CONTROL_TOKENS),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without_control_tokens(texts), trainer)
    tokenizer.add_tokens(
        [AddedToken(name, special=kind, normalized=False) for name, kind in CONTROL_TOKENS.items()]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE.read_text(),
    )
    wrapped.save_pretrained(out_dir)
    return len(wrapped)


def render(
    messages: list[dict[str, Any]],
    *,
    tools: list[dict[str, Any]] | None = None,
    add_generation_prompt: bool = False,
) -> str:
    """A conversation as text in our chat format, as `apply_chat_template(..., tokenize=False)` gives it.

    Needs no tokenizer, so that a tokenizer can be trained on what it will encode.

    Args:
      messages: dicts with role "system", "user", "assistant" (content and/or tool_calls in the OpenAI form,
        with arguments as a mapping) or "tool" (content).
      tools: OpenAI function schemas; one line each in the system turn, optional parameters marked by "?".
      add_generation_prompt: open the assistant turn at the end.
    """
    rendered = render_jinja_template(
        conversations=[messages],
        tools=None if tools is None else list(tools),
        chat_template=CHAT_TEMPLATE.read_text(),
        add_generation_prompt=add_generation_prompt,
    )
    return rendered[0][0]  # of (texts, generation spans)


def _without_control_tokens(texts: Iterable[str]) -> Iterator[str]:
    boundary = re.compile("|".join(map(re.escape, CONTROL_TOKENS)))
    for text in texts:
        yield from (piece for piece in boundary.split(text) if piece)
