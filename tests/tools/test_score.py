"""Scoring: equal to the plain forward, replay of the own record changes nothing, bad lines are named."""

import json

import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.tools.convert import convert
from t1_jax.tools.score import score

TOKENS = [[5, 9, 2, 7, 1], list(range(40, 120)), [3]]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def live(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("score")
    rows = [{"id": f"s/{i}", "tokens": tokens, "routed_experts": None} for i, tokens in enumerate(TOKENS)]
    told = score(checkpoint, write(folder / "in.jsonl", rows), folder / "out.npz", router_logits=True)
    assert told == {"sequences": 3, "rows": 86, "replayed_rows": 0}
    return dict(np.load(folder / "out.npz"))


def test_values_and_shapes(live, measure):
    for i, tokens in enumerate(TOKENS):
        logprobs, experts = measure(np.asarray(tokens))
        assert live[f"s/{i}/logprobs"].dtype == np.float32 and live[f"s/{i}/logprobs"].shape == (
            len(tokens) - 1,
        )
        np.testing.assert_allclose(live[f"s/{i}/logprobs"], logprobs[1:], atol=2e-5)
        assert live[f"s/{i}/routed_experts"].dtype == np.int32
        np.testing.assert_array_equal(live[f"s/{i}/routed_experts"], experts)
        logits = live[f"s/{i}/router_logits"]
        assert logits.dtype == np.float32 and logits.shape == (len(tokens), 4, 8)
        order = np.argsort(-logits, axis=-1, kind="stable")[..., :2]
        np.testing.assert_array_equal(live[f"s/{i}/routed_experts"], order)


def test_replay(checkpoint, live, tmp_path):
    record = live["s/1/routed_experts"].tolist()
    other = [[[(a + 1) % 8, (a + 3) % 8] for a, _ in layers] for layers in record]
    partly = [*other[:10], *[[[-1, -1]] * 4] * 70]
    rows = [
        {"id": name, "tokens": TOKENS[1], "routed_experts": routes}
        for name, routes in (("own", record), ("other", other), ("partly", partly))
    ]
    path = write(tmp_path / "in.jsonl", rows)
    assert score(checkpoint, path, tmp_path / "on") == {"sequences": 3, "rows": 240, "replayed_rows": 170}
    on = np.load(tmp_path / "on")
    np.testing.assert_array_equal(on["own/logprobs"], live["s/1/logprobs"])  # bit for bit
    np.testing.assert_array_equal(on["other/routed_experts"], other)
    assert np.abs(on["other/logprobs"] - live["s/1/logprobs"]).max() > 1e-3
    np.testing.assert_array_equal(on["partly/logprobs"][:9], on["other/logprobs"][:9])
    np.testing.assert_array_equal(on["partly/routed_experts"][:10], other[:10])
    score(checkpoint, path, tmp_path / "off", replay="off")
    np.testing.assert_array_equal(np.load(tmp_path / "off")["other/logprobs"], live["s/1/logprobs"])


def test_a_hugging_face_folder_scores_alike(checkpoint, live, tmp_path):
    convert(checkpoint, tmp_path / "hf", "hf")
    rows = [{"id": "s/0", "tokens": TOKENS[0], "routed_experts": None}]
    score(tmp_path / "hf", write(tmp_path / "in", rows), tmp_path / "out", router_logits=True)
    out = np.load(tmp_path / "out")
    assert len(out.files) == 3
    for name in out.files:
        np.testing.assert_array_equal(out[name], live[name])


@pytest.mark.parametrize(
    "row, complaint",
    [
        ("{", "line 1 is not JSON"),
        ({"tokens": [1]}, "line 1: id is missing"),
        ({"id": "a", "tokens": []}, "line 1: tokens is no list of ids"),
        ({"id": "a", "tokens": [1, True]}, "line 1: tokens is no list of ids"),
        ({"id": "a", "tokens": [1, 320]}, r"tokens\[1\] is 320, expected an id below 320"),
        (
            {"id": "a", "tokens": [1], "routed_experts": [[[0, 1]]]},
            r"shape \[1, 1, 2\], expected integers of shape \[1, 4, 2\]",
        ),
        ({"id": "a", "tokens": [1], "routed_experts": [[[0, 1], [0]]]}, "ragged"),
        (
            {"id": "a", "tokens": [1], "routed_experts": [[[0, 8]] * 4]},
            r"routed_experts\[0\] is no selection",
        ),
        (
            {"id": "a", "tokens": [1], "routed_experts": [[[2, 2]] * 4]},
            r"routed_experts\[0\] is no selection",
        ),
        (
            {"id": "a", "tokens": [1], "routed_experts": [[[-1, 2]] * 4]},
            r"routed_experts\[0\] is no selection",
        ),
    ],
)
def test_bad_lines(checkpoint, tmp_path, row, complaint):
    path = tmp_path / "in.jsonl"
    path.write_text(row if isinstance(row, str) else json.dumps(row))
    with pytest.raises(InputError, match=complaint):
        score(checkpoint, path, tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_ids_are_unique_and_the_file_exists(checkpoint, tmp_path):
    with pytest.raises(InputError, match="line 2: id 'a' occurs twice"):
        score(checkpoint, write(tmp_path / "in", [{"id": "a", "tokens": [1]}] * 2), tmp_path / "out")
    with pytest.raises(InputError, match="no such file"):
        score(checkpoint, tmp_path / "missing", tmp_path / "out")
