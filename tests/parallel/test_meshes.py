import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh

from sandbox.errors import InputError
from t1_jax.parallel.axes import Parallel
from t1_jax.parallel.dispatch import gathers
from t1_jax.sharding import AXES, MeshConfig
from t1_jax.train.step import place_batch
from tests.train.micro import MICRO

ROOT = Path(__file__).parents[2]
NAMES = (
    "replica",
    "fsdp",
    "expert",
    "context",
    "tensor",
    "fsdp x expert x context",
    "replica x fsdp x tensor",
    "expert x tensor",
    "context x tensor",
    "replica x expert x context",
    "fsdp x context",
)


@pytest.fixture(scope="module")
def equal():
    """The meshes of eight devices whose steps equal one device's, and what went wrong with the next one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.parallel.meshes"], capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout.splitlines(), done.stderr[-2000:]


@pytest.mark.parametrize("name", NAMES)
def test_a_mesh_of_eight_devices_is_one_device(equal, name):
    names, error = equal
    assert name in names, error


def test_tokens_are_gathered_among_few_devices_and_sent_among_many():
    sizes = {count: Parallel((1, 1, count, 1, 1)) for count in (2, 8, 16)}
    assert [gathers(parallel, 8) for parallel in sizes.values()] == [True, True, False]


@pytest.mark.parametrize(("tensor", "message"), [(3, "num_attention_heads 2"), (4, "num_attention_heads 2")])
def test_heads_that_do_not_divide_are_refused(tensor, message):
    with pytest.raises(InputError, match=f"tensor {tensor} does not divide the model's {message}"):
        MICRO.of_tensor_rank(tensor)


def test_a_dispatch_of_no_tokens_is_refused():
    with pytest.raises(InputError, match=r"mesh.dispatch_tokens is 0"):
        MeshConfig(dispatch_tokens=0)


@pytest.mark.parametrize(
    ("rows", "length", "message"), [(6, 8, "is 4, which does not divide rows 6"), (4, 9, "row_length 9")]
)
def test_rows_that_do_not_divide_are_refused(rows, length, message):
    with pytest.raises(InputError, match=message):
        place_batch({"tokens": np.zeros((1, rows, length), np.int32)}, AbstractMesh((1, 2, 2, 2, 1), AXES))


def test_shards_of_one_device_are_whole():
    one = Parallel()
    x = jnp.arange(6.0).reshape(2, 3)
    for same in (
        one.sum(x, "fsdp"),
        one.gather(x, "fsdp", "expert", dim=1),
        one.exchange(x, "tensor", split=0, join=1),
    ):
        assert same is x
    assert not one.from_previous(x, "context").any()
