import numpy as np
import pytest

from t1_jax.train.advantages import ADVANTAGES, group_advantages


def test_formulas():
    rewards = np.array([0.0, 0.25, 1.0, 0.5])
    mean = rewards.mean()
    np.testing.assert_allclose(group_advantages(list(rewards)), rewards - mean)
    np.testing.assert_allclose(
        group_advantages(list(rewards), "grpo"), (rewards - mean) / rewards.std(), rtol=1e-4
    )
    others = [np.delete(rewards, i).mean() for i in range(4)]
    np.testing.assert_allclose(group_advantages(list(rewards), "leave_one_out"), rewards - others)
    np.testing.assert_allclose(group_advantages(list(rewards), "maxrl"), (rewards - mean) / mean)


def test_negative_advantages_can_count_less():
    np.testing.assert_allclose(group_advantages([0.0, 1.0, 0.5], negative_scale=0.2), [-0.1, 0.5, 0.0])
    assert group_advantages([0.0, 1.0], "leave_one_out", 0.0).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", list(ADVANTAGES))
@pytest.mark.parametrize("rewards", [[0.1] * 3, [0.0] * 4, [1.0], []])
def test_groups_without_contrast_give_exactly_zero(name, rewards):
    advantages = group_advantages(rewards, name)
    assert len(advantages) == len(rewards) and not advantages.any()
