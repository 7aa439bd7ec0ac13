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
from pathlib import Path

from sandbox.errors import InputError
from sandbox.files import require_writable, write_json
from t1_jax.cli.bench import bench
from t1_jax.cli.parsing import make_parser
from t1_jax.cli.tasks import tasks
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

    parser = make_parser("eval compare", "The paired difference of two evaluations, second minus first.")
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


def init(options: argparse.Namespace, words: list[str]) -> None:
    """Write a checkpoint with freshly drawn parameters."""
    from t1_jax.checkpoint.manager import save_checkpoint
    from t1_jax.model.config import ModelConfig
    from t1_jax.train.loop import initial_params

    parser = make_parser("init", init.__doc__)
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

    parser = make_parser("score", score.__doc__)
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

    parser = make_parser("convert", convert.__doc__)
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

    parser = make_parser("mismatch", mismatch.__doc__)
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


def export(options: argparse.Namespace, words: list[str]) -> None:
    """Write trajectories as ATIF (a line of JSON each) or as Parquet (a row each)."""
    from sandbox.export import FORMATS
    from sandbox.export import export as run

    parser = make_parser("export", export.__doc__)
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

    parser = make_parser("plan", f"{plan.__doc__} Fields of the config are options: --section.field value.")
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

    parser = make_parser("pod", f"{pod.__doc__} Fields of the config are options: --section.field value.")
    parser.add_argument("--dry-run", action="store_true", help="print exactly what would run")
    own, rest = parser.parse_known_args(words)
    return run_pod(load_config(PodConfig, options.config, rest), own.dry_run)


def report(options: argparse.Namespace, words: list[str]) -> None:
    """Write a run folder's report.html; `report compare A B --out FILE.html`: RL runs side by side."""
    from t1_jax.observability.report import write_report

    if words[:1] == ["compare"]:
        report_compare(words[1:])
        return
    parser = make_parser("report", report.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    print(write_report(parser.parse_args(words).run))


def report_compare(words: Sequence[str]) -> None:
    """RL runs side by side over steps, such as with and without replay on the same seeds."""
    from t1_jax.observability.runs import compare_runs

    parser = make_parser("report compare", report_compare.__doc__)
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


# Commands that keep what they have done, and go on from there.
RESUMABLE = ("sft", "rl", "eval", "quickstart", "convert")
# Commands that take --config and dotted overrides, and those that read their own options.
CONFIGURED: dict[str, Run] = {"sft": sft, "rl": rl, "serve": serve, "rollout": rollout, "eval": evaluate,
                              "quickstart": quickstart, "plan": plan, "pod": pod}  # fmt: skip
PLAIN: dict[str, Run] = {"tasks": tasks, "init": init, "convert": convert, "score": score,
                         "mismatch": mismatch, "bench": bench, "export": export,
                         "report": report}  # fmt: skip


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
        parser = make_parser(
            words[0], f"{run.__doc__} Fields of the config are options: --section.field value."
        )
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
        resumes = "".join(sys.argv[1:2]) in RESUMABLE
        print("stopped; the same command goes on from here" if resumes else "stopped", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
