"""`launch.py tasks`: build, import, synthesize, check and demonstrate tasks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from sandbox.errors import InputError
from sandbox.files import require_writable, write_whole
from t1_jax.cli.parsing import make_parser, names, numbers


def tasks(options: argparse.Namespace, words: list[str]) -> int | None:
    """Build, import, check and demonstrate tasks: `tasks build | import | check | demonstrate | ...`."""
    commands: dict[str, Callable[[Sequence[str]], int | None]] = {
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

    parser = make_parser("tasks build", tasks_build.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", type=names, help="comma-separated; default: all")
    parser.add_argument("--areas", type=names, help="comma-separated; default: all")
    parser.add_argument("--levels", type=numbers, help="difficulties, comma-separated; default: 1,2,3,4,5")
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

    parser = make_parser("tasks import", tasks_import.__doc__)
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

    parser = make_parser("tasks synthesize", tasks_synthesize.__doc__)
    parser.add_argument("--engine", required=True, help="URL; the key is read from OPENAI_API_KEY")
    parser.add_argument("--model", help="default: the first that the URL lists")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", type=names, help="comma-separated; default: those of the families")
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

    parser = make_parser("tasks check", tasks_check.__doc__)
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

    parser = make_parser("tasks tokenizer", tasks_tokenizer.__doc__)
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

    parser = make_parser("tasks notes", tasks_notes.__doc__)
    parser.add_argument("--chat", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", type=names, help="comma-separated; default: all")
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

    parser = make_parser("tasks demonstrate", tasks_demonstrate.__doc__)
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
