"""Kill -9 at random over services, engine and learner: the short form of `bench faults`."""

import pytest

from sandbox.errors import InputError
from sandbox.faults import _problems, run_faults


def test_five_kills_lose_and_repeat_nothing(request, tokenizer_dir, tmp_path):
    try:
        store = request.getfixturevalue("postgres_url")
    except pytest.skip.Exception:
        store = None  # then one service on a file
    result = run_faults(chat=tokenizer_dir, out=tmp_path / "run", kills=5, seed=3, store=store)
    assert result["problems"] == [] and sum(result["kills"].values()) == 5
    assert result["rollouts"] == 4 * result["groups"] > 0


def test_faults_would_be_noticed():
    row = {"rollout_id": "g/0", "group_id": "g", "state": "delivered"}
    record = {"rollout_id": "g/0", "group_id": "g", "reward": 1.0}
    group = {"group_id": "g", "rollout_ids": ["g/0"]}
    assert _problems([row], [record], [group]) == []
    assert _problems([row | {"state": "running"}], [record], [group]) == ["g/0 ended as 'running'"]
    assert _problems([row], [record, record], [group]) == ["g/0 is 2 times in the ledger"]
    assert "g/0 is 0 times in the ledger" in _problems([row], [], [group])
    assert "g was trained 2 times" in _problems([row], [record], [group, group])
    assert _problems([row], [record], []) == ["g was not trained"]
    assert _problems([row], [record | {"reward": 0.0}], [group]) == ["g/0 has reward 0.0"]


def test_bad_input_is_named(tokenizer_dir, tmp_path):
    with pytest.raises(InputError, match="kills: 0"):
        run_faults(chat=tokenizer_dir, out=tmp_path, kills=0, seed=0)
    (tmp_path / "x").touch()
    with pytest.raises(InputError, match="is not empty"):
        run_faults(chat=tokenizer_dir, out=tmp_path, kills=1, seed=0)
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        run_faults(chat=tmp_path, out=tmp_path / "new", kills=1, seed=0)
