"""A realistic run folder, built from real trajectories (real tokenizer, real transcript, made-up policy)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from sandbox.tools import TOOLS
from sandbox.trajectory import Trajectory, Turn, write_frames
from sandbox.transcript import ChatFormat, Transcript
from t1_jax.data.tokenizer import render, train_tokenizer
from t1_jax.observability.metrics import MetricsWriter

SYSTEM = "Solve the task in the terminal."
FAMILIES = [
    "archives",
    "csv_reports",
    "file_layout",
    "git_history",
    "log_search",
    "permissions",
    "json_edit",
    "cron_tables",
]
HELD_OUT = ["json_edit", "cron_tables"]
SKILL = {"base": 0.03, "sft": 0.5, "rl": 0.78}

INSTRUCTION = (
    "In /app there is a server log, access{i}.log. Count the requests that ended with status 500 and write "
    "the number"
    " to /app/errors.txt.\nThen write the three busiest addresses, one a line, to /app/top.txt."
)
STEPS = [
    (
        "terminal",
        {"command": "ls -la /app"},
        "total 24\n-rw-r--r-- 1 root root 18233 access{i}.log\n-rw-r--r-- 1 root root   112 README",
        0,
    ),
    (
        "terminal",
        {"command": "head -3 /app/access{i}.log"},
        '10.0.0.7 - - [12/Mar] "GET /index.html HTTP/1.1" 200 512\n'
        '10.0.0.9 - - [12/Mar] "GET /<script>alert(1)</script> HTTP/1.1" 500 0\n'
        '10.0.0.7 - - [12/Mar] "POST /api?a=1&b=2" 201 44',
        0,
    ),
    (
        "terminal",
        {"command": "grep -c '\" 500 ' /app/access{i}.log > /app/errors.txt; cat /app/errors.txt"},
        "{n}",
        0,
    ),
    (
        "terminal",
        {
            "command": "awk '{{print $1}}' /app/access{i}.log | sort | uniq -c | sort -rn | head -3 "
            "| awk '{{print $2}}' > /app/top.txt",
            "timeout": 30.0,
        },
        "(no output)",
        0,
    ),
    ("terminal_input", {"keys": ["q", "Enter", "C-c"]}, "^C", None),
    ("terminal", {"command": "cat /app/tpo.txt"}, "cat: /app/tpo.txt: No such file or directory", 1),
    ("terminal", {"command": "cat /app/top.txt"}, "10.0.0.7\n10.0.0.9\n10.0.0.12", 0),
    ("finish", {}, "", None),
]


def fill(value, i):
    if isinstance(value, str):
        return value.replace("{i}", str(i)).replace("{n}", str(100 + i)).replace("{{", "{").replace("}}", "}")
    return value


def call_text(tool, arguments):
    call = {"name": tool, "arguments": arguments}
    return render([{"role": "assistant", "tool_calls": [call]}])[
        len("<|im_start|>assistant\n") : -len("<|im_end|>\n")
    ]


def episode(
    chat: ChatFormat, rng: np.random.Generator, *, name, family, skill, versions, rollout_id
) -> Trajectory:
    i = int(name.rsplit("-", 1)[1])
    transcript, turns = Transcript(), []
    transcript.append_prompt(chat.prompt_ids(SYSTEM, fill(INSTRUCTION, i), TOOLS))
    good = rng.random() < skill
    steps = STEPS if good else [*STEPS[: rng.integers(1, 6)], *([STEPS[5]] * int(rng.integers(0, 5)))]
    ending = "finish" if good else str(rng.choice(["max_turns", "finish", "format_errors", "timeout"]))
    for k, (tool, arguments, observation, exit_code) in enumerate(steps):
        arguments = {key: fill(value, i) for key, value in arguments.items()}
        observation = fill(observation, i)
        broken = ending == "format_errors" and k >= len(steps) - 2
        text = "<tool_call>\n<function=terminal>\nls </tool_call>" if broken else call_text(tool, arguments)
        text = ("Let me check what I wrote.\n\n" if k == 6 else "") + text
        ids = chat.assistant_ids(text)
        sure = rng.beta(2 + 20 * skill, 1.2, size=len(ids))
        version = versions[min(k * len(versions) // len(steps), len(versions) - 1)]
        span = transcript.append_sampled(ids, np.log(sure).tolist(), [version] * len(ids))
        shown = (
            "[error] malformed <tool_call>, expected <function=NAME> ... </function> inside it"
            if broken
            else observation
        )
        observed = (span[1], span[1])
        if tool != "finish" or broken:
            observed = transcript.append_observation(chat.tool_result_ids([shown]))
        turns.append(
            Turn(
                sampled=span,
                observed=observed,
                text=text + "<|im_end|>",
                observation=shown,
                seconds=float(rng.gamma(2, 0.02)),
                tool="" if broken else tool,
                arguments={} if broken else arguments,
                exit_code=exit_code,
                error="malformed <tool_call>" if broken else "",
            )
        )
    tests = {
        f"test_{t}": bool(good or rng.random() < 0.25 + skill / 3)
        for t in ("errors_count", "top_addresses", "order", "log_untouched")
    }
    reward = 0.5 * np.mean(list(tests.values())) + 0.5 * all(tests.values())
    length = len(transcript)
    trajectory = transcript.to_trajectory(
        rollout_id=rollout_id,
        group_id=name,
        task=name,
        reward=float(reward),
        ending=ending,
        tests=tests,
        turns=turns,
        metadata={
            "family": family,
            "difficulty": 1 + i % 5,
            "seconds": {"engine": 1.1, "terminal": 0.4, "verify": 0.05},
        },
    )
    assert len(trajectory.tokens) == length
    return trajectory


def score(trajectories):
    rewards = np.array([t.reward for t in trajectories])
    solved = np.array([t.solved for t in trajectories])
    half = 1.96 * rewards.std() / math.sqrt(len(rewards))
    half_solved = 1.96 * solved.std() / math.sqrt(len(solved))
    return {
        "mean_reward": float(rewards.mean()),
        "ci95": [float(max(rewards.mean() - half, 0)), float(rewards.mean() + half)],
        "solved": float(solved.mean()),
        "solved_ci95": [float(max(solved.mean() - half_solved, 0)), float(solved.mean() + half_solved)],
    }


def make_run(out: Path, seed: int = 0) -> Path:
    """Write a run folder as the quick start lays it out."""
    rng = np.random.default_rng(seed)
    for folder in ("sft", "rl/trajectories", "eval"):
        (out / folder).mkdir(parents=True)
    prompts = [
        render(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": fill(INSTRUCTION, i)}],
            tools=TOOLS,
        )
        for i in range(20)
    ]
    texts = [
        call_text(tool, {k: fill(v, 1) for k, v in arguments.items()}) + fill(o, 1)
        for tool, arguments, o, _ in STEPS
    ]
    train_tokenizer([*prompts, *texts * 5], 1500, out / "tokenizer")
    chat = ChatFormat.load(out / "tokenizer")
    tasks = [(f"{family.replace('_', '-')}-{k}", family) for family in FAMILIES for k in range(5)]
    scores = {}
    for stage, skill in SKILL.items():
        played = [
            episode(
                chat,
                rng,
                name=name,
                family=family,
                skill=min(skill * (0.4 + 0.3 * len(family) / 6), 1),
                versions=[{"base": 0, "sft": 0, "rl": 40}[stage]],
                rollout_id=f"eval/{name}/{a}",
            )
            for name, family in tasks
            for a in range(2)
        ]
        (out / "eval" / f"{stage}.frames").write_bytes(write_frames(played))
        families = {f: score([t for t in played if t.metadata["family"] == f]) for f in FAMILIES}
        scores[stage] = {**score(played), "by_family": families}
        rewards = {name: [t.reward for t in played if t.task == name] for name, _ in tasks}
        (out / "eval" / f"{stage}.json").write_text(
            json.dumps({"tasks": rewards, **score(played), "errors": 0})
        )
    with MetricsWriter(out / "sft" / "metrics.jsonl") as writer:
        for step in range(1, 121):
            loss = 0.12 + 5.5 * math.exp(-step / 14) + 0.02 * rng.normal()
            writer.write(
                step,
                {
                    "train/loss": loss,
                    "train/grad_norm": 1.2 * math.exp(-step / 60) + rng.gamma(2, 0.05),
                    "train/learning_rate": 1e-3 * min(step / 10, 1),
                    "throughput/tokens_per_second": rng.normal(5200, 180),
                },
            )
    with MetricsWriter(out / "rl" / "metrics.jsonl") as writer:
        for step in range(1, 41):
            done = 1 - math.exp(-step / 18)
            writer.write(
                step,
                {
                    "rollout/reward": 0.48 + 0.27 * done + 0.05 * rng.normal(),
                    "rollout/reward_std": 0.38,
                    "rollout/episodes": 64,
                    "rollout/solved": 0.34 + 0.35 * done + 0.05 * rng.normal(),
                    "rollout/turns": 6 - done + 0.3 * rng.normal(),
                    "rollout/format_errors": 0.06 * math.exp(-step / 10) + 0.004 * rng.random(),
                    "rollout/zero_variance_groups": 0.2 + 0.3 * done + 0.06 * rng.normal(),
                    "train/entropy": 0.31 * math.exp(-step / 60) + 0.01 * rng.normal(),
                    "train/grad_norm": rng.gamma(9, 0.04),
                    "train/staleness": 0.6 + 0.2 * rng.random(),
                    "train/staleness_max": int(rng.integers(1, 3)),
                    "train/masked_fraction": 0.002 * rng.random(),
                    "train/loss": 0.01 * rng.normal(),
                    "train/tokens": 9000,
                    "mismatch/k3": 4e-5 * rng.gamma(6, 0.2),
                    "mismatch/max_abs_logprob_diff": math.nan if step == 7 else 0.2,
                    "throughput/tokens_per_second": rng.normal(1900, 150),
                    "throughput/step_seconds": 11.2,
                },
            )
    training = [
        episode(
            chat,
            rng,
            name=f"log-search-{i}",
            family="log_search",
            skill=0.7,
            versions=[38, 39, 40],
            rollout_id=f"train-{i}",
        )
        for i in range(4)
    ]
    (out / "rl" / "trajectories" / "step_000040.frames").write_bytes(write_frames(training))
    mismatch = {
        "a": {
            "mean_abs_logprob_diff": 0.021,
            "max_abs_logprob_diff": 4.7,
            "k3": 0.0031,
            "extreme_fraction": 0.011,
            "expert_mismatch_fraction": 0.061,
            "tokens": 18211,
        },
        "b": {
            "mean_abs_logprob_diff": 0.0098,
            "max_abs_logprob_diff": 1.3,
            "k3": 0.00042,
            "extreme_fraction": 0.0009,
            "expert_mismatch_fraction": 0.034,
            "tokens": 18420,
        },
        "c": {
            "mean_abs_logprob_diff": 0.0031,
            "max_abs_logprob_diff": 0.12,
            "k3": 1.4e-05,
            "extreme_fraction": 0.0,
            "expert_mismatch_fraction": 0.0,
            "tokens": 18420,
        },
    }
    (out / "mismatch.json").write_text(json.dumps(mismatch))
    scores["rl_minus_sft"] = {
        "mean": scores["rl"]["mean_reward"] - scores["sft"]["mean_reward"],
        "ci95": [0.11, 0.27],
    }
    seconds = {
        "tasks": 3.1,
        "demonstrations": 22.4,
        "sft": 171.0,
        "rl": 462.0,
        "evaluation": 88.0,
        "mismatch": 24.0,
        "total": 770.5,
    }
    summary = {
        "scores": scores,
        "mismatch": mismatch,
        "seconds": seconds,
        "seed": seed,
        "held_out_families": HELD_OUT,
    }
    (out / "summary.json").write_text(json.dumps(summary))
    return out


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run") / "quickstart")
