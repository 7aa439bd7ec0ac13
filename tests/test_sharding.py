import jax
import pytest
from jax.sharding import PartitionSpec

from sandbox.errors import InputError
from t1_jax.config import load_config
from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import ParamSpec, abstract
from t1_jax.sharding import AXES, MeshConfig, make_mesh, param_shardings, storage_axes


@pytest.mark.parametrize(
    ("sizes", "devices", "message"),
    [
        ({"fsdp": 3}, 8, "fsdp 3 .* does not use exactly the 8 devices"),
        ({"fsdp": -1, "tensor": -1}, 8, "at most one axis may be -1"),
        ({"tensor": 3}, 8, "does not use exactly the 8"),
        ({"expert": 16}, 8, "does not use exactly the 8"),
        ({"replica": 0}, 8, "does not use exactly the 8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, devices, message):
    with pytest.raises(InputError, match=message):
        make_mesh(MeshConfig(**sizes), list(range(devices)))


def test_axes_of_one_stay():
    mesh = make_mesh(devices=jax.devices()[:1])
    assert mesh.axis_names == AXES and mesh.devices.shape == (1, 1, 1, 1, 1)


def test_every_parameter_is_placed_by_its_axes():
    config = load_config(ModelConfig, "configs/model/tiny.yaml")
    placed = param_shardings(abstract(config), make_mesh(devices=jax.devices()[:1]))
    spread = ("fsdp", "context", "tensor")
    assert placed["moe"]["gate_up"].spec == PartitionSpec(None, None, "expert", spread, None)
    assert placed["moe"]["down"].spec[2:] == ("expert", ("tensor", "fsdp", "context"), None)
    assert placed["embed"].spec == PartitionSpec(None, ("fsdp", "expert", "context", "tensor"))
    assert placed["final_norm"].spec == PartitionSpec(None)


def test_an_axis_that_does_not_divide_is_left_out():
    spec = ParamSpec(shape=(12, 8), axes=("embed", "heads"))
    sizes = {"replica": 2, "fsdp": 4, "expert": 2, "context": 3, "tensor": 1}
    assert storage_axes(spec, sizes) == (("fsdp", "context", "tensor"), ())
