"""Metrics files: what is written is read, also after a crash and a resume."""

import json
import math

import pytest

from sandbox.errors import InputError
from t1_jax.observability.metrics import NAMES, MetricsWriter, read_metrics


def test_round_trip_and_resume(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        writer.write(1, {"train/loss": 2.5})
        writer.write(2, {"train/loss": float("nan")})
    with MetricsWriter(path) as writer:
        writer.write(2, {"train/loss": 1.25, "train/grad_norm": float("inf")})
    rows = read_metrics(path)
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["train/loss"] == 1.25 and math.isnan(rows[1]["train/grad_norm"])
    assert all(json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines())


def test_a_cut_last_line_is_left_out_but_no_other(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "tra')
    assert read_metrics(path) == [{"step": 1}]
    path.write_text('{"step": 1, "tra\n{"step": 2}\n')
    with pytest.raises(InputError, match="line 1 is not JSON"):
        read_metrics(path)
    path.write_text('{"loss": 1}\n')
    with pytest.raises(InputError, match="line 1 has no step"):
        read_metrics(path)


def test_a_resumed_run_writes_behind_the_last_whole_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "tra')
    with MetricsWriter(path) as writer:
        writer.write(2, {})
        writer.write(3, {})
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3]
    assert path.read_text().startswith('{"step": 1}\n{"step": 2, "time"')


def test_names_are_namespaced_and_described():
    assert all(name.count("/") == 1 and meaning for name, meaning in NAMES.items())
