#!/usr/bin/env python3
"""The one command line of t1-jax: parses, loads a config, dispatches.

`launch.py COMMAND --help` tells a command's options.

Exits with 0 on success, 2 on bad input (one line on stderr names it), 130 when interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from sandbox.errors import InputError
from sandbox.files import require_writable, write_json, write_whole
from t1_jax.config import load_config

ROOT = Path(__file__).resolve().parent
Run = Callable[[argparse.Namespace, list[str]], int | None]


def sft(options: argparse.Namespace, overrides: list[str]) -> int:
    """Supervised fine-tuning on demonstrations."""
    from t1_jax.distributed import initialize
    from t1_jax.train.sft import SFTConfig, run

    initialize()
    config = load_config(SFTConfig, options.config, overrides)
    require_writable(config.out, folder=True)
    return 0 if run(config)["finished"] else 130


def rl(options: argparse.Namespace, overrides: list[str]) -> int:
    """Reinforcement learning against a running engine and rollout service."""
    from t1_jax.train.rl import RLConfig, run

    config = load_config(RLConfig, options.config, overrides)
    require_writable(config.out, folder=True)
    return 0 if run(config)["finished"] else 130


def serve(options: argparse.Namespace, overrides: list[str]) -> None:
    """The JAX engine over HTTP."""
    from t1_jax.engine import ServeConfig
    from t1_jax.engine import serve as run

    run(load_config(ServeConfig, options.config, overrides))


def rollout(options: argparse.Namespace, overrides: list[str]) -> None:
    """The terminal rollout service."""
    from sandbox.service import RolloutConfig
    from sandbox.service import serve as run

    run(load_config(RolloutConfig, options.config, overrides))


def evaluate(options: argparse.Namespace, overrides: list[str]) -> None:
    """Play a folder of tasks with an agent and report rewards with intervals."""
    from sandbox.evaluate import EvalConfig
    from sandbox.evaluate import evaluate as run
    from sandbox.summary_table import print_summary
    from t1_jax.observability.evaluation import write_evaluation

    if overrides[:1] == ["compare"]:
        compare(overrides[1:])
        return
    config = load_config(EvalConfig, options.config, [_field(word) for word in overrides])
    result = run(config)
    print_summary(result)
    if config.out:
        write_evaluation(result, Path(config.out).with_suffix(".html"))
    print(json.dumps({key: result[key] for key in ("mean_reward", "mean_reward_ci95", "solved", "errors")}))


def _field(word: str) -> str:
    """`--engine URL` is the field engine_url, and dashes may stand for a field's underscores."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    name = "--engine_url" if name == "--engine" else "--" + name[2:].replace("-", "_")
    return name + equals + value


def compare(words: Sequence[str]) -> None:
    """`eval compare A.json B.json`: the paired difference B - A."""
    from sandbox.statistics import compare as run
    from t1_jax.observability.evaluation import write_comparison

    parser = _parser("eval compare", "The paired difference of two evaluations, second minus first.")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--out", type=Path, help="JSON; a page with plots is written beside it, as .html")
    options = parser.parse_args(words)
    if options.out:
        require_writable(options.out)
    result = run(options.first, options.second)
    if options.out:
        write_json(options.out, result)
        write_comparison(result, options.first.stem, options.second.stem, options.out.with_suffix(".html"))
    print(json.dumps({key: value for key, value in result.items() if key != "per_task"}, indent=2))


def tasks(options: argparse.Namespace, words: list[str]) -> int | None:
    """Build, import, check and demonstrate tasks: `tasks build | import | check | demonstrate | ...`."""
    commands = {
        "build": tasks_build,
        "import": tasks_import,
        "synthesize": tasks_synthesize,
        "check": tasks_check,
        "tokenizer": tasks_tokenizer,
        "notes": tasks_notes,
        "demonstrate": tasks_demonstrate,
    }
    if not words or words[0] not in commands:
        raise InputError(
            f"tasks: {words[0] if words else 'nothing'!r}, expected one of {', '.join(commands)}"
        )
    return commands[words[0]](words[1:])


