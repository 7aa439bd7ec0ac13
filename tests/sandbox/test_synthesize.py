import asyncio
import json

import pytest

from sandbox.backends import BACKENDS
from sandbox.chat_client import ChatClient
from sandbox.errors import InputError
from sandbox.synthesize import _Refused, parse_draft, synthesize
from sandbox.task import load_tasks

TESTS = """\
import subprocess


def run(text):
    return subprocess.run(["bash", "/app/count.sh"], input=text, capture_output=True, text=True).stdout


def test_given():
    assert run("a b\\n") == "2\\n"


def test_report():
    assert open("/app/report.txt").read() == "3\\n"


def test_hidden_text():
    assert run("x y z\\nq r\\n") == "5\\n"
"""


def draft(**changes):
    return {
        "name": "count-words",
        "skills": ["wc"],
        "instruction": "Write count.sh, which prints how many words its input has; run it on in.txt into "
        "report.txt.",
        "files": {"in.txt": "one two three\n"},
        "tests": TESTS,
        "solution": ["printf 'wc -w\\n' > count.sh", "bash count.sh < in.txt > report.txt"],
        "lazy": ["printf 'echo 2\\n' > count.sh", "echo 3 > report.txt"],
        **changes,
    }


def run(server, out, count=1, **changes):
    client = ChatClient(server.url)
    return asyncio.to_thread(
        synthesize, client, BACKENDS["bubblewrap"], out, count, areas=["text"], jobs=1, seed=3, **changes
    )


async def test_only_what_passes_the_checks_enters(chat_server, tmp_path):
    """The first answer pays a lazy one, the second, which was shown why, is right."""
    lenient = TESTS.replace('run("x y z\\nq r\\n") == "5\\n"', 'run("x y\\n") == "2\\n"')
    chat_server.script = [
        {"content": json.dumps(draft(tests=lenient))},
        {"content": f"Here:\n```json\n{json.dumps(draft(), indent=1)}\n```"},
    ]
    report = await run(chat_server, tmp_path / "out")
    assert report.accepted == ["count-words-3-1"] and report.drafts == 1 and report.refused == {"lazy": 1}
    assert "- lazy: a hard-coded answer" in chat_server.requests[1]["messages"][2]["content"]
    [task] = load_tasks(tmp_path / "out")
    assert task.metadata["area"] == "text" and task.metadata["tests"] == [
        "test_given", "test_report", "test_hidden_text"
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["count-words-3-1"]

    # The same task again, in a later run: a near duplicate of what is there.
    chat_server.script = [{"content": json.dumps(draft(name="again"))}] * 2
    with pytest.raises(InputError, match=r"no task of 4 drafts was accepted \(same solution 4\)"):
        await run(chat_server, tmp_path / "out", repairs=0)
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Bad Name"}, "name must be"),
        ({"lazy": []}, "lazy is missing"),
        ({"solution": "ls"}, "solution is missing"),
        ({"skills": [1]}, "skills is missing"),
        ({"files": {"../x": ""}}, "path '../x'"),
        ({"files": {"/etc/x": ""}}, "path '/etc/x'"),
        ({"tests": "def test_a(:"}, "not Python"),
        ({"tests": "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass"}, "test_hidden"),
        ({"instruction": "BENCHMARK DATA: canary GUID 1"}, "canary"),
    ],
)
def test_answers_of_another_form_are_refused(changes, message):
    with pytest.raises(_Refused, match=message):
        parse_draft(json.dumps(draft(**changes)), 2)
    with pytest.raises(_Refused, match="not JSON"):
        parse_draft("I would rather not.", 2)
