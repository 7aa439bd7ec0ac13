"""Mismatch: zero on the model's own record, and each kind of drift is found by the setting that has it."""

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, write_frames
from t1_jax.data.trajectories import RoutingRecordError
from t1_jax.tools.divergence import divergences
from t1_jax.tools.mismatch import find_run, mismatch
from t1_jax.tools.retokenize import character_spans, retokenize

PROMPT = "<|im_start|>user\nls -la /app<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="session")
def tokenizer(tokenizer_dir):
    return Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))


@pytest.fixture(scope="session")
def canonical(make_episode, tokenizer):
    """An episode whose tokens are exactly what its text encodes to, with a non-ASCII answer."""
    prompt = tokenizer.encode(PROMPT).ids
    first = tokenizer.encode("cat file.txt — ✓é<|im_end|>").ids
    answer = tokenizer.encode("\n<|im_start|>user\nfile\n<|im_end|>\n<|im_start|>assistant\n").ids
    second = tokenizer.encode("ls<|im_end|>").ids
    a, b = len(prompt), len(prompt) + len(first)
    c = b + len(answer)
    spans = [(a, b), (c, c + len(second))]
    return make_episode("canonical", prompt + first + answer + second, spans)


@pytest.fixture(scope="session")
def split(make_episode, tokenizer):
    """An episode that sampled "cat file" letter by letter, which its text does not encode to."""
    prompt = tokenizer.encode(PROMPT).ids
    letters = [i for letter in "cat file" for i in tokenizer.encode(letter).ids]
    end = tokenizer.encode("<|im_end|>").ids
    return make_episode("split", prompt + letters + end, [(len(prompt), len(prompt) + 9)])


def test_own_record_has_no_mismatch(checkpoint, canonical, tmp_path):
    result = mismatch(checkpoint, [canonical, canonical], tmp_path / "out" / "mismatch.json")
    assert json.loads((tmp_path / "out" / "mismatch.json").read_text()) == result
    assert list(result) == ["a", "b", "c", "d"]
    for metrics in result.values():
        assert metrics["tokens"] == 2 * canonical.loss_mask.sum() and metrics["misaligned_tokens"] == 0
        assert metrics["max_abs_logprob_diff"] < 5e-5 and metrics["k3"] < 1e-8
        assert metrics["extreme_fraction"] == 0 and metrics["expert_mismatch_fraction"] == 0
        assert metrics["expert_mismatch_by_layer"] == [0] * 4
        assert [part["from"] for part in metrics["by_turn"]] == [0, 1]
        assert sum(part["tokens"] for part in metrics["by_turn"]) == metrics["tokens"]
        assert sum(part["tokens"] for part in metrics["by_position"]) == metrics["tokens"]


def test_other_experts_are_replayed_only_in_c(checkpoint, canonical):
    """A record of other experts than live routing takes: the mismatch shows in b, and c used the record."""
    third = np.arange(len(canonical.tokens))[:, None, None] % 3 == 0
    routes = (canonical.routed_experts.astype(int) + third) % 8
    odd = dataclasses.replace(canonical, routed_experts=routes.astype(np.uint8))
    result = mismatch(checkpoint, [odd], settings=["b", "c", "d"])
    assert 0.3 < result["b"]["expert_mismatch_fraction"] < 0.4
    assert result["c"]["expert_mismatch_fraction"] == 0
    assert result["d"] == result["c"], "the text encodes to the recorded tokens"
    assert min(result["b"]["expert_mismatch_by_layer"]) > 0.25
    assert result["b"]["max_abs_logprob_diff"] < 5e-5 < 1e-3 < result["c"]["max_abs_logprob_diff"]


def test_a_shifted_record_is_refused(checkpoint, canonical):
    shifted = dataclasses.replace(canonical, routed_experts=np.roll(canonical.routed_experts, 1, axis=0))
    with pytest.raises(RoutingRecordError, match=rf"{canonical.rollout_id}.*shifted by .1 it agrees to"):
        mismatch(checkpoint, [shifted], settings=["b"])


def test_the_order_of_experts_does_not_matter(checkpoint, canonical):
    turned = dataclasses.replace(canonical, routed_experts=canonical.routed_experts[..., ::-1].copy())
    assert mismatch(checkpoint, [turned], settings=["b"])["b"]["expert_mismatch_fraction"] == 0


def test_tokens_that_text_loses_are_extreme(checkpoint, split, tokenizer):
    result = mismatch(checkpoint, [split])
    again = retokenize(split, tokenizer)
    lost = int((again.positions[split.loss_mask] < 0).sum())
    assert 0 < lost < 9
    assert result["a"]["misaligned_tokens"] == lost and result["a"]["tokens"] == 9
    assert result["a"]["extreme_fraction"] >= lost / 9
    assert result["a"]["expert_mismatch_fraction"] >= result["d"]["expert_mismatch_fraction"] > 0
    assert result["d"]["misaligned_tokens"] == lost
    assert result["b"]["misaligned_tokens"] == 0 and result["b"]["max_abs_logprob_diff"] < 5e-5


