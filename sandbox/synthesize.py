"""`tasks synthesize`: a model writes tasks; those enter that pass the checks which every task here passes."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from sandbox.backends.base import Backend
from sandbox.chat_client import ChatAnswer, ChatClient
from sandbox.check import check_task
from sandbox.demonstrate import load_actions, run_all
from sandbox.errors import InputError
from sandbox.factory import base, render
from sandbox.factory.duplicates import Seen
from sandbox.policy import PolicyError
from sandbox.task import Task, load_tasks

PROMPT = """\
Write one task for a terminal agent: something that a Linux user really does, in the area "{area}", at
difficulty {difficulty} of 5 (about {steps} shell commands). Answer with one JSON object and nothing else,
with the keys

name: a few words in lower case with hyphens
skills: list of words
instruction: what to do, complete and unambiguous; names every file to be written; does not say how
files: object, path relative to /app -> text: what is there before
tests: Python source with at least three functions test_...() without arguments, which look at independent
  requirements with assert; none of them passes before the work is done, or with a file of junk; at least one,
  named test_hidden_..., runs what the agent made on data that only the test knows. Standard library only,
  absolute paths, no network
solution: list of shell commands, run one after the other by bash in /app, after which every test passes
lazy: list of shell commands of an answer that is right for the given files only; test_hidden_... must fail
  on it

The environment is Debian with bash, coreutils, grep, sed, awk, tar, gzip and python3, without a network.
"""
REPAIR = """\
The task was refused:
{problems}
Answer with the whole corrected JSON object."""

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n```", re.DOTALL)
_NAME = re.compile(r"[a-z][a-z0-9-]{2,60}")
_MIN_TESTS = 3
_TOO_MANY = 4  # drafts for each task that is wanted


class _Refused(Exception):
    """Why a draft is no task: a word, a colon, and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Draft(base.Instance):
    """A task as a model wrote it."""

    image: ClassVar[str] = "debian:bookworm-slim"
    agent_timeout: ClassVar[float] = 900.0
    memory_mb: ClassVar[int] = 1024

    name: str
    skills: tuple[str, ...]
    source: str

    @property
    def tests(self) -> tuple[str, ...]:
        return _test_names(self.source)

    @property
    def test_files(self) -> dict[str, str]:
        return {"test_outputs.py": self.source}


@dataclass(frozen=True, kw_only=True)
class SynthesizeReport:
    """Names of the tasks that entered, drafts asked for, and refused drafts by reason."""

    accepted: list[str]
    drafts: int
    refused: dict[str, int]


def parse_draft(text: str, difficulty: int) -> Draft:
    """Read a model's answer. Raises _Refused ("answer: ...") for what is not of the form that PROMPT asks."""
    text = text.rpartition("</think>")[2]
    fenced = _FENCE.search(text)
    try:
        values = json.loads(fenced[1] if fenced else text)
    except ValueError as error:
        raise _Refused(f"answer: not JSON ({error})") from None
    if not isinstance(values, dict):
        raise _Refused("answer: expected one JSON object")

    def of(key: str, kind: type, items: type | None = None) -> Any:
        value = values.get(key)
        inner: Any = value.values() if isinstance(value, dict) else value
        if (
            not isinstance(value, kind)
            or not value
            or (items and not all(isinstance(i, items) for i in inner))
        ):
            raise _Refused(f"answer: {key} is missing, empty or not of the form asked for")
        return value

    if not _NAME.fullmatch(of("name", str)):
        raise _Refused("answer: name must be lower-case words with hyphens")
    files = of("files", dict, str) if values.get("files") else {}
    for path in files:
        if path.startswith("/") or ".." in PurePosixPath(path).parts or not PurePosixPath(path).name:
            raise _Refused(f"answer: files has the path {path!r}, expected one below /app")
    draft = Draft(
        name=values["name"],
        skills=tuple(of("skills", list, str)),
        instruction=of("instruction", str).strip(),
        files=files,
        steps=tuple(of("solution", list, str)),
        lazy=tuple(of("lazy", list, str)),
        difficulty=difficulty,
        source=of("tests", str),
    )
    if len(draft.tests) < _MIN_TESTS or not any(name.startswith("test_hidden") for name in draft.tests):
        raise _Refused(f"answer: tests must have {_MIN_TESTS} test_ functions, one of them test_hidden_...")
    if "canary" in text.lower():
        raise _Refused("answer: carries a canary, so it is somebody else's text")
    return draft


