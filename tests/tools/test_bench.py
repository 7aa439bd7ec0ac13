import pytest

from t1_jax.tools.bench import compare, take_turns


def test_a_machine_that_is_slow_for_a_while_changes_no_ratio():
    pace = (1.0, 1.0, 4.0, 4.0, 4.0)  # the same in both halves of a round
    row = compare("step", 100, {"ours": list(pace), "peer": [1.5 * p for p in pace]}, "a peer")
    assert row["ratio"] == 1.5 and row["ratio_quartiles"] == [1.5, 1.5] and row["rounds"] == 5
    assert row["ours"] == 25 and row["peer"] == pytest.approx(100 / 6)


def test_a_round_that_was_disturbed_is_outvoted():
    seconds = {"ours": [1.0, 1.0, 9.0], "peer": [2.0, 2.0, 2.0]}
    assert compare("step", 1, seconds, "a peer")["ratio"] == 2


def test_sides_take_turns_and_the_first_round_is_not_counted():
    calls = []
    seconds = take_turns({"ours": lambda: calls.append("o"), "peer": lambda: calls.append("p")}, 3)
    assert "".join(calls) == "pooppoop"
    assert {name: len(values) for name, values in seconds.items()} == {"ours": 3, "peer": 3}
