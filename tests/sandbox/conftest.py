"""A small tokenizer, a real task, and servers that play a script: in SGLang's form, and in OpenAI's."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from sandbox.tools import ToolCall, format_tool_call
from sandbox.transcript import ChatFormat

LAYERS, TOP_K, EXPERTS = 3, 2, 16
CORPUS = [
    "write the text hello to the file out.txt and list the folder /app",
    "cat notes.txt error no such file",
] * 40


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from t1_jax.data.tokenizer import train_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(CORPUS, 400, folder)
    return folder


@pytest.fixture(scope="session")
def chat(tokenizer_dir: Path) -> ChatFormat:
    return ChatFormat.load(tokenizer_dir)


@pytest.fixture
def write_task(tmp_path: Path):
    """A function that writes a task (hello in out.txt, and done.txt) and returns its folder."""

    def write(name: str = "hello", *, agent_timeout: float = 60.0) -> Path:
        folder = tmp_path / "tasks" / name
        for part in ("tests", "solution", "environment/files"):
            (folder / part).mkdir(parents=True)
        (folder / "task.toml").write_text(
            'schema_version = "1.1"\n[metadata]\nfamily = "write"\ndifficulty = 1\n'
            'tests = ["test_out", "test_done"]\n'
            f"[agent]\ntimeout_sec = {agent_timeout}\n[verifier]\ntimeout_sec = 30.0\n"
            '[environment]\nworkdir = "/app"\n'
        )
        (folder / "instruction.md").write_text("Write hello to out.txt, then create done.txt.")
        (folder / "environment/Dockerfile").write_text(
            "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"
        )
        (folder / "environment/files/notes.txt").write_text("notes\n")
        (folder / "tests/test.sh").write_text(
            "#!/bin/bash\nout=failed; done=failed\n"
            '[ "$(cat /app/out.txt 2>/dev/null)" = hello ] && out=passed\n'
            "[ -e /app/done.txt ] && done=passed\n"
            "mkdir -p /logs/verifier\n"
            'printf \'{"results": {"tool": {"name": "sh"}, "summary": {}, "tests": ['
            '{"name": "test_out", "status": "%s",'
            ' "duration": 1}, {"name": "test_done", "status": "%s", "duration": 1}]}}\' $out $done'
            " > /logs/verifier/ctrf.json\necho 0 > /logs/verifier/reward.txt\n"
        )
        (folder / "solution/solve.sh").write_text("echo hello > out.txt\ntouch done.txt\n")
        (folder / "solution/steps.jsonl").write_text(
            '{"tool": "terminal", "arguments": {"command": "cat notes.txt"}}\n'
            '{"tool": "terminal", "arguments": {"command": "echo hello > out.txt"}}\n'
            '{"tool": "terminal", "arguments": {"command": "touch done.txt"}}\n'
        )
        return folder

    return write


@pytest.fixture
def run_text():
    """A function: the text of an assistant turn that runs a command."""
    return lambda command, **more: format_tool_call(
        ToolCall(name="terminal", arguments={"command": command, **more})
    )


def expected_routes(tokens: list[int]) -> np.ndarray:
    """uint8 [T, L, K]: what the scripted engine records, a function of each token and its position."""
    rows = [
        [[(7 * i + 3 * t + layer + 5 * k) % EXPERTS for k in range(TOP_K)] for layer in range(LAYERS)]
        for i, t in enumerate(tokens)
    ]
    return np.asarray(rows, np.uint8).reshape(-1, LAYERS, TOP_K)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The folder of a running PostgreSQL server's socket."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = str(programs[-1]) if programs else shutil.which("initdb")
    if not found:
        pytest.skip("needs PostgreSQL's server programs: apt-get install postgresql (.ci/run does so)")
    # The server refuses to run as root; pytest's own folders are closed to other users.
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="t1-pg-") as folder:
        if user:
            shutil.chown(folder, user)
        data, bin_ = f"{folder}/data", Path(found).parent
        options = {"user": user, "cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
        initdb = [found, "-D", data, "-U", "t1", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run(initdb, **options)
        settings = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        control = [str(bin_ / "pg_ctl"), "-D", data, "-w"]
        subprocess.run([*control, "-l", f"{folder}/log", "-o", settings, "start"], **options)
        yield folder
        subprocess.run([*control, "-m", "immediate", "stop"], **options)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a store with nothing in it."""
    import psycopg

    url, schema = f"postgresql:///postgres?host={postgres_server}&user=t1", f"s{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{url}&options=-csearch_path%3D{schema}"


