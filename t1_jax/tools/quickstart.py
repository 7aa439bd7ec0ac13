"""The whole recipe at toy size on a CPU: tasks, demonstrations, SFT, RL with replay, evaluation, report.

Every stage is a command of its own (`launch.py tasks build`, `sft`, `rl`, ...) run as a process, with its
resolved config in the run folder: what the quick start does can be done by hand, a stage's memory is given
back when it ends, and a finished stage is not run again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from sandbox.errors import InputError
from sandbox.files import write_json
from t1_jax.config import save_config, to_dict
from t1_jax.model.config import ModelConfig
from t1_jax.train.rollout_client import EngineClient

LAUNCH = Path(__file__).resolve().parents[2] / "launch.py"
STAGES = ("base", "sft", "rl")  # of the policy
# Added to the seed for each set of tasks or notes after the first.
_RL_SEED, _EVAL_SEED, _HELD_OUT_SEED, _REVIEW_SEED = 1_000_003, 2_000_003, 3_000_003, 4_000_003


@dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """The quick start. Sections configure the commands of their name, less the paths."""

    out: Path
    seed: int = 0
    model: ModelConfig
    train_tasks: int = 640  # to demonstrate, for SFT: short ones
    long_tasks: int = 80  # to demonstrate too, as long as those of RL and of the evaluation
    rl_tasks: int = 640  # to practise on: tasks that SFT has solved already leave little to learn
    eval_tasks: int = 160
    held_out_tasks: int = 32
    short_size: int = 3  # how many things a short task asks for
    long_size: int = 4
    notes: int = 8000  # short documents that the base model is pretrained on
    review_notes: int = 1000  # more of them among the demonstrations, so that SFT forgets nothing
    families: tuple[str, ...] | None = None  # of training tasks; null: all but the held-out ones
    jobs: int = 8  # sandboxes at a time
    recovery_fraction: float = 0.25  # of the demonstrations recover from a mistake
    mismatch_trajectories: int = 64
    backend: str = "bubblewrap"
    system_prompt: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    serve: dict[str, Any] = field(default_factory=dict)
    pretrain: dict[str, Any] = field(default_factory=dict)
    sft: dict[str, Any] = field(default_factory=dict)
    rl: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = (
            "train_tasks",
            "long_tasks",
            "rl_tasks",
            "eval_tasks",
            "held_out_tasks",
            "notes",
            "review_notes",
            "jobs",
        )
        for name in (*counts, "mismatch_trajectories"):
            if getattr(self, name) < 1:
                raise InputError(f"quickstart.{name} is {getattr(self, name)}, expected 1 or more")


class StageFailed(Exception):
    """A stage's process ended with an error, which it has printed itself."""

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(f"{stage} ended with exit code {code}")
        self.code = code


def run(config: QuickstartConfig) -> dict[str, Any]:
    """Run what is not done yet of the recipe and return the summary.

    Raises InputError for an output folder of another config, StageFailed when a stage fails,
    KeyboardInterrupt when interrupted: the same call then goes on where it stopped.
    """
    return _Run(config).all()