def test_known_differences_give_the_formulas(checkpoint, canonical):
    positions = np.flatnonzero(canonical.loss_mask)
    shift = np.linspace(0, 1.5, len(positions))  # engine log-probs lower than the learner's, by this
    logprobs = canonical.rollout_logprobs.copy()
    logprobs[positions] -= shift
    result = mismatch(
        checkpoint, [dataclasses.replace(canonical, rollout_logprobs=logprobs)], settings=["c"]
    )["c"]
    assert result["mean_abs_logprob_diff"] == pytest.approx(shift.mean(), abs=1e-4)
    assert result["max_abs_logprob_diff"] == pytest.approx(1.5, abs=1e-4)
    assert result["k3"] == pytest.approx((np.exp(shift) - 1 - shift).mean(), rel=1e-3)
    assert result["extreme_fraction"] == (shift > np.log(2)).mean()
    assert result["k1"] == pytest.approx(-shift.mean(), abs=1e-4)
    assert result["sequence_log_ratio"]["max_abs"] == pytest.approx(shift.sum(), rel=1e-3)
    first = shift[: canonical.loss_mask[: canonical.turns[1].sampled[0]].sum()]
    assert result["by_turn"][0]["mean_abs_logprob_diff"] == pytest.approx(first.mean(), abs=1e-4)


def test_divergences_are_estimated_from_what_one_side_sampled():
    """Each is exact in expectation: the mean of the terms under mu is the divergence of the distributions."""
    rng = np.random.default_rng(0)
    mu, pi = rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(7))
    middle = (mu + pi) / 2
    terms = [divergences(np.array([d])) for d in np.log(pi / mu)]
    mean = {name: sum(m * term[name] for m, term in zip(mu, terms, strict=True)) for name in terms[0]}
    assert mean["k1"] == pytest.approx((mu * np.log(mu / pi)).sum())
    assert mean["k3"] == pytest.approx((mu * np.log(mu / pi)).sum())
    assert mean["k3_reverse"] == pytest.approx((pi * np.log(pi / mu)).sum())
    js = ((mu * np.log(mu / middle)).sum() + (pi * np.log(pi / middle)).sum()) / 2
    assert mean["js"] == pytest.approx(js)
    assert min(term[name] for term in terms for name in ("k3", "k3_reverse", "js")) >= 0
    assert set(divergences(np.zeros(0)).values()) == {None}


def test_temperature_of_each_episode(checkpoint, canonical, make_episode):
    spans = [turn.sampled for turn in canonical.turns]
    warm = make_episode("warm", canonical.tokens, spans, temperature=0.7)
    assert mismatch(checkpoint, [canonical, warm], settings=["b"])["b"]["max_abs_logprob_diff"] < 5e-5


def test_tokens_of_other_versions_are_left_out(checkpoint, canonical):
    versions = canonical.versions.copy()
    versions[canonical.turns[0].sampled[0]] = 2
    older = dataclasses.replace(canonical, versions=versions)
    assert mismatch(checkpoint, [older], settings=["b"])["b"]["tokens"] == canonical.loss_mask.sum() - 1
    strange = dataclasses.replace(canonical, versions=np.where(canonical.loss_mask, 9, -1).astype(np.int32))
    with pytest.raises(
        InputError, match=r"sampled by versions \[9\], expected some by the checkpoint's version 3"
    ):
        mismatch(checkpoint, [strange])


def test_without_recorded_experts(checkpoint, canonical, tmp_path):
    plain = dataclasses.replace(canonical, routed_experts=None, routed_valid=None)
    (tmp_path / "x.frames").write_bytes(write_frames([plain]))
    assert mismatch(checkpoint, tmp_path, settings=["b"])["b"]["expert_mismatch_fraction"] is None
    with pytest.raises(InputError, match="no trajectory has recorded experts"):
        mismatch(checkpoint, tmp_path)


def test_find_run(tmp_path):
    with pytest.raises(InputError, match="rl/checkpoint is missing"):
        find_run(tmp_path)
    (tmp_path / "rl" / "checkpoint").mkdir(parents=True)
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "rl.frames").touch()
    assert find_run(tmp_path) == (tmp_path / "rl" / "checkpoint", tmp_path / "eval" / "rl.frames")


def episode(ids):
    zeros = np.zeros(len(ids))
    return Trajectory(
        rollout_id="r",
        group_id="r",
        task="t",
        tokens=np.asarray(ids, np.int32),
        loss_mask=zeros > 0,
        rollout_logprobs=zeros.astype(np.float32),
        versions=zeros.astype(np.int32) - 1,
    )


def test_retokenize_places_every_canonical_token(tokenizer):
    ids = tokenizer.encode(PROMPT + "é ✓✓ \u2003\u2003 cat file.txt").ids
    again = retokenize(episode(ids), tokenizer)
    assert again.tokens.tolist() == ids and again.positions.tolist() == list(range(len(ids)))


def test_retokenize_with_bytes_that_are_no_text(tokenizer):
    check = tokenizer.encode("✓").ids
    ids = [*tokenizer.encode("ls").ids, *check[:1], *tokenizer.encode("cat").ids]
    again = retokenize(episode(ids), tokenizer)
    assert "\ufffd" in again.text
    assert again.positions[0] == 0 and (again.positions[-1] == -1)


def test_character_spans():
    assert character_spans(["é".encode()[:1], "é".encode()[1:] + b"a", b"", b"b"]) == [
        (0, 1),
        (0, 2),
        (-1, -1),
        (2, 3),
    ]
    assert character_spans([b"a", b"\xff", b"b"]) == [(0, 1), (-1, -1), (-1, -1)]