def _test_names(source: str) -> tuple[str, ...]:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise _Refused(f"answer: tests are not Python ({error})") from None
    return tuple(
        node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def synthesize(
    client: ChatClient,
    backend: Backend,
    out: Path,
    count: int,
    *,
    areas: Sequence[str],
    seed: int = 0,
    jobs: int = 4,
    repairs: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 8192,
) -> SynthesizeReport:
    """Have a model write `count` tasks into `out`; a folder enters only when `check_task` finds nothing.

    Areas and difficulties are drawn from the seed. A draft that is refused is shown its problems `repairs`
    times. Tasks that are in `out` already count as seen: a near duplicate of one is refused. Ends after
    4 * count drafts. Raises InputError when none was accepted.
    """
    if count < 1 or jobs < 1 or not areas:
        raise InputError(f"tasks synthesize: count {count}, jobs {jobs}, expected at least 1 and an area")
    return asyncio.run(
        _Workshop(client, backend, out, count, areas, seed, repairs, temperature, max_tokens).run(jobs)
    )


class _Workshop:
    """The state of one run."""

    def __init__(
        self, client: ChatClient, backend: Backend, out: Path, count: int, areas: Sequence[str], seed: int,
        repairs: int, temperature: float, max_tokens: int,
    ) -> None:  # fmt: skip
        self._client, self._backend, self._out, self._count = client, backend, out, count
        self._areas, self._seed, self._repairs = areas, seed, repairs
        self._temperature, self._max_tokens = temperature, max_tokens
        self._accepted: list[str] = []
        self._refused: Counter[str] = Counter()
        self._drafts = 0
        self._seen = Seen()
        if any(out.glob("*/task.toml")):
            for task in load_tasks(out):
                calls = load_actions(task.path / "solution" / "steps.jsonl")
                self._seen.refuse(task.instruction, [call.arguments.get("command", "") for call in calls])

    async def run(self, jobs: int) -> SynthesizeReport:
        self._out.mkdir(parents=True, exist_ok=True)
        async with self._client:
            await run_all(self._work() for _ in range(jobs))
        if not self._accepted:
            reasons = ", ".join(f"{reason} {n}" for reason, n in self._refused.most_common()) or "no draft"
            raise InputError(f"tasks synthesize: no task of {self._drafts} drafts was accepted ({reasons})")
        return SynthesizeReport(
            accepted=sorted(self._accepted), drafts=self._drafts, refused=dict(self._refused.most_common())
        )

    async def _work(self) -> None:
        while len(self._accepted) < self._count and self._drafts < _TOO_MANY * self._count:
            self._drafts += 1
            await self._one(self._drafts)

    async def _one(self, number: int) -> None:
        """One draft with its repairs."""
        rng = random.Random(f"{self._seed}/{number}")
        area, difficulty = rng.choice(list(self._areas)), rng.randint(1, 5)
        prompt = PROMPT.format(area=area, difficulty=difficulty, steps=3 * 2**difficulty // 2)
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        for _ in range(self._repairs + 1):
            try:
                answer: ChatAnswer = await self._client.complete(
                    messages,
                    max_tokens=self._max_tokens,
                    temperature=self._temperature,
                    seed=rng.randrange(2**31),
                )
            except PolicyError:
                self._refused["engine"] += 1
                return
            problems = await self._admit(answer.content, area, difficulty, number)
            if not problems:
                return
            self._refused.update({problem.partition(":")[0] for problem in problems})
            listed = "\n".join(f"- {problem}" for problem in problems)
            messages += [
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": REPAIR.format(problems=listed)},
            ]

    async def _admit(self, text: str, area: str, difficulty: int, number: int) -> list[str]:
        """Check an answer; its folder enters `out` when there is no problem."""
        try:
            draft = parse_draft(text, difficulty)
        except _Refused as refused:
            return [str(refused)]
        name = f"{draft.name}-{self._seed}-{number}"
        family = base.Family(name=f"synthesized-{draft.name}", area=area, skills=draft.skills)
        # Beside the tasks, so that entering is a rename; hidden, so that nobody reads it as one of them.
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=self._out) as workplace:
            folder = Path(workplace) / name
            render.write(folder, render.folder_files(family, draft, self._seed))
            line = await check_task(Task.load(folder), self._backend)
            if line["problems"]:
                return line["problems"]
            if len(self._accepted) >= self._count:
                return []
            if reason := self._seen.refuse(draft.instruction, draft.steps):
                return [f"{reason}: a task of this set, expected another"]
            shutil.move(folder, self._out / name)
        self._accepted.append(name)
        return []
