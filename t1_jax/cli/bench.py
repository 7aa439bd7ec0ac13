"""`launch.py bench`: measure a part of the system, most beside a peer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from sandbox.errors import InputError
from sandbox.files import require_writable, write_json
from t1_jax.cli.parsing import make_parser


def bench(options: argparse.Namespace, words: list[str]) -> None:
    """Measure a part of the system, most beside a peer:
    `bench rollout | load | faults | convert | train | replay`.
    """
    commands: dict[str, Callable[[list[str]], None]] = {
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

    parser = make_parser("bench rollout", bench_rollout.__doc__)
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

    parser = make_parser("bench load", bench_load.__doc__)
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

    parser = make_parser("bench faults", bench_faults.__doc__)
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

    parser = make_parser("bench convert", bench_convert.__doc__)
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

    parser = make_parser(f"bench {words[0]}", bench_learner.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words[1:])
    require_writable(options.out)
    print(json.dumps(BENCHES[words[0]](options.out)["rows"]))