def tasks_build(words: Sequence[str]) -> None:
    """Generate task folders from a seed: full-size tasks, or with --drills small ones for a tiny model."""
    from sandbox.factory import build, drills
    from sandbox.factory.drills.base import MAX_SIZE, MIN_SIZE

    parser = _parser("tasks build", tasks_build.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", type=_names, help="comma-separated; default: all")
    parser.add_argument("--areas", type=_names, help="comma-separated; default: all")
    parser.add_argument("--levels", type=_numbers, help="difficulties, comma-separated; default: 1,2,3,4,5")
    parser.add_argument("--drills", action="store_true", help="small tasks; the options below are for them")
    parser.add_argument("--held-out", action="store_true", help="of the families that are never trained on")
    sizes = f"{MIN_SIZE} to {MAX_SIZE}; default: {MIN_SIZE}"
    parser.add_argument("--size", type=int, help=f"how many things each task asks for, {sizes}")
    parser.add_argument("--exclude", type=Path, action="append", help="folder of tasks that none may equal")
    options = parser.parse_args(words)
    wrong = ("areas", "levels") if options.drills else ("held_out", "size", "exclude")
    if given := [name for name in wrong if getattr(options, name)]:
        kind = "full-size tasks, expected no --drills" if options.drills else "drills, expected --drills"
        raise InputError(f"tasks build: --{given[0].replace('_', '-')} is for {kind}")
    require_writable(options.out, folder=True)
    if options.drills:
        size = MIN_SIZE if options.size is None else options.size
        drills.build(
            options.out, options.count, options.seed, options.families, options.held_out,
            options.exclude or (), size,
        )  # fmt: skip
        return
    manifest = build(
        options.out, options.count, options.seed,
        names=options.families, areas=options.areas, levels=options.levels or (1, 2, 3, 4, 5),
    )  # fmt: skip
    print(json.dumps({key: manifest[key] for key in ("count", "refused", "exhausted")}))


def tasks_import(words: Sequence[str]) -> None:
    """Import public tasks: Harbor folders (Terminal-Bench 2 too) as they are, Terminal-Bench 1 converted."""
    from sandbox.importing import import_tasks

    parser = _parser("tasks import", tasks_import.__doc__)
    parser.add_argument("source", type=Path, help="a folder that holds tasks, or one task")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    require_writable(options.out, folder=True)
    report = import_tasks(options.source, options.out)
    print(json.dumps({"imported": len(report.imported), "refused": report.refused}, indent=2))


def tasks_synthesize(words: Sequence[str]) -> None:
    """Have a model behind an OpenAI-compatible URL write tasks; those that pass `tasks check` enter."""
    from sandbox.backends import BACKENDS
    from sandbox.chat_client import ChatClient
    from sandbox.factory import families
    from sandbox.synthesize import synthesize

    parser = _parser("tasks synthesize", tasks_synthesize.__doc__)
    parser.add_argument("--engine", required=True, help="URL; the key is read from OPENAI_API_KEY")
    parser.add_argument("--model", help="default: the first that the URL lists")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", type=_names, help="comma-separated; default: those of the families")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="bubblewrap")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--repairs", type=int, default=1, help="how often a draft is shown its problems")
    options = parser.parse_args(words)
    require_writable(options.out, folder=True)
    backend = BACKENDS[options.backend]
    backend.check()
    report = synthesize(
        ChatClient(options.engine, model=options.model), backend, options.out, options.count,
        areas=options.areas or sorted({family.area for family in families().values()}),
        seed=options.seed, jobs=options.jobs, repairs=options.repairs,
    )  # fmt: skip
    print(json.dumps(vars(report)))


