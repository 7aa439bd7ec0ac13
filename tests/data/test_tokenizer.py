"""The tokenizer and the chat template: lossless, deterministic, loadable, append-only."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from sandbox.errors import InputError
from t1_jax.data.tokenizer import CONTROL_TOKENS, render, train_tokenizer

TOOLS = [
    {"type": "function", "function": {"name": "terminal", "description": "Run a command.", "parameters": {
        "type": "object", "required": ["command"],
        "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "terminal_input", "description": "Send keys.", "parameters": {
        "type": "object", "properties": {"keys": {"type": "array"}}, "required": ["keys"]}}},
    {"type": "function", "function": {"name": "finish", "description": "End."}},
]  # fmt: skip


def call(tool, **arguments):
    return {"type": "function", "function": {"name": tool, "arguments": arguments}}


CONVERSATION = [
    {"role": "system", "content": "You work in a Linux terminal."},
    {"role": "user", "content": "Write the number of lines of /app/data.csv to /app/out.txt."},
    {"role": "assistant", "content": "", "tool_calls": [
        call("terminal", command="wc -l /app/data.csv", timeout=5)]},
    {"role": "tool", "content": "42 /app/data.csv"},
    {"role": "assistant", "content": "Two at once.", "tool_calls": [
        call("terminal", command="echo 42 > /app/out.txt"), call("terminal_input", keys=["C-c", "Enter"])]},
    {"role": "tool", "content": "(no output)"},
    {"role": "tool", "content": "  indented <b>é</b>\n"},
    {"role": "assistant", "content": "Done."},
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus():
    tasks = [{"role": "user", "content": f"Task {i}: copy file{i}.txt"} for i in range(20)]
    prompts = [render([CONVERSATION[0], task], tools=TOOLS, add_generation_prompt=True) for task in tasks]
    return [*prompts, *[render(CONVERSATION, tools=TOOLS)] * 10, "def main():\n    return 1\n" * 5]


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(corpus, 700, out)
    return out


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_template_text():
    assert render(CONVERSATION[:4], tools=TOOLS, add_generation_prompt=True) == (
        "<|im_start|>system\nYou work in a Linux terminal.\n\n# Tools\n"
        "terminal(command, timeout?): Run a command.\n"
        "terminal_input(keys): Send keys.\nfinish(): End.<|im_end|>\n"
        "<|im_start|>user\nWrite the number of lines of /app/data.csv to /app/out.txt.<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n<function=terminal>\n"
        "<parameter=command>\nwc -l /app/data.csv\n</parameter>\n"
        "<parameter=timeout>\n5\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n42 /app/data.csv\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    whole = render(CONVERSATION)
    assert '<parameter=keys>\n["C-c", "Enter"]\n' in whole
    assert "\n</tool_response>\n<tool_response>\n  indented <b>é</b>\n\n</tool_response><|im_end|>" in whole
    assert "Two at once.\n\n<tool_call>\n" in whole
    assert "</tool_call>\n<tool_call>" in whole


def test_template_is_append_only():
    whole = render(CONVERSATION, tools=TOOLS)
    for cut in range(1, len(CONVERSATION) + 1):
        if cut < len(CONVERSATION) and CONVERSATION[cut - 1]["role"] == CONVERSATION[cut]["role"] == "tool":
            continue  # the results of one turn belong to one user turn
        assert whole.startswith(render(CONVERSATION[:cut], tools=TOOLS))
        if cut < len(CONVERSATION) and CONVERSATION[cut]["role"] == "assistant":
            assert whole.startswith(render(CONVERSATION[:cut], tools=TOOLS, add_generation_prompt=True))


@pytest.mark.parametrize("messages, complaint", [
    ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "must come first"),
    ([{"role": "developer", "content": "a"}], "role developer"),
    ([{"role": "assistant", "tool_calls": [{"name": "x", "arguments": "{}"}]}], "expected a mapping"),
])  # fmt: skip
def test_template_refuses(messages, complaint):
    with pytest.raises(Exception, match=complaint):
        render(messages)


def test_ids_of_the_template_are_the_encoding_of_its_text(tokenizer):
    options = {"tools": TOOLS, "add_generation_prompt": True}
    ids = tokenizer.apply_chat_template(CONVERSATION, return_dict=False, **options)
    text = render(CONVERSATION, **options)
    assert tokenizer.decode(ids) == text
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert ids.count(tokenizer.eos_token_id) == 7  # eight messages, of which two tool results share a turn


def test_control_tokens(tokenizer):
    base = len(tokenizer) - len(CONTROL_TOKENS)
    assert tokenizer.convert_tokens_to_ids(list(CONTROL_TOKENS)) == list(range(base, len(tokenizer)))
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.bos_token is None
    ids = tokenizer.encode("<tool_call>x</tool_call><|im_end|>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>x</tool_call>"


def test_framing_is_cheap(tokenizer):
    frame = "<|im_start|>assistant\n<tool_call>\n<function=terminal>\n<parameter=command>\n"
    assert len(tokenizer.encode(frame)) <= 14
    assert len(tokenizer.encode("\n</parameter>\n</function>\n</tool_call><|im_end|>")) <= 9


def test_words_are_cut_as_described(tokenizer):
    def cut(text):
        return [text[a:b] for _, (a, b) in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    assert cut("ls -la  /app/x24.txt") == ["ls", " -", "la", " ", " /", "app", "/x", "2", "4", ".txt"]
    assert cut("a;\n\n  b\n") == ["a", ";\n\n", " ", " b", "\n"]
    assert cut("e\u0301tude नमस्ते") == ["e\u0301tude", " नमस्ते"]


@given(st.text())
def test_decoding_inverts_encoding(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


def test_deterministic(corpus, folder, tmp_path):
    size = train_tokenizer(iter(corpus), 700, tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert size == Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() <= 700


def test_loads_beside_a_model_config(tokenizer, folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5_moe_text", "vocab_size": 1024}))
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = render(CONVERSATION, tools=TOOLS) + "it's 'text' they'll"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert len(loaded) == len(tokenizer)


def test_too_small_a_vocabulary(tmp_path):
    with pytest.raises(InputError, match="vocab_size is 100"):
        train_tokenizer(["a"], 100, tmp_path)
