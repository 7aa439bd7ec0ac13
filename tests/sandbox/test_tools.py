import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import TerminalResult
from sandbox.errors import InputError
from sandbox.tools import (
    TOOLS,
    ToolCall,
    ToolCallError,
    format_tool_call,
    observation_text,
    offered,
    parse_tool_calls,
)


def xml(name: str, **parameters: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def test_a_call_with_reasoning_before_it():
    calls = parse_tool_calls("I look first.\n\n" + xml("terminal", command="ls -la\necho done", timeout="5"))
    assert calls == [ToolCall(name="terminal", arguments={"command": "ls -la\necho done", "timeout": 5.0})]


def test_several_calls_keep_their_order():
    calls = parse_tool_calls(
        xml("terminal", command="ls") + "\n" + xml("terminal_output") + "\n" + xml("finish")
    )
    assert [call.name for call in calls] == ["terminal", "terminal_output", "finish"]


def test_no_call_is_an_empty_list():
    assert parse_tool_calls("All done.") == []


def test_keys_may_be_a_json_list_or_one_text():
    assert parse_tool_calls(xml("terminal_input", keys='["q", "Enter"]'))[0].arguments == {
        "keys": ["q", "Enter"]
    }
    assert parse_tool_calls(xml("terminal_input", keys="C-c"))[0].arguments == {"keys": ["C-c"]}


def test_a_value_may_hold_the_markup_itself():
    command = "echo '</parameter>' '<parameter=x>' '</function>' '</tool_call>'\ncat <<E\n</parameter>\nE"
    call = ToolCall(name="terminal", arguments={"command": command, "timeout": 3.0})
    assert parse_tool_calls(format_tool_call(call)) == [call]


def test_leading_blanks_of_a_command_stay():
    command = "  indented\n\n    more  "
    assert parse_tool_calls(xml("terminal", command=command))[0].arguments["command"] == command


def test_calls_in_a_think_block_are_not_run():
    text = f"Maybe {xml('terminal', command='rm x')}\n</think>\n\n{xml('finish')}"
    assert [call.name for call in parse_tool_calls(text, thinking=True)] == ["finish"]
    assert [call.name for call in parse_tool_calls("<think>\n" + text)] == ["finish"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<tool_call>\n<function=terminal>\n<parameter=command>\nls", "malformed <tool_call>"),
        ("<tool_call>\n</tool_call>", "malformed <tool_call>"),
        ("<function=finish>\n</function>", "inside <tool_call>"),
        (xml("shell", command="ls"), "unknown function 'shell'"),
        (xml("terminal"), "needs the parameter 'command'"),
        (xml("terminal", command="ls", cwd="/"), "no parameter 'cwd'"),
        (xml("terminal", command="ls", timeout="soon"), "timeout must be a number"),
        (xml("terminal", command="ls", timeout="-1"), "timeout must be a number"),
        (xml("terminal", command="ls", timeout="inf"), "timeout must be a number"),
        (xml("terminal_input", keys="[1, 2]"), "JSON list of strings"),
        ("<tool_call>\n<function=terminal>\nls\n</function>\n</tool_call>", "expected only <parameter=NAME>"),
    ],
)
def test_malformed_calls_say_what_is_wrong_in_one_line(text, message):
    with pytest.raises(ToolCallError, match=message) as error:
        parse_tool_calls(text)
    assert "\n" not in str(error.value)


@given(
    st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), min_size=1).filter(str.strip),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
)
def test_formatting_and_parsing_are_inverse(command, keys):
    for call in (
        ToolCall(name="terminal", arguments={"command": command, "timeout": 2.5}),
        ToolCall(name="terminal_input", arguments={"keys": keys}),
    ):
        if "<" not in "".join(keys) or call.name == "terminal":
            assert parse_tool_calls(format_tool_call(call)) == [call]


@given(st.text(alphabet="<>/=abtool_calfunction parameter\n", max_size=80))
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(ToolCallError):
        parse_tool_calls(text)


def test_only_the_tools_on_offer_are_known():
    names = ("terminal", "finish")
    assert [tool["function"]["name"] for tool in offered(("finish", "terminal"))] == list(names)
    assert parse_tool_calls(xml("finish"), tools=names) == [ToolCall(name="finish")]
    with pytest.raises(
        ToolCallError, match="unknown function 'terminal_output', expected one of terminal, finish"
    ):
        parse_tool_calls(xml("terminal_output"), tools=names)
    for wrong in (("terminal", "shell"), ()):
        with pytest.raises(InputError, match="tools: "):
            offered(wrong)


def test_schemas_are_complete_and_short():
    for tool in TOOLS:
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert len(tool["function"]["description"]) < 60


@pytest.mark.parametrize(
    ("output", "code", "status", "text"),
    [
        ("a\n", 0, "ok", "a"),
        ("", 0, "ok", "(no output)"),
        ("oops\n", 2, "ok", "oops\n[exit 2]"),
        ("", 127, "ok", "[exit 127]"),
        ("a", None, "timeout", "a\n[timeout]"),
        ("> ", None, "running", "> \n[running]"),
        ("", 1, "shell_restarted", "[shell restarted]"),
        ("", None, "dead", "[terminal is dead]"),
    ],
)
def test_observations_are_terse(output, code, status, text):
    result = TerminalResult(output=output, exit_code=code, status=status, seconds=0.1)
    assert observation_text(result) == text


def test_a_limit_is_told():
    hit = TerminalResult(output="a\n", exit_code=137, status="ok", seconds=0.1, limit="memory limit reached")
    assert observation_text(hit) == "a\n[memory limit reached]\n[exit 137]"
