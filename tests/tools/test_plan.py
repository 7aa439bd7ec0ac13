import importlib.util
import itertools
import json
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from sandbox.errors import InputError
from t1_jax.config import load_config
from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import abstract, count_params, is_spec
from t1_jax.observability.flops import forward_flops, step_flops
from t1_jax.sharding import AXES, storage_axes
from t1_jax.tools import plan
from t1_jax.tools.chips import CHIPS, parse_topology
from t1_jax.tools.plan import PlanConfig
from t1_jax.tools.plan_table import check, differences, record

ROOT = Path(__file__).parents[2]
PLANS = ROOT / "configs" / "plan"
TABLE = json.loads((PLANS / "table.json").read_text())
PARAMETERS = {
    "qwen3_5_35b_a3b": (34_660_610_688, 3_454_988_928),
    "qwen3_5_122b_a10b": (122_111_526_912, 9_771_288_576),
    "qwen3_5_397b_a17b": (396_346_350_336, 17_349_040_896),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_models_have_their_parameters(name):
    assert count_params(load_config(ModelConfig, ROOT / f"configs/model/{name}.yaml")) == PARAMETERS[name]


def test_flops_are_twice_the_parameters_a_token_meets():
    config = load_config(ModelConfig, ROOT / "configs/model/qwen3_5_122b_a10b.yaml")
    flops = forward_flops(config, 1)
    assert flops.weights == 2 * (9_771_288_576 - 248320 * 3072)
    assert flops.attention == 12 * 4 * 32 * 256
    assert flops.delta_rule == 36 * 64 * 6 * 128 * 128
    assert forward_flops(config, 32767).attention == 2**14 * flops.attention
    assert step_flops(config, 10, 1) == 30 * flops.total


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_fits_its_devices(path, monkeypatch):
    """What can be said without a compiler: axes, heads, rows and parameters divide."""
    monkeypatch.chdir(ROOT)
    config = load_config(PlanConfig, path)
    chip, chips = parse_topology(config.topology)
    sizes = {axis: getattr(config.mesh, axis) for axis in ("replica", "fsdp", "expert", "context", "tensor")}
    product = 1
    for size in sizes.values():
        product *= size
    assert product == chips * chip.devices
    assert config.rows % (sizes["replica"] * sizes["fsdp"] * sizes["expert"]) == 0
    assert config.row_length % sizes["context"] == 0
    config.model.of_tensor_rank(sizes["tensor"])
    for spec in jax.tree.leaves(abstract(config.model), is_leaf=is_spec):
        split = {axis for axes in storage_axes(spec, sizes) for axis in axes}
        large = spec.shape[-1] * spec.shape[-2] >= 2**22 if len(spec.shape) > 1 else False
        assert not large or split >= {axis for axis, size in sizes.items() if size > 1} - {"replica"}


def test_the_search_starts_with_slices_that_could_hold_the_state(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config(PlanConfig, PLANS / "rl_122b_32k.yaml")
    first, lean, larger = itertools.islice(plan.candidates(config, "v5p"), 3)
    _, chips = parse_topology(first.topology)
    assert chips * CHIPS["v5p"].hbm_bytes >= 122_111_526_912 * 16 > chips // 2 * CHIPS["v5p"].hbm_bytes
    assert lean.topology == first.topology != larger.topology
    assert (first.mesh.context, lean.mesh.context) == (1, 4)
    for candidate in (first, lean, larger):
        assert candidate.rows * candidate.microbatches == config.rows
        assert candidate.rows % candidate.mesh.expert == 0
    with pytest.raises(InputError, match="plan --search v9"):
        next(plan.candidates(config, "v9"))


def test_rows_that_do_not_divide_are_refused(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = replace(load_config(PlanConfig, PLANS / "small.yaml"), rows=3)
    with pytest.raises(InputError, match="3 rows of 2048 tokens do not divide"):
        plan.lower_step(config, jax.sharding.AbstractMesh((1, 1, 2, 2, 1), AXES))


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="it takes libtpu: pip install -e '.[tpu]'"
)
def test_the_small_plan_is_as_the_table_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = plan.plan(load_config(PlanConfig, PLANS / "small.yaml"))
    assert found["fits"] and not differences(found, TABLE["small"])


def test_the_table_tells_what_has_changed(tmp_path):
    row = {"peak_hbm_bytes": 100, "fits": True, "kernels": {"gmm": 8}, "compile_seconds": 3.0}
    record(tmp_path / "table.json", "one", row)
    check(tmp_path / "table.json", "one", row | {"peak_hbm_bytes": 104, "compile_seconds": 9.0})
    changes = {"peak_hbm_bytes": 107, "fits": False, "kernels": {"gmm": 9}}
    with pytest.raises(InputError) as error:
        check(tmp_path / "table.json", "one", row | changes)
    for part in ("peak_hbm_bytes is 107", "the table has 100", "fits is False", "kernels.gmm is 9"):
        assert part in str(error.value)
    with pytest.raises(InputError, match="has no row two, expected one of one"):
        check(tmp_path / "table.json", "two", row)


@pytest.mark.parametrize("name", TABLE)
def test_the_table_is_of_the_plans_that_are_there(name, monkeypatch):
    """A row is what `launch.py plan --config configs/plan/NAME.yaml` wrote: here, that it still is of this
    config and of the formulas, and within the limits that it was made to show.
    """
    monkeypatch.chdir(ROOT)
    row, config = TABLE[name], load_config(PlanConfig, PLANS / f"{name}.yaml")
    tokens = config.rows * config.row_length * config.microbatches
    assert row["topology"] == config.topology and row["tokens_per_step"] == tokens
    assert row["model_flops_per_step"] == pytest.approx(step_flops(config.model, tokens, config.row_length))
    assert row["fits"] and row["peak_hbm_bytes"] <= row["hbm_per_chip_bytes"]
