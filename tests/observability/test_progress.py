"""Progress: quiet lines with rate and time left where there is no terminal."""

import io

import pytest

from t1_jax.observability.progress import duration, progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.016, "0.016 s"),
        (0.4, "0.4 s"),
        (1, "1.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (725, "12 min 05 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_one_line_every_ten_seconds():
    stream, clock = io.StringIO(), Clock()
    with progress("sft", 100, "steps", stream=stream, clock=clock) as bar:
        for _ in range(25):
            clock.now += 1
            bar.advance(loss=0.5)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "sft: 10/100 steps, 1 steps/s, 1 min 30 s left, loss 0.5",
        "sft: 20/100 steps, 1 steps/s, 1 min 20 s left, loss 0.5",
        "sft: 25/100 steps, 1 steps/s, 1 min 15 s left, loss 0.5",
    ]


def test_resumed_work_is_not_speed():
    stream, clock = io.StringIO(), Clock()
    with progress("rl", 60, stream=stream, clock=clock) as bar:
        bar.advance(40)
        clock.now = 8
        bar.advance(2)
        assert bar.line() == "rl: 42/60 steps, 4.0 s each, 1 min 12 s left"
        bar.advance(18)
    assert stream.getvalue() == "rl: 60/60 steps, 2.5 steps/s, 8.0 s in all\n"


def test_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with progress("eval", 2, "episodes", stream=stream) as bar:
        bar.advance(2, reward=0.25)
    assert "eval" in stream.getvalue() and "2/2" in stream.getvalue()