class ScriptedEngine:
    """Answers /generate with the script's turn that the request id names; says in `requests` what it was
    asked.

    `statuses` are answered first, one a request; `version` stamps the first half of a turn and `version + 1`
    the rest; `change` may alter an answer before it is sent.
    """

    expected_routes = staticmethod(expected_routes)

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self.script: list[str] = []
        self.requests: list[dict] = []
        self.aborted: list[str] = []
        self.statuses: list[int] = []
        self.version = 4
        self.max_length = 100_000
        self.change = lambda answer: answer
        self.gate = None  # an asyncio.Event that answers wait for
        self.bare = False  # routes as SGLang sends them
        self.model_path = ""
        self.url = ""

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        if self.statuses:
            return web.Response(status=self.statuses.pop(0))
        if len(body["input_ids"]) > self.max_length:
            return web.json_response({"error": {"type": "context_length_exceeded"}}, status=400)
        if self.gate is not None:
            await self.gate.wait()
        turn = int(body["rid"].rpartition(":")[2])
        text = self.script[turn] if turn < len(self.script) else format_tool_call(ToolCall(name="finish"))
        limit = body["sampling_params"]["max_new_tokens"]
        full = self.chat.assistant_ids(text)
        ids = full[:limit]
        meta = {
            "finish_reason": {"type": "stop" if len(ids) == len(full) else "length"},
            "output_token_logprobs": [[-0.25 * (i % 4), t, None] for i, t in enumerate(ids)],
            "weight_versions": [
                {"version": str(self.version), "start": 0, "end": len(ids) // 2},
                {"version": str(self.version + 1), "start": len(ids) // 2, "end": len(ids)},
            ],
        }
        if body.get("return_routed_experts"):
            tokens = body["input_ids"] + ids
            rows = expected_routes(tokens)[body["routed_experts_start_len"] : len(tokens) - 1]
            if self.bare:
                meta["routed_experts"] = base64.b64encode(rows.astype("<i4").tobytes()).decode()
            else:
                meta["routed_experts"] = base64.b64encode(rows.tobytes()).decode()
                meta |= {"routed_experts_dtype": "uint8", "routed_experts_shape": list(rows.shape)}
        return web.json_response(self.change({"output_ids": ids, "meta_info": meta}))

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        return web.Response()

    async def info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": self.model_path, "weight_version": str(self.version)})


@pytest.fixture
async def engine(chat: ChatFormat, tokenizer_dir: Path) -> AsyncIterator[ScriptedEngine]:
    scripted = ScriptedEngine(chat)
    scripted.model_path = str(tokenizer_dir)
    app = web.Application(client_max_size=1 << 24)
    app.add_routes(
        [
            web.post("/generate", scripted.generate),
            web.post("/abort_request", scripted.abort),
            web.get("/get_model_info", scripted.info),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


class ScriptedChat:
    """Answers with the script's message number n where the conversation holds n assistant messages."""

    def __init__(self) -> None:
        self.script: list[dict] = []
        self.requests: list[dict] = []
        self.failures: list[int] = []
        self.url = ""
        self.finish_reason = "stop"
        self.keys: set[str | None] = set()

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.keys.add(request.headers.get("Authorization"))
        if self.failures:
            status = self.failures.pop(0)
            return web.json_response({"error": {"code": "context_length_exceeded"}}, status=status)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        message = self.script[turn] if turn < len(self.script) else {"content": "Done."}
        return web.json_response(
            {
                "choices": [
                    {"message": {"role": "assistant", **message}, "finish_reason": self.finish_reason}
                ],
                "usage": {"prompt_tokens": 100 * (turn + 1), "completion_tokens": 7},
            }
        )

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted"}]})


@pytest.fixture
async def chat_server() -> AsyncIterator[ScriptedChat]:
    scripted = ScriptedChat()
    app = web.Application()
    app.add_routes(
        [web.post("/v1/chat/completions", scripted.complete), web.get("/v1/models", scripted.models)]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()
