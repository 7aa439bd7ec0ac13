"""One episode of 320 tool calls: nothing is lost, and a round costs the service next to nothing."""

from __future__ import annotations

import resource
import statistics
import time

from sandbox.agent import EpisodeLimits, run_episode
from sandbox.backends import BACKENDS
from sandbox.policy import Generation, ScriptedPolicy
from sandbox.task import Task
from sandbox.tools import ToolCall, format_tool_call

CALLS = 320


class Timed(ScriptedPolicy):
    """A scripted policy that notes when it was asked and when it had answered."""

    def __init__(self, texts, chat) -> None:
        super().__init__(texts, chat)
        self.asked: list[float] = []
        self.answered: list[float] = []

    async def generate(self, input_ids: list[int], **options) -> Generation:
        self.asked.append(time.monotonic())
        answer = await super().generate(input_ids, **options)
        self.answered.append(time.monotonic())
        return answer


async def test_320_calls(write_task, chat) -> None:
    commands = ["echo hello > out.txt"]
    commands += [f"echo $((x += 1)) >> log; tail -n 1 log; # {n}" for n in range(CALLS - 2)]
    commands += ["test $(wc -l < log) = 318 && touch done.txt"]
    texts = [format_tool_call(ToolCall(name="terminal", arguments={"command": text})) for text in commands]
    policy = Timed(texts, chat)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [trajectory] = await run_episode(
        Task.load(write_task(agent_timeout=240.0)),
        policy,
        chat,
        BACKENDS["bubblewrap"],
        EpisodeLimits(max_turns=CALLS + 1, max_context=200_000),
        rollout_id="r",
        group_id="g",
        seed=0,
        temperature=1.0,
    )
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == ("finish", 1.0, CALLS + 1)
    assert [turn.observation for turn in trajectory.turns[1:-2]] == [str(n) for n in range(1, CALLS - 1)]
    rounds = zip(policy.answered, policy.asked[1:], trajectory.turns, strict=False)
    overhead = [asked - answered - turn.seconds for answered, asked, turn in rounds]
    assert len(overhead) == CALLS and statistics.median(overhead) <= 0.005, statistics.median(overhead)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
