import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.data.trajectories import RoutingRecordError
from t1_jax.train.gate import GateConfig, agreement, check_metrics, check_records


def drawn(seed=0):
    """Experts int [2, 40, 3, 4] of 32, and segments: two documents and padding in a row."""
    scores = np.random.default_rng(seed).random((2, 40, 3, 32))
    routes = np.argsort(scores, -1)[..., :4]
    segments = np.repeat([[1] * 18 + [2] * 15 + [0] * 7], 2, axis=0)
    return routes, segments


def test_agreement_is_of_one_document_and_of_what_was_recorded():
    live, segments = drawn()
    routes = live[..., ::-1].copy()  # the order within a row means nothing
    routes[:, 5] = -1
    assert agreement(routes, live, segments, 0) == 1.0
    routes[0, 3, 1] = (live[0, 3, 1].max() + np.arange(1, 5)) % 32
    pairs = 2 * (33 - 1) * 3 * 4
    same = np.isin(routes[0, 3, 1], live[0, 3, 1]).sum()
    assert agreement(routes, live, segments, 0) == pytest.approx((pairs - 4 + same) / pairs)
    assert agreement(np.roll(live, 1, axis=1), live, segments, -1) == 1.0
    assert agreement(np.full_like(routes, -1), live, segments, 0) is None


@pytest.mark.parametrize(("shift", "place"), [(1, "before"), (-1, "after")])
def test_a_shifted_record_is_refused(shift, place):
    live, segments = drawn()
    with pytest.raises(RoutingRecordError, match=rf"agree to 0\.1\d .* but to 1\.00 .* token {place};"):
        check_records({"routed_experts": np.roll(live, shift, axis=1), "segment_ids": segments}, live)


def test_a_record_that_drifted_is_measured():
    live, segments = drawn()
    routes = live.copy()
    routes[:, ::8, 0, 0] = (live[:, ::8, 0].max(-1) + 1) % 32
    found = check_records({"routed_experts": routes, "segment_ids": segments}, live)
    tokens = np.arange(0, 33, 8).size / 33
    assert found["mismatch/expert_mismatch_fraction"] == pytest.approx(tokens / 3, rel=0.1)
    assert 0.95 < found["router/agreement"] < 1
    nothing = {"routed_experts": np.full_like(routes, -1), "segment_ids": segments}
    assert check_records(nothing, live) == {}


def test_bounds_warn_or_stop(capsys):
    metrics = {"mismatch/k3": 0.5, "router/replayed_fraction": 0.1}
    check_metrics(GateConfig(), 7, metrics, replay=True)
    message = "gate: step 7: mismatch/k3 is 0.5, expected at most 0.1; router/replayed_fraction is 0.1"
    assert capsys.readouterr().err.startswith(f"warning: {message}")
    stop = GateConfig(action="stop")
    with pytest.raises(InputError, match="last saved state is untouched"):
        check_metrics(stop, 7, {"mismatch/k3": float("nan")}, replay=True)
    check_metrics(stop, 7, {"mismatch/k3": 0.05, "router/replayed_fraction": 0.0}, replay=False)
    check_metrics(GateConfig(action="stop", max_k3=None), 7, {"mismatch/k3": 9.0}, replay=True)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"gate\.probe_every is 0"):
        GateConfig(probe_every=0)
