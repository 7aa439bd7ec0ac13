import jax
import jax.numpy as jnp
import numpy as np

from t1_jax.model.router import route

X = jax.random.normal(jax.random.key(0), (5, 8))
ROUTER = jax.random.normal(jax.random.key(1), (8, 6))
LIVE = route(X, ROUTER, 2)


def test_the_largest_come_first_and_weigh_one_together():
    np.testing.assert_array_equal(LIVE.selected_experts, np.argsort(-LIVE.router_logits, axis=-1)[:, :2])
    assert (LIVE.combine_weights[:, 0] >= LIVE.combine_weights[:, 1]).all()
    np.testing.assert_allclose(LIVE.combine_weights.sum(-1), 1.0, rtol=1e-6)


def test_replay_weighs_recorded_experts_by_the_current_softmax():
    recorded = jnp.argsort(LIVE.router_logits, axis=-1)[:, :2]  # the two smallest
    replayed = route(X, ROUTER, 2, recorded)
    np.testing.assert_array_equal(replayed.selected_experts, recorded)
    chosen = np.take_along_axis(np.asarray(LIVE.router_logits), np.asarray(recorded), axis=-1)
    np.testing.assert_allclose(replayed.combine_weights, jax.nn.softmax(chosen, axis=-1), rtol=1e-5)


def test_gradient_reaches_recorded_experts_outside_the_live_choice():
    x, live = X[:1], np.asarray(LIVE.selected_experts[0])
    recorded = [expert for expert in range(6) if expert not in live][:2]

    def first_weight(router):
        return route(x, router, 2, jnp.asarray([recorded])).combine_weights[0, 0]

    columns = np.abs(jax.grad(first_weight)(ROUTER)).max(axis=0)
    assert (columns[recorded] > 1e-3).all()
    others = [expert for expert in range(6) if expert not in recorded]
    np.testing.assert_allclose(columns[others], 0.0, atol=1e-6)


def test_a_row_of_minus_one_routes_live():
    recorded = LIVE.selected_experts[:, ::-1].at[2].set(-1)
    replayed = route(X, ROUTER, 2, recorded)
    np.testing.assert_array_equal(replayed.selected_experts[2], LIVE.selected_experts[2])
    np.testing.assert_array_equal(replayed.selected_experts[:2], LIVE.selected_experts[:2, ::-1])
