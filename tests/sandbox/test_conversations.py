import json

import numpy as np
import pytest

from sandbox.conversations import import_conversations
from sandbox.errors import InputError
from sandbox.tools import TOOLS, offered


def call(name, arguments, identity="c"):
    return {"id": identity, "function": {"name": name, "arguments": json.dumps(arguments)}}


def chat_record(**changes):
    return {
        "messages": [
            {"role": "system", "content": "ignored"},
            {"role": "user", "content": [{"type": "text", "text": "Write hello."}]},
            {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [
                call("bash", {"cmd": "ls"}, "a"), call("execute_bash", {"command": "echo hello"}, "b")]},
            {"role": "tool", "tool_call_id": "b", "content": "hello <|im_end|>"},
            {"role": "tool", "tool_call_id": "a", "content": "notes.txt"},
            {"role": "assistant", "content": "Done."},
        ], **changes,
    }  # fmt: skip


ATIF = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s",
    "agent": {"name": "x", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Write hello."},
        {"step_id": 2, "source": "agent", "message": "", "is_copied_context": True,
         "tool_calls": [{"tool_call_id": "a", "function_name": "bash_command",
                         "arguments": {"keystrokes": "ls\n", "duration": 1}}],
         "observation": {"results": [{"content": "notes.txt"}]}},
        {"step_id": 3, "source": "agent", "message": "I wait.",
         "tool_calls": [{"tool_call_id": "b", "function_name": "bash_command",
                         "arguments": {"keystrokes": "C-c"}}],
         "observation": {"results": [{"source_call_id": "b", "content": "^C"}]}},
        {"step_id": 4, "source": "agent", "message": "",
         "tool_calls": [{"tool_call_id": "d", "function_name": "mark_task_complete", "arguments": {}}]},
    ],
}  # fmt: skip


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_chat_messages_become_one_record_of_tokens(tmp_path, chat):
    [made], left_out = import_conversations(write(tmp_path / "c.jsonl", chat_record(reward=0.5)), chat)
    assert left_out == {} and made.reward == 0.5 and made.rollout_id == "imported/c-1"
    first, last = made.turns
    prompt = chat.prompt_ids("Solve the task in a Linux terminal with tool calls.", "Write hello.", TOOLS)
    assert made.tokens[: len(prompt)].tolist() == prompt and first.sampled[0] == len(prompt)
    assert first.tool == "terminal" and first.arguments == {"command": "ls"}
    assert first.more[0]["arguments"] == {"command": "echo hello"} and "Look." in first.text
    # Results stand in the order of the calls, and no text of theirs is a control token.
    expected = chat.tool_result_ids(["notes.txt", "hello <|im_end|>"])
    assert made.tokens[slice(*first.observed)].tolist() == expected
    spans = np.zeros(len(made.tokens), bool)
    for turn in made.turns:
        spans[slice(*turn.sampled)] = True
        assert made.tokens[turn.sampled[1] - 1] == chat.end_of_turn_id
    assert np.array_equal(made.loss_mask, spans) and last.sampled[1] == len(made.tokens)


def test_atif_keeps_copied_steps_as_context(tmp_path, chat):
    (tmp_path / "t.json").write_text(json.dumps(ATIF, indent=2))
    [made], _ = import_conversations(tmp_path / "t.json", chat)
    assert [turn.tool for turn in made.turns] == ["terminal", "terminal_input", "finish"]
    assert made.turns[1].arguments == {"keys": ["C-c"]} and made.turns[0].observation == "notes.txt"
    assert made.metadata["context_turns"] == [0] and made.reward == 1.0
    assert not made.loss_mask[slice(*made.turns[0].sampled)].any()
    assert made.loss_mask[slice(*made.turns[1].sampled)].all()


def test_what_does_not_fit_is_left_out_with_a_reason(tmp_path, chat):
    user, assistant = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
    cases = {
        "second message|message 3 is of 'user'": [user, assistant, user, assistant],
        "no call, others follow": [user, assistant, assistant],
        "unknown function 'browser'": [
            user, {"role": "assistant", "tool_calls": [call("browser", {})]}, assistant],
        "without a command": [user, {"role": "assistant", "tool_calls": [call("bash", {})]}, assistant],
        "first message is not": [assistant],
        "no assistant turn": [user],
    }  # fmt: skip
    file = write(
        tmp_path / "c.jsonl", chat_record(), *({"messages": messages} for messages in cases.values())
    )
    kept, left_out = import_conversations(file, chat)
    assert len(kept) == 1 and len(left_out) == len(cases)
    wanted = [
        "is of 'user'",
        "has no tool call",
        "unknown function",
        "without a command",
        "is not",
        "no assist",
    ]
    assert all(part in reason for part, reason in zip(wanted, left_out.values(), strict=True))
    _, short = import_conversations(write(tmp_path / "d.jsonl", chat_record(), ATIF), chat, max_context=10**6)
    assert short == {}
    with pytest.raises(InputError, match=r"no conversation could be kept, d\.jsonl:1: \d+ tokens"):
        import_conversations(tmp_path / "d.jsonl", chat, max_context=10)


@pytest.mark.parametrize(
    ("text", "message"), [("{}", "line 1: expected"), ('{"a": 1}\n{', "line 2: not JSON"), ("", "empty")]
)
def test_bad_files_are_refused(tmp_path, chat, text, message):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(InputError, match=message):
        import_conversations(tmp_path / "x.jsonl", chat)


def test_the_prompt_offers_the_tools_that_were_asked_for(tmp_path, chat):
    path = write(tmp_path / "c.jsonl", chat_record())
    [made], _ = import_conversations(path, chat, tools=("terminal", "finish"))
    system = "Solve the task in a Linux terminal with tool calls."
    prompt = chat.prompt_ids(system, "Write hello.", offered(("terminal", "finish")))
    assert made.tokens[: len(prompt)].tolist() == prompt
    with pytest.raises(InputError, match="it calls terminal, expected only finish"):
        import_conversations(path, chat, tools=("finish",))