class _Run:
    """One run folder and the stages over it."""

    def __init__(self, config: QuickstartConfig) -> None:
        self.config, self.out = config, config.out.absolute()
        self._claim()
        self.console = Console(highlight=False)
        self.seconds: dict[str, float] = self._state().get("seconds", {})
        # Shapes compiled by one stage are reused by the next one, and by a run that goes on.
        self.environment = {
            **os.environ,
            "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
            "JAX_COMPILATION_CACHE_DIR": str(self.out / "cache"),
            # XLA allocates its buffers anew in each call; glibc would give them back to the kernel every time
            # (a training step took 1.3 times as long).
            "MALLOC_MMAP_THRESHOLD_": "4000000000",
            "MALLOC_TRIM_THRESHOLD_": "4000000000",
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
        }

    def _claim(self) -> None:
        """Take the folder, or find that it belongs to a run of the same config."""
        path = self.out / "config.yaml"
        wanted = {**to_dict(self.config), "out": str(self.out)}
        if path.is_file():
            found = yaml.safe_load(path.read_text())
            for name in wanted:
                if found.get(name) != wanted[name]:
                    raise InputError(
                        f"{self.out} holds a run of another {name}; expected the same config or another --out"
                    )
        else:
            save_config({**wanted}, path)

    # -- stages ------------------------------------------------------------------------------------

    def all(self) -> dict[str, Any]:
        out = self.out
        self._stage("tasks", self._tasks, out / "tasks" / "checked.json")
        self._stage("tokenizer", self._tokenizer, out / "tokenizer" / "tokenizer.json")
        self._stage("demonstrations", self._demonstrations, out / "demonstrations.frames")
        self._stage("base model", self._base, out / "base" / "checkpoint")
        self._stage("sft", self._sft, out / "sft" / "checkpoint")
        results = [out / "eval" / f"{stage}.json" for stage in STAGES]
        if not all(path.is_file() for path in results) or not (out / "rl" / "checkpoint").is_dir():
            with self._engine() as url:
                self._stage("eval base", lambda: self._eval("base", url), results[0])
                self._stage("eval sft", lambda: self._eval("sft", url), results[1])
                self._stage("rl", lambda: self._rl(url), out / "rl" / "checkpoint")
                self._stage("eval rl", lambda: self._eval("rl", url), results[2])
        self._stage("mismatch", self._mismatch, out / "mismatch.json")
        started = time.monotonic()
        summary = self._summary()
        write_json(out / "summary.json", summary)
        self._launch("report", "--run", out)
        self.console.print(f"report: {out / 'report.html'}  ({time.monotonic() - started:.0f} s)")
        return summary

    def _stage(self, name: str, work: Any, result: Path) -> None:
        """Run a stage unless its result is there. Time spent in interrupted attempts counts too."""
        if result.exists():
            self.console.print(f"[dim]{name}: done[/dim]")
            return
        self.console.rule(f"[bold]{name}", align="left")
        started = time.monotonic()
        try:
            work()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
            write_json(self.out / "state.json", {"seconds": self.seconds})

    def _tasks(self) -> None:
        """Build the sets, none with a task of another, check every task in the sandbox, and keep those that
        pass.
        """
        config, folder = self.config, self.out / "tasks"
        short, long = config.short_size, config.long_size
        # Set -> (tasks, size) of its parts, seed, families.
        sets: dict[str, tuple[list[tuple[int, int]], int, list[str]]] = {
            "train": ([(config.train_tasks, short), (config.long_tasks, long)], 0, self._families()),
            "rl": ([(config.rl_tasks, long)], _RL_SEED, self._families()),
            "eval": ([(config.eval_tasks, long)], _EVAL_SEED, self._families()),
            "held_out": ([(config.held_out_tasks, long)], _HELD_OUT_SEED, ["--held-out"]),
        }
        counts: dict[str, int] = {}
        for name, (parts, seed, more) in sets.items():
            others = [word for other in counts for word in ("--exclude", folder / other)]
            shutil.rmtree(folder / name, ignore_errors=True)
            for count, size in parts:
                self._launch(
                    "tasks", "build", "--drills", "--out", folder / name, "--count", count, "--size", size,
                    "--seed", config.seed + seed, *others, *more,
                )  # fmt: skip
            self._launch(
                "tasks", "check", folder / name, "--backend", config.backend, "--jobs", config.jobs,
                "--out", folder / f"{name}.jsonl", "--remove-failed",
            )  # fmt: skip
            counts[name] = len(list((folder / name).glob("*/task.toml")))
        both = folder / "evaluation"
        shutil.rmtree(both, ignore_errors=True)
        both.mkdir()
        for name in ("eval", "held_out"):
            for task in sorted((folder / name).iterdir()):
                shutil.copytree(task, both / task.name)
        write_json(folder / "checked.json", counts)

    def _tokenizer(self) -> None:
        self._launch(
            "tasks", "tokenizer", self.out / "tasks" / "train", self.out / "tasks" / "rl",
            "--out", self.out / "tokenizer",
            "--vocab-size", self.config.model.vocab_size, *self._prompt(),
        )  # fmt: skip

    def _demonstrations(self) -> None:
        limits = [word for key, value in self.config.limits.items() for word in (f"--limits.{key}", value)]
        self._launch(
            "tasks", "demonstrate", self.out / "tasks" / "train", "--chat", self.out / "tokenizer",
            "--out", self.out / "demonstrations.frames", "--seed", self.config.seed,
            "--jobs", self.config.jobs, "--backend", self.config.backend,
            "--recovery-fraction", self.config.recovery_fraction,
            *self._prompt(), *limits,
        )  # fmt: skip

    def _base(self) -> None:
        """Pretrain on notes: what a base model has read before it learns to act."""
        config = self.config
        notes = self._notes("notes", config.notes, config.seed)
        path = self._write("base", {
            "out": self.out / "base", "data": [notes], "seed": config.seed, "model": to_dict(config.model),
            "tokenizer": self.out / "tokenizer", "replay": False, **config.pretrain,
        })  # fmt: skip
        self._launch("sft", "--config", path)

    def _notes(self, name: str, count: int, seed: int) -> Path:
        path = self.out / f"{name}.frames"
        self._launch(
            "tasks", "notes", "--chat", self.out / "tokenizer", "--out", path,
            "--count", count, "--seed", seed, *self._families(),
        )  # fmt: skip
        return path

    def _sft(self) -> None:
        """Demonstrations, with notes among them: on demonstrations alone the model forgets in a hundred steps
        what it has read.
        """
        review = self._notes("review", self.config.review_notes, self.config.seed + _REVIEW_SEED)
        path = self._write("sft", {
            "out": self.out / "sft", "data": [self.out / "demonstrations.frames", review],
            "seed": self.config.seed, "checkpoint": self.out / "base" / "checkpoint", **self.config.sft,
        })  # fmt: skip
        self._launch("sft", "--config", path)

    def _eval(self, stage: str, engine: str) -> None:
        """Play the evaluation tasks with a stage's policy, at the training temperature."""
        checkpoint = self.out / stage / "checkpoint"
        meta = json.loads((checkpoint / "t1.json").read_text())
        EngineClient(engine).publish(checkpoint, meta["version"])
        folder = self.out / "eval"
        path = self._write(f"eval_{stage}", {
            "tasks": self.out / "tasks" / "evaluation", "agent": "model", "engine_url": engine,
            "checkpoint": checkpoint, "backend": self.config.backend, "seed": self.config.seed,
            "limits": self.config.limits, **self._system_prompt(), "record_routes": True,
            "trajectories_out": folder / f"{stage}.frames", "out": folder / f"{stage}.json",
            **self.config.eval,
        })  # fmt: skip
        folder.mkdir(exist_ok=True)
        self._launch("eval", "--config", path)

    def _rl(self, engine: str) -> None:
        service = self._write("rollout", {
            "checkpoint": self.out / "sft" / "checkpoint", "engine_url": engine, "port": 0,
            "store": self.out / "rl" / "rollouts.sqlite", "backend": self.config.backend,
            "limits": self.config.limits, **self._system_prompt(),
            "concurrency": self.config.serve.get("slots", 64),
        })  # fmt: skip
        (self.out / "rl").mkdir(exist_ok=True)
        with self._server("rollout", "--config", service) as url:
            path = self._write("rl", {
                "out": self.out / "rl", "checkpoint": self.out / "sft" / "checkpoint",
                "seed": self.config.seed, "tasks": self.out / "tasks" / "rl",
                "rollout_url": url, "engine_url": engine, **self.config.rl,
            })  # fmt: skip
            self._launch("rl", "--config", path)

    def _mismatch(self) -> None:
        self._launch(
            "mismatch", "--run", self.out, "--limit", self.config.mismatch_trajectories,
            "--out", self.out / "mismatch.json",
        )  # fmt: skip

    def _summary(self) -> dict[str, Any]:
        """DESIGN's summary: scores by stage, their paired difference, mismatch and seconds by stage."""
        results = {stage: json.loads((self.out / "eval" / f"{stage}.json").read_text()) for stage in STAGES}
        self._launch(
            "eval", "compare", self.out / "eval" / "sft.json", self.out / "eval" / "rl.json",
            "--out", self.out / "eval" / "rl_minus_sft.json",
        )  # fmt: skip
        compared = json.loads((self.out / "eval" / "rl_minus_sft.json").read_text())
        held_out = {path.name.rsplit("-", 1)[0] for path in (self.out / "tasks" / "held_out").iterdir()}
        scores: dict[str, Any] = {
            stage: {
                "mean_reward": result["mean_reward"], "ci95": result["mean_reward_ci95"],
                "solved": result["solved"], "solved_ci95": result["solved_ci95"],
                "by_family": result["by_family"], "rounds": result["rounds"],
                "format_error_rate": result["format_error_rate"],
            }
            for stage, result in results.items()
        }  # fmt: skip
        scores["rl_minus_sft"] = compared["difference"]
        return {
            "seed": self.config.seed,
            "scores": scores,
            "mismatch": json.loads((self.out / "mismatch.json").read_text()),
            "held_out_families": sorted(held_out),
            "tasks": json.loads((self.out / "tasks" / "checked.json").read_text()),
            "seconds": {**self.seconds, "total": sum(self.seconds.values())},
        }

    # -- processes ---------------------------------------------------------------------------------

    @contextmanager
    def _engine(self) -> Iterator[str]:
        path = self._write("serve", {
            "checkpoint": self.out / "base" / "checkpoint", "port": 0, **self.config.serve,
        })  # fmt: skip
        with self._server("serve", "--config", path) as url:
            yield url

    def _launch(self, *words: Any) -> None:
        """Run a command to its end. An interrupt reaches it too, and it is awaited."""
        process = subprocess.Popen(_command(words), env=self.environment)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
        if code in (130, -signal.SIGINT):
            raise KeyboardInterrupt
        if code:
            raise StageFailed(" ".join(map(str, words[:2])), code)

    @contextmanager
    def _server(self, *words: Any) -> Iterator[str]:
        """Run a server beside the block; yields its URL once it listens. Its output goes to a log.

        It gets a session of its own: an interrupt ends the client first, and the server when the block ends.
        """
        name = str(words[0])
        log = self.out / f"{name}.log"
        with ExitStack() as stack:
            sink = stack.enter_context(log.open("a"))
            process = subprocess.Popen(
                _command(words), env=self.environment, start_new_session=True, text=True,
                stdout=subprocess.PIPE, stderr=sink,
            )  # fmt: skip
            stack.callback(_terminate, process)
            assert process.stdout is not None
            for line in process.stdout:
                sink.write(line)
                sink.flush()
                if "listening on " in line:
                    yield line.rsplit("listening on ", 1)[1].strip()
                    return
            tail = log.read_text().strip().splitlines()[-1:] or [f"no output, see {log}"]
            raise InputError(f"{name} did not start: {tail[0]}")

    # -- files -------------------------------------------------------------------------------------

    def _write(self, name: str, values: dict[str, Any]) -> Path:
        """Write a stage's config into the run folder."""
        path = self.out / "configs" / f"{name}.yaml"
        save_config(values, path)
        return path

    def _state(self) -> dict[str, Any]:
        path = self.out / "state.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def _system_prompt(self) -> dict[str, str]:
        return {"system_prompt": self.config.system_prompt} if self.config.system_prompt else {}

    def _families(self) -> list[str]:
        return ["--families", ",".join(self.config.families)] if self.config.families else []

    def _prompt(self) -> list[str]:
        return ["--system-prompt", self.config.system_prompt] if self.config.system_prompt else []


def _command(words: Sequence[Any]) -> list[str]:
    return [sys.executable, str(LAUNCH), *map(str, words)]


def _terminate(process: subprocess.Popen[str]) -> None:
    """End a server; it gets half a minute to do so cleanly."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
