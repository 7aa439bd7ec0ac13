import re

import jinja2
import pytest

from t1_jax.engine.request import GenerateResult, Limits, RequestError, parse_generate
from t1_jax.engine.text import TextFormat

LIMITS = Limits(vocab_size=64, max_length=16, default_stop_ids=(2,))


def test_defaults():
    request = parse_generate({"input_ids": [1, 2, 3]}, None, LIMITS)
    assert request.input_ids.tolist() == [1, 2, 3] and request.rid and request.routed_experts_start is None
    assert request.sampling.stop_token_ids == (2,)
    assert request.sampling.max_new_tokens == 13  # what the cache still holds


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "image"}, "x"])
def test_images_are_refused(part):
    text = TextFormat(tokenizer=None, template=jinja2.Template(""), stop_ids=())
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    with pytest.raises(RequestError, match=r"(image|'x').*expected text: images are not read"):
        text.chat_ids(messages, None, {})


def test_everything_that_a_client_of_sglang_sends():
    request = parse_generate(
        {
            "rid": "r",
            "input_ids": [5] * 4,
            "return_logprob": True,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "stream": False,
            "return_routed_experts": True,
            "routed_experts_start_len": 4,
            "priority": 0,
            "sampling_params": {
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 7,
                "max_new_tokens": 3,
                "sampling_seed": 2**40,
                "stop_token_ids": [9],
                "skip_special_tokens": False,
                "no_stop_trim": True,
                "spaces_between_special_tokens": False,
                "ignore_eos": True,
                "n": 1,
            },
        },
        None,
        LIMITS,
    )
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 7, 2**40)
    assert sampling.stop_token_ids == (9,) and sampling.truncates and request.routed_experts_start == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": []}, "non-empty list"),
        ({"input_ids": None}, "non-empty list"),
        ({"input_ids": [[1]]}, "input_ids[0] is [1]"),
        ({"input_ids": [1, True]}, "input_ids[1] is True"),
        ({"input_ids": [1, 64]}, "input_ids[1] is 64, outside the vocabulary of 64"),
        ({"input_ids": [-1]}, "outside the vocabulary"),
        ({"input_ids": [1] * 16}, "the prompt has 16 tokens, at most 15 fit"),
        ({"rid": 5}, "rid is 5"),
        ({"stream": True}, "stream is not supported"),
        ({"top_logprobs_num": 3}, "top_logprobs_num 0"),
        ({"return_routed_experts": True, "routed_experts_start_len": 4}, "routed_experts_start_len is 4"),
        ({"return_routed_experts": True, "routed_experts_start_len": -1}, "routed_experts_start_len is -1"),
        ({"sampling_params": []}, "must be an object"),
        ({"sampling_params": {"temperature": "hot"}}, "temperature is 'hot'"),
        ({"sampling_params": {"temperature": float("nan")}}, "temperature is nan"),
        ({"sampling_params": {"temperature": -0.1}}, "temperature is -0.1"),
        ({"sampling_params": {"top_p": 0}}, "top_p is 0"),
        ({"sampling_params": {"top_k": 0}}, "top_k is 0"),
        ({"sampling_params": {"max_new_tokens": 0}}, "max_new_tokens is 0"),
        ({"sampling_params": {"max_new_tokens": 1.5}}, "max_new_tokens is 1.5"),
        ({"sampling_params": {"sampling_seed": -1}}, "sampling_seed is -1"),
        ({"sampling_params": {"stop_token_ids": [99]}}, "stop_token_ids[0] is 99"),
        ({"sampling_params": {"stop_token_ids": list(range(9))}}, "9 stop ids"),
        ({"sampling_params": {"stop": ["x"]}}, "stop is ['x']"),
        ({"sampling_params": {"n": 2}}, "n is 2"),
        ({"sampling_params": {"frequency_penalty": 0.5}}, "frequency_penalty is 0.5"),
        ({"sampling_params": {"temprature": 1}}, "temprature is unknown"),
        ({"sampling_params": {"ignore_eos": "yes"}}, "ignore_eos is 'yes'"),
    ],
)
def test_what_would_change_the_sample_is_never_ignored(change, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        parse_generate({"input_ids": [1, 2, 3], **change}, None, LIMITS)


def test_version_spans_tile_the_output():
    result = GenerateResult(
        rid="r",
        output_ids=[1, 2, 3],
        logprobs=[0.0] * 3,
        versions=["1", "1", "2"],
        finish_reason={"type": "stop"},
        prompt_tokens=1,
        cached_tokens=0,
    )
    assert result.version_spans == [
        {"version": "1", "start": 0, "end": 2},
        {"version": "2", "start": 2, "end": 3},
    ]
