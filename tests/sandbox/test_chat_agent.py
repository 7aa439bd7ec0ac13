"""Evaluation of a model that is reached as text, against a server that plays a script over real HTTP."""

import asyncio
import json

import pytest

from sandbox.agent import EpisodeLimits
from sandbox.chat_client import ChatClient
from sandbox.errors import InputError
from sandbox.evaluate import EvalConfig, evaluate
from sandbox.tools import ToolCall, format_tool_call


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"id-{name}", "type": "function", "function": function}]}


async def play(write_task, chat_server, **changes):
    folder = write_task("one").parent
    limits = EpisodeLimits(infra_retries=1, **changes.pop("limits", {}))
    settings = {
        "tasks": str(folder),
        "engine_url": chat_server.url,
        "progress": False,
        "limits": limits,
        **changes,
    }
    return await asyncio.to_thread(evaluate, EvalConfig(**settings))


async def test_structured_tool_calls(write_task, chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    chat_server.script = [
        call("terminal", command="echo hello > out.txt; ls"),
        call("terminal", command="touch done.txt"),
        call("finish"),
    ]
    result = await play(write_task, chat_server)
    assert result["tasks"] == {"one": [1.0]} and result["model"] == "scripted"
    assert result["rounds"] == 3 and result["tokens"] == 21 and chat_server.keys == {"Bearer secret"}
    last = chat_server.requests[-1]
    assert [m["role"] for m in last["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert last["messages"][3]["tool_call_id"] == "id-terminal" == last["messages"][2]["tool_calls"][0]["id"]
    assert "notes.txt" in last["messages"][3]["content"] and last["model"] == "scripted"
    assert {t["function"]["name"] for t in last["tools"]} >= {"terminal", "finish"}


async def test_calls_in_the_text_and_a_malformed_turn(write_task, chat_server, run_text):
    chat_server.script = [
        {"content": "I think.\n</think>\n\n" + run_text("echo hello > out.txt")},
        {"content": "<tool_call>nonsense</tool_call>"},
        call("terminal", wrong="x"),
        {"content": run_text("touch done.txt")},
        {"content": format_tool_call(ToolCall(name="finish"))},
    ]
    result = await play(write_task, chat_server, limits={"max_format_errors": 3})
    assert result["tasks"] == {"one": [1.0]} and result["format_error_rate"] == pytest.approx(2 / 5)
    results = [m["content"] for m in chat_server.requests[-1]["messages"] if m["role"] == "tool"]
    assert results[1].startswith("[error] malformed") and results[2].startswith("[error] terminal has no")


@pytest.mark.parametrize(
    ("limits", "reason", "ending"),
    [
        ({"max_turns": 2}, "stop", "max_turns"),
        ({}, "length", "max_tokens"),
        ({"max_context": 150}, "stop", "context"),
        ({"observation_tokens": 10}, "stop", "finish"),
    ],
)
async def test_endings_are_graded(write_task, chat_server, limits, reason, ending):
    chat_server.script = [call("terminal", command="touch done.txt; seq 1000")] * 3
    chat_server.finish_reason = reason
    result = await play(write_task, chat_server, limits=limits)
    assert result["endings"] == {ending: 1} and result["errors"] == 0
    assert result["tasks"] == {"one": [0.0 if reason == "length" else 0.25]}
    if "observation_tokens" in limits:
        assert "characters cut" in chat_server.requests[-1]["messages"][3]["content"]


async def test_a_server_that_fails_is_an_error_and_a_later_refusal_of_length_an_ending(
    write_task, chat_server
):
    chat_server.failures = [400, 400]
    result = await play(write_task, chat_server)
    assert result["tasks"] == {"one": []} and result["errors"] == 1
    assert "context_length_exceeded" in result["infrastructure"][0]["problem"]


async def test_a_url_without_a_server_or_without_models_is_bad_input(chat_server):
    with pytest.raises(InputError, match="no model from /models"):
        async with ChatClient("http://127.0.0.1:9"):
            pass


async def test_only_the_tools_of_the_limits_are_offered_and_run(write_task, chat_server):
    chat_server.script = [call("terminal_output"), call("terminal", command="touch done.txt"), call("finish")]
    result = await play(write_task, chat_server, limits={"tools": ("terminal", "finish")})
    assert result["format_error_rate"] == pytest.approx(1 / 3)
    names = [tool["function"]["name"] for tool in chat_server.requests[0]["tools"]]
    assert names == ["terminal", "finish"]
    results = [m["content"] for m in chat_server.requests[-1]["messages"] if m["role"] == "tool"]
    assert "unknown function 'terminal_output'" in results[0]
