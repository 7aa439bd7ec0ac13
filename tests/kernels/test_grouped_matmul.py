import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.kernels.grouped_matmul import (
    block_size,
    from_slots,
    gather_rows,
    gather_slots,
    group_layout,
    grouped_matmul,
    to_slots,
)

EXPERTS, BLOCK = 4, 8
GROUPS = {
    "spread": np.random.default_rng(0).integers(0, EXPERTS, 40),
    "some empty": np.random.default_rng(1).choice([0, 3], 40),
    "all on the first": np.zeros(40, int),
    "all on the last": np.full(40, EXPERTS - 1),
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_layout_orders_rows_by_group(groups):
    layout = jax.tree.map(np.asarray, group_layout(jnp.asarray(groups), EXPERTS, BLOCK))
    counts = np.bincount(groups, minlength=EXPERTS)
    np.testing.assert_array_equal(layout.group_sizes, -(-counts // BLOCK) * BLOCK)
    assert len(set(layout.slot_of_row)) == len(groups), "a slot holds one row"
    np.testing.assert_array_equal(layout.row_of_slot[layout.slot_of_row], np.arange(len(groups)))
    assert (layout.row_of_slot == len(groups)).sum() == len(layout.row_of_slot) - len(groups)
    ends = np.cumsum(layout.group_sizes)
    assert ends[-1] <= len(layout.row_of_slot)
    np.testing.assert_array_equal(np.searchsorted(ends, layout.slot_of_row, side="right"), groups)


@pytest.mark.parametrize("implementation", ["blocked", "looped", "ragged"])
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_fast_paths_are_the_reference(groups, implementation):
    layout = group_layout(jnp.asarray(groups), EXPERTS, BLOCK)
    rows = jax.random.normal(jax.random.key(0), (len(layout.row_of_slot), 6))
    matrices = jax.random.normal(jax.random.key(1), (EXPERTS, 6, 5))
    weights = jax.random.normal(jax.random.key(2), (len(groups), 5))

    def run(implementation):
        def total(rows, matrices):
            out = grouped_matmul(
                rows, matrices, layout.group_sizes, block=BLOCK, implementation=implementation
            )
            kept = out[layout.slot_of_row]
            return jnp.sum(kept * weights), kept

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(rows, matrices)

    for a, b in zip(jax.tree.leaves(run(implementation)), jax.tree.leaves(run("reference")), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_block_size_follows_the_mean_group():
    assert [block_size(rows, 16) for rows in (1, 16 * 16, 16 * 17, 16 * 4096)] == [8, 8, 16, 128]


def test_gathers_are_the_transposes_of_each_other():
    """What accelerators run, against autodiff of plain indexing; some rows have no slot."""
    groups = jnp.asarray(np.random.default_rng(2).integers(0, EXPERTS + 1, 40))
    layout, placed = group_layout(groups, EXPERTS, BLOCK), groups < EXPERTS
    x = jax.random.normal(jax.random.key(0), (20, 3))
    weights = jax.random.normal(jax.random.key(1), (40, 3))
    filled = (layout.row_of_slot < 40)[:, None]

    def run(to, back):
        def total(x):
            return jnp.sum(back(jnp.where(filled, to(x, layout, placed), 0) ** 2, layout, placed) * weights)

        return jax.jit(jax.value_and_grad(total))(x)

    value, gradient = run(gather_rows, gather_slots)
    expected, expected_gradient = run(to_slots, from_slots)
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)
    assert not from_slots(jnp.ones((len(layout.row_of_slot), 3)), layout, placed)[~placed].any()