def tasks_check(words: Sequence[str]) -> int:
    """Play every task's solution, nothing and junk in the sandbox; exit code 1 when a task fails."""
    from sandbox.check import check_tasks

    parser = _parser("tasks check", tasks_check.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a task")
    parser.add_argument("--remove-failed", action="store_true", help="delete the folders of tasks that fail")
    options = parser.parse_args(words)
    require_writable(options.out)
    summary = check_tasks(
        options.folder, options.backend, options.jobs, options.out, remove_failed=options.remove_failed
    )
    print(json.dumps({**summary, "failed": len(summary["failed"])}))
    return 1 if summary["failed"] and not options.remove_failed else 0


def tasks_tokenizer(words: Sequence[str]) -> None:
    """Train a tokenizer on the texts of task folders and the prompts made of them."""
    from sandbox.agent import SYSTEM_PROMPT
    from sandbox.factory import corpus, episode_messages
    from sandbox.task import load_tasks
    from sandbox.tools import TOOLS
    from t1_jax.data.tokenizer import render, train_tokenizer

    parser = _parser("tasks tokenizer", tasks_tokenizer.__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--system-prompt", default=SYSTEM_PROMPT)
    options = parser.parse_args(words)
    require_writable(options.out, folder=True)
    paths = [task.path for folder in options.folders for task in load_tasks(folder)]
    episodes = (render(episode_messages(path, options.system_prompt), tools=TOOLS) for path in paths)
    size = train_tokenizer(chain(corpus(paths), episodes), options.vocab_size, options.out)
    print(json.dumps({"tokenizer": str(options.out), "vocabulary": size}))


def tasks_notes(words: Sequence[str]) -> None:
    """Write short notes (what to do, the commands that do it) to pretrain a toy model on."""
    from sandbox.factory.drills.notes import notes, to_trajectory
    from sandbox.trajectory import write_frames
    from sandbox.transcript import ChatFormat

    parser = _parser("tasks notes", tasks_notes.__doc__)
    parser.add_argument("--chat", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", type=_names, help="comma-separated; default: all")
    options = parser.parse_args(words)
    require_writable(options.out)
    chat = ChatFormat.load(options.chat)
    drawn = notes(options.count, options.seed, options.families)
    records = [to_trajectory(f"note-{index}", note, chat) for index, note in enumerate(drawn)]
    write_whole(options.out, write_frames(records))
    print(json.dumps({"notes": len(records), "tokens": sum(len(record.tokens) for record in records)}))


def tasks_demonstrate(words: Sequence[str]) -> None:
    """Play solutions through the agent loop into SFT trajectories, or import recorded conversations."""
    from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits
    from sandbox.backends import BACKENDS
    from sandbox.conversations import import_conversations
    from sandbox.demonstrate import demonstrate
    from sandbox.task import load_tasks
    from sandbox.trajectory import write_frames
    from sandbox.transcript import ChatFormat
    from t1_jax.config import build as build_config
    from t1_jax.config import parse_overrides

    parser = _parser("tasks demonstrate", tasks_demonstrate.__doc__)
    parser.add_argument("folder", type=Path, help="of tasks; or a file of ATIF or chat JSON lines to import")
    parser.add_argument(
        "--chat", type=Path, required=True, help="folder with tokenizer.json and chat_template.jinja"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="bubblewrap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--recovery-fraction", type=float, default=0.25)
    parser.add_argument("--system-prompt", default=SYSTEM_PROMPT)
    options, rest = parser.parse_known_args(words)
    require_writable(options.out)
    overrides = {key.removeprefix("limits."): value for key, value in parse_overrides(rest)}
    limits = build_config(EpisodeLimits, overrides, "command line", "limits.")
    chat = ChatFormat.load(options.chat)
    if options.folder.is_file():
        records, reasons = import_conversations(
            options.folder, chat, system_prompt=options.system_prompt,
            observation_tokens=limits.observation_tokens, max_context=limits.max_context, tools=limits.tools,
        )  # fmt: skip
        write_whole(options.out, write_frames(records))
        tokens = sum(len(record.tokens) for record in records)
        print(json.dumps({"kept": len(records), "tokens": tokens, "left_out": reasons}))
        return
    report = demonstrate(
        load_tasks(options.folder),
        chat,
        BACKENDS[options.backend],
        options.out,
        seed=options.seed,
        recovery_fraction=options.recovery_fraction,
        concurrency=options.jobs,
        limits=limits,
        system_prompt=options.system_prompt,
    )
    print(json.dumps({"kept": report.kept, "recoveries": report.recoveries, "tokens": report.tokens,
                      "left_out": len(report.left_out)}))  # fmt: skip


def init(options: argparse.Namespace, words: list[str]) -> None:
    """Write a checkpoint with freshly drawn parameters."""
    from t1_jax.checkpoint.manager import save_checkpoint
    from t1_jax.model.config import ModelConfig
    from t1_jax.train.loop import initial_params

    parser = _parser("init", init.__doc__)
    parser.add_argument("--model", type=Path, required=True, help="YAML of the model's shape")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    require_writable(options.out, folder=True)
    params, config, _ = initial_params(load_config(ModelConfig, options.model), None, options.seed)
    save_checkpoint(options.out, params, config, tokenizer_dir=options.tokenizer)


def score(options: argparse.Namespace, words: list[str]) -> None:
    """Log-probabilities and experts of given token sequences."""
    from t1_jax.tools.score import score as run

    parser = _parser("score", score.__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True, help="JSON lines")
    parser.add_argument("--out", type=Path, required=True, help=".npz")
    parser.add_argument("--replay", choices=("on", "off"), default="on")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--router-logits", action="store_true")
    options = parser.parse_args(words)
    require_writable(options.out)
    print(json.dumps(run(**vars(options))))


def convert(options: argparse.Namespace, words: list[str]) -> None:
    """Checkpoints between Hugging Face's form and ours (Orbax), both ways, bit for bit."""
    from t1_jax.tools.convert import convert as run

    parser = _parser("convert", convert.__doc__)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--dst", type=Path, required=True)
    parser.add_argument("--to", choices=("orbax", "hf"), required=True)
    parser.add_argument(
        "--base", type=Path, help="to hf: the folder that training began from; gives the form"
    )
    options = parser.parse_args(words)
    print(json.dumps(run(**vars(options))))


def mismatch(options: argparse.Namespace, words: list[str]) -> None:
    """Engine against learner log-probs: text encoded again or recorded tokens, experts live or replayed."""
    from t1_jax.tools.mismatch import find_run
    from t1_jax.tools.mismatch import mismatch as run

    parser = _parser("mismatch", mismatch.__doc__)
    parser.add_argument("--run", type=Path, help="a quick-start run folder")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--trajectories", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="at most so many trajectories")
    options = parser.parse_args(words)
    if (options.run is None) == (options.checkpoint is None or options.trajectories is None):
        raise InputError("mismatch: expected either --run, or --checkpoint and --trajectories")
    require_writable(options.out)
    found = find_run(options.run) if options.run else (options.checkpoint, options.trajectories)
    print(json.dumps(run(*found, options.out, limit=options.limit), indent=2))


def bench(options: argparse.Namespace, words: list[str]) -> None:
    """Measure a part of the system, most beside a peer:
    `bench rollout | load | faults | convert | train | replay`.
    """
    commands = {
        "rollout": bench_rollout,
        "load": bench_load,
        "faults": bench_faults,
        "convert": bench_convert,
        "train": bench_learner,
        "replay": bench_learner,
    }
    if not words or words[0] not in commands:
        raise InputError(
            f"bench: {words[0] if words else 'nothing'!r}, expected one of {', '.join(commands)}"
        )
    commands[words[0]](words)


def bench_rollout(words: list[str]) -> None:
    """Commands and starts a second next to docker exec and docker run."""
    from sandbox.bench import bench_rollout as run

    parser = _parser("bench rollout", bench_rollout.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--image", default="debian:bookworm-slim", help="an image that the engine has")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    options = parser.parse_args(words[1:])
    require_writable(options.out)
    result = run(backend_name=options.backend, image=options.image, seconds=options.seconds)
    write_json(options.out, result)
    print(json.dumps(result["rows"]))


def bench_load(words: list[str]) -> None:
    """Many episodes at once, without an engine: commands a second, and errors."""
    from sandbox.bench import bench_load as run

    parser = _parser("bench load", bench_load.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--commands", type=int, default=10_000, help="of all episodes together")
    own = parser.parse_args(words[1:])
    require_writable(own.out)
    result = run(backend_name=own.backend, episodes=own.episodes, commands=own.commands)
    write_json(own.out, result)
    print(json.dumps(result))


def bench_faults(words: list[str]) -> None:
    """Kill services, an engine and a learner at random while they work, and say what was lost."""
    from sandbox.faults import run_faults

    parser = _parser("bench faults", bench_faults.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--chat", type=Path, required=True, help="folder with tokenizer.json and chat_template.jinja"
    )
    parser.add_argument("--run", type=Path, required=True, help="a new folder for logs and ledger")
    parser.add_argument(
        "--store", help="postgresql:// URL of an empty database; else a file in the run's folder"
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    own = parser.parse_args(words[1:])
    require_writable(own.out)
    require_writable(own.run, folder=True)
    result = run_faults(chat=own.chat, out=own.run, kills=own.kills, seed=own.seed, store=own.store)
    write_json(own.out, result)
    print(json.dumps(result))


def bench_convert(words: list[str]) -> None:
    """Conversions next to a plain copy of the same bytes, and their peak memory."""
    from t1_jax.tools.bench_convert import bench_convert as run

    parser = _parser("bench convert", bench_convert.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=12.0, help="of the checkpoint, at least")
    parser.add_argument("--work", type=Path, help="folder for it; default: the system's temporary folder")
    options = parser.parse_args(words[1:])
    require_writable(options.out)
    result = run(options.gigabytes, options.work)
    write_json(options.out, result)
    print(json.dumps(result["rows"]))


def bench_learner(words: list[str]) -> None:
    """Tokens a second of a training step next to transformers, or of a replayed step next to a live one."""
    from t1_jax.tools.bench import BENCHES

    parser = _parser(f"bench {words[0]}", bench_learner.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words[1:])
    require_writable(options.out)
    print(json.dumps(BENCHES[words[0]](options.out)["rows"]))


def export(options: argparse.Namespace, words: list[str]) -> None:
    """Write trajectories as ATIF (a line of JSON each) or as Parquet (a row each)."""
    from sandbox.export import FORMATS
    from sandbox.export import export as run

    parser = _parser("export", export.__doc__)
    parser.add_argument(
        "--trajectories", type=Path, required=True, help="a .frames file, or a folder of them"
    )
    parser.add_argument("--to", choices=FORMATS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    own = parser.parse_args(words)
    require_writable(own.out)
    print(json.dumps({"trajectories": run(own.trajectories, own.to, own.out)}))


def plan(options: argparse.Namespace, words: list[str]) -> None:
    """Compile the training step for a TPU slice on this machine: memory, collectives, roofline."""
    from t1_jax.tools import plan_table
    from t1_jax.tools.plan import PlanConfig
    from t1_jax.tools.plan import run as make_plan

    parser = _parser("plan", f"{plan.__doc__} Fields of the config are options: --section.field value.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--search", help="find the smallest slice of a generation that fits, such as v5p")
    table = parser.add_mutually_exclusive_group()
    table.add_argument("--check", type=Path, help="a table of plans whose row of this config must still hold")
    table.add_argument("--record", type=Path, help="a table of plans to put this one into")
    own, rest = parser.parse_known_args(words)
    require_writable(own.out)
    result = make_plan(load_config(PlanConfig, options.config, rest), own.out, own.search)
    print(json.dumps(result))
    if own.record:
        plan_table.record(own.record, options.config.stem, result)
    if own.check:
        plan_table.check(own.check, options.config.stem, result)


def pod(options: argparse.Namespace, words: list[str]) -> int:
    """Run a job on every host of a TPU slice, over ssh or on Kubernetes."""
    from t1_jax.tools.pod import PodConfig
    from t1_jax.tools.pod import run as run_pod

    parser = _parser("pod", f"{pod.__doc__} Fields of the config are options: --section.field value.")
    parser.add_argument("--dry-run", action="store_true", help="print exactly what would run")
    own, rest = parser.parse_known_args(words)
    return run_pod(load_config(PodConfig, options.config, rest), own.dry_run)


def report(options: argparse.Namespace, words: list[str]) -> None:
    """Write a run folder's report.html; `report compare A B --out FILE.html`: RL runs side by side."""
    from t1_jax.observability.report import write_report

    if words[:1] == ["compare"]:
        report_compare(words[1:])
        return
    parser = _parser("report", report.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    print(write_report(parser.parse_args(words).run))


def report_compare(words: Sequence[str]) -> None:
    """RL runs side by side over steps, such as with and without replay on the same seeds."""
    from t1_jax.observability.runs import compare_runs

    parser = _parser("report compare", report_compare.__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of `rl` or `quickstart` runs")
    parser.add_argument("--out", type=Path, required=True, help=".html")
    options = parser.parse_args(words)
    require_writable(options.out)
    compare_runs(options.runs, options.out)
    print(options.out)


def quickstart(options: argparse.Namespace, overrides: list[str]) -> None:
    """Tasks, demonstrations, SFT, RL, evaluation and report, on a CPU."""
    from t1_jax.tools.quickstart import QuickstartConfig, run

    config = load_config(QuickstartConfig, options.config or ROOT / "configs" / "quickstart.yaml", overrides)
    summary = run(config)
    scores = summary["scores"]
    means = {stage: values["mean_reward"] for stage, values in scores.items() if "mean_reward" in values}
    print(json.dumps(means | {"rl_minus_sft": scores["rl_minus_sft"]}))


# Commands that take --config and dotted overrides, and those that read their own options.
CONFIGURED: dict[str, Run] = {"sft": sft, "rl": rl, "serve": serve, "rollout": rollout, "eval": evaluate,
                              "quickstart": quickstart, "plan": plan, "pod": pod}  # fmt: skip
PLAIN: dict[str, Run] = {"tasks": tasks, "init": init, "convert": convert, "score": score,
                         "mismatch": mismatch, "bench": bench, "export": export,
                         "report": report}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 2, like every other bad input."""

    def error(self, message: str) -> Any:
        raise InputError(f"{self.prog}: {message}")


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _parser(name: str, description: str | None) -> _Parser:
    return _Parser(prog=f"launch.py {name}", description=description, allow_abbrev=False)


def dispatch(words: list[str]) -> int:
    """Run one command line; returns its exit code. Raises InputError."""
    every = {**CONFIGURED, **PLAIN}
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        for name, run in every.items():
            print(f"  {name:12s} {(run.__doc__ or '').splitlines()[0]}")
        return 0
    if words[0] not in every:
        raise InputError(f"launch.py: unknown command {words[0]!r}, expected one of {', '.join(every)}")
    run, rest = every[words[0]], words[1:]
    options = argparse.Namespace()
    if words[0] in CONFIGURED:
        parser = _parser(words[0], f"{run.__doc__} Fields of the config are options: --section.field value.")
        parser.add_argument("--config", type=Path, help="YAML file")
        options, rest = parser.parse_known_args(rest)
    return run(options, rest) or 0


def main() -> None:
    """Run the command line and exit."""
    # transformers notes at import that there is no PyTorch, which would be the first thing that a user reads.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        code = dispatch(sys.argv[1:])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
