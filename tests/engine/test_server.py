"""The HTTP contract, over a real socket, a real checkpoint folder and a real model."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import signal
import subprocess
import sys

import aiohttp
import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import save_checkpoint
from t1_jax.data.tokenizer import train_tokenizer
from t1_jax.engine.server import ServeConfig, Server, _bind
from tests.fresh import fresh_params

from .conftest import CONFIG, MAX_LENGTH, prompt


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory, params, other_params):
    """Two versions of one model with a tokenizer, and a model of another shape."""
    root = tmp_path_factory.mktemp("checkpoints")
    train_tokenizer(["list the files in /app and count them"] * 4, 300, root / "tokenizer")
    for version, weights in ((3, params), (4, other_params)):
        save_checkpoint(
            root / f"v{version}", weights, CONFIG, tokenizer_dir=root / "tokenizer", version=version
        )
    other = dataclasses.replace(CONFIG, moe_intermediate_size=8)
    save_checkpoint(root / "other", fresh_params(other), other, version=9)
    return root


@pytest.fixture
async def client(checkpoints):
    server = Server(
        ServeConfig(
            checkpoint=str(checkpoints / "v3"),
            slots=4,
            snapshots=2,
            max_length=MAX_LENGTH,
            decode_block=4,
            max_waiting=4,
        )
    )
    await server.start()
    test_server = TestServer(server.app)
    await test_server.start_server()
    async with TestClient(test_server) as client:
        client.engine = server
        yield client
    await server.stop()


async def post(client, path, body, status=200):
    async with client.post(path, json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


def body(ids, **sampling):
    return {
        "input_ids": ids,
        "return_logprob": True,
        "return_routed_experts": True,
        "sampling_params": {"max_new_tokens": 6, "sampling_seed": 1, "ignore_eos": True, **sampling},
    }


def rows(meta):
    data = np.frombuffer(base64.b64decode(meta["routed_experts"]), np.dtype(meta["routed_experts_dtype"]))
    return data.reshape(meta["routed_experts_shape"])


async def test_episode(client):
    first = await post(client, "/generate", body(prompt(0)))
    meta = first["meta_info"]
    assert len(first["output_ids"]) == 6 and isinstance(first["text"], str)
    assert [item[1] for item in meta["output_token_logprobs"]] == first["output_ids"]
    assert all(item[0] <= 0 and item[2] is None for item in meta["output_token_logprobs"])
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert (
        meta["weight_versions"] == [{"version": "3", "start": 0, "end": 6}] and meta["weight_version"] == "3"
    )
    assert rows(meta).shape == (12 + 6 - 1, 4, 2) and rows(meta).dtype == np.uint8 and rows(meta).max() < 8
    ids = [*prompt(0), *first["output_ids"], 5, 6, 7]
    second = await post(client, "/generate", {**body(ids), "routed_experts_start_len": 17, "rid": "mine"})
    assert second["meta_info"]["cached_tokens"] == 17 and second["meta_info"]["id"] == "mine"
    assert rows(second["meta_info"]).shape[0] == len(ids) + 6 - 1 - 17
    assert second["meta_info"]["routed_experts_start_len"] == 17
    again = await post(
        client, "/generate", {"input_ids": prompt(0), "sampling_params": body([])["sampling_params"]}
    )
    assert again["output_ids"] == first["output_ids"]
    assert not {"routed_experts", "output_token_logprobs"} & again["meta_info"].keys()


async def test_bad_requests_leave_the_server_serving(client):
    async with client.post("/generate", data=b"{not json") as response:
        assert response.status == 400 and (await response.json())["error"]["type"] == "invalid_request_error"
    for path, bad, status in (
        ("/generate", [1, 2], 400),
        ("/generate", {}, 400),
        ("/generate", body([300]), 400),
        ("/generate", body([1] * 64), 400),
        ("/generate", body([1], temperature=-1), 400),
        ("/nowhere", {}, 404),
        ("/abort_request", {}, 400),
        ("/pause_generation", {"mode": "maybe"}, 400),
        ("/v1/completions", {}, 400),
        ("/v1/chat/completions", {"messages": "hi"}, 400),
        ("/update_weights_from_disk", {}, 400),
        ("/v1/chat/completions", {"messages": [{"role": "wizard", "content": "x"}]}, 400),
    ):
        error = (await post(client, path, bad, status))["error"]
        assert error["message"] and error["type"]
    assert (await post(client, "/generate", body([1] * 64), 400))["error"][
        "type"
    ] == "context_length_exceeded"
    assert (await client.get("/health")).status == 200
    assert len((await post(client, "/generate", body(prompt(1))))["output_ids"]) == 6


async def test_full_queue_answers_429(client):
    await post(client, "/pause_generation", {})
    waiting = [
        asyncio.ensure_future(post(client, "/generate", body(prompt(i), max_new_tokens=1))) for i in range(4)
    ]
    while (await metrics(client))["waiting_requests"] < 4:
        await asyncio.sleep(0)
    async with client.post("/generate", json=body(prompt(9))) as response:
        assert response.status == 429 and response.headers["Retry-After"] == "1"
        assert (await response.json())["error"]["type"] == "overloaded_error"
    await post(client, "/continue_generation", {})
    assert all(len(answer["output_ids"]) == 1 for answer in await asyncio.gather(*waiting))


async def metrics(client):
    async with client.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    return {
        line.split()[0].removeprefix("t1_engine_"): float(line.split()[1]) for line in lines if line[0] != "#"
    }


async def test_weight_update(client, checkpoints):
    before = await post(client, "/generate", body(prompt(2)))
    answer = await post(
        client, "/update_weights_from_disk", {"model_path": str(checkpoints / "v4"), "weight_version": "12"}
    )
    assert answer["success"] and answer["num_paused_requests"] == 0
    after = await post(client, "/generate", body(prompt(2)))
    assert after["meta_info"]["weight_version"] == "12" and after["meta_info"]["cached_tokens"] == 0
    assert after["meta_info"]["output_token_logprobs"] != before["meta_info"]["output_token_logprobs"]
    info = await (await client.get("/get_model_info")).json()
    assert info["weight_version"] == "12" and info["model_path"] == str(checkpoints / "v4")
    for path, message in (
        ("missing", "config.json"),
        ("other", "moe_intermediate_size is 8, the running engine has 16"),
    ):
        refused = await post(
            client, "/update_weights_from_disk", {"model_path": str(checkpoints / path)}, 400
        )
        assert not refused["success"] and message in refused["message"] and refused["error"]["message"]
    await post(client, "/update_weights_from_disk", {"model_path": str(checkpoints / "v3")})
    back = await post(client, "/generate", body(prompt(2)))
    assert back["output_ids"] == before["output_ids"] and back["meta_info"]["weight_version"] == "3"


async def test_update_while_generating_and_paused(client, checkpoints):
    running = asyncio.ensure_future(post(client, "/generate", body(prompt(3), max_new_tokens=50)))
    while not (await metrics(client))["decoded_tokens_total"]:
        await asyncio.sleep(0)
    await post(client, "/pause_generation", {"mode": "retract"})
    await post(client, "/update_weights_from_disk", {"model_path": str(checkpoints / "v4")})
    await post(client, "/continue_generation", {})
    answer = await running
    spans = answer["meta_info"]["weight_versions"]
    assert spans[0]["start"] == 0 and spans[-1]["end"] == 50
    # the pause may have come after the last block: then there is nothing left for the new weights
    assert [span["version"] for span in spans] in (["3", "4"], ["3"])
    assert rows(answer["meta_info"]).shape[0] == 12 + 50 - 1


async def test_abort_and_a_client_that_leaves(client):
    await post(client, "/pause_generation", {})
    waiting = asyncio.ensure_future(post(client, "/generate", {**body(prompt(4)), "rid": "a"}))
    leaving = asyncio.ensure_future(post(client, "/generate", {**body(prompt(5)), "rid": "b"}))
    while (await metrics(client))["waiting_requests"] < 2:
        await asyncio.sleep(0)
    leaving.cancel()
    while (await metrics(client))["waiting_requests"] > 1:
        await asyncio.sleep(0)
    assert (await post(client, "/abort_request", {"rid": "a"}))["aborted"] == 1
    answer = await waiting
    assert answer["meta_info"]["finish_reason"]["type"] == "abort" and answer["output_ids"] == []
    await post(client, "/continue_generation", {})
    assert (await post(client, "/abort_request", {"abort_all": True}))["aborted"] == 0


async def test_openai_routes(client):
    models = await (await client.get("/v1/models")).json()
    assert models["data"][0]["id"] == "v3"
    done = await post(
        client,
        "/v1/completions",
        {
            "model": "v3",
            "prompt": "list the files",
            "max_tokens": 5,
            "seed": 1,
            "logprobs": 1,
            "return_token_ids": True,
            "ignore_eos": True,
        },
    )
    choice = done["choices"][0]
    assert (
        done["usage"]["completion_tokens"]
        == 5
        == len(choice["token_ids"])
        == len(choice["logprobs"]["token_logprobs"])
    )
    ids = client.engine.text.encode("list the files")
    native = await post(client, "/generate", body(ids, max_new_tokens=5, sampling_seed=1))
    assert native["output_ids"] == choice["token_ids"]
    by_text = await post(
        client, "/generate", {"text": "list the files", "sampling_params": {"max_new_tokens": 1}}
    )
    assert by_text["meta_info"]["prompt_tokens"] == len(ids)
    chat = await post(
        client,
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            ],
            "max_tokens": 4,
            "logprobs": True,
            "seed": 3,
        },
    )
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert len(chat["choices"][0]["logprobs"]["content"]) == chat["usage"]["completion_tokens"] <= 4
    cut = await post(
        client, "/v1/completions", {"prompt": "list", "max_tokens": 5, "seed": 1, "stop": choice["text"][-1:]}
    )
    assert choice["text"][-1:] not in cut["choices"][0]["text"]


def test_port_in_use_and_bad_config(checkpoints):
    with _bind(ServeConfig(checkpoint="x", port=0)) as taken, pytest.raises(InputError, match="in use"):
        _bind(ServeConfig(checkpoint="x", port=taken.getsockname()[1]))
    with pytest.raises(InputError, match="slots is 0"):
        ServeConfig(checkpoint="x", slots=0)


async def test_missing_checkpoint_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        await Server(ServeConfig(checkpoint=str(tmp_path))).start()


async def test_process_serves_and_ends_cleanly_on_sigterm(checkpoints):
    code = (
        "import sys; from t1_jax.engine import ServeConfig, serve; "
        "serve(ServeConfig(checkpoint=sys.argv[1], port=0, slots=2))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(checkpoints / "v3"),
        stdout=subprocess.PIPE,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    line = (await process.stdout.readline()).decode()
    assert line.startswith("engine listening on http://127.0.0.1:")
    async with aiohttp.ClientSession() as session, session.get(f"{line.split()[-1]}/health") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
