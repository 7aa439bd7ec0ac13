"""The multi-token prediction head of Qwen3.5: from a token's hidden state and the next token to the next.

    x_t = fc [norm(embed(token_{t+1})); norm(hidden_t)]        hidden_t is after the model's final norm
    hidden'_t = norm(layer(x_t))                               one gated-attention layer with its own experts
    logits of token_{t+2} = hidden'_t @ lm_head                the model's embedding and output head

Whether hidden_t comes before or after the final norm is in no paper; the released heads accept most drafts
when it comes after (ggml-org/llama.cpp#24025, ModelTC/LightLLM#1402). The head routes live, and its choices
are part of no routing record.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.rounding import matmul
from t1_jax.model.config import ModelConfig
from t1_jax.model.norm import rms_norm
from t1_jax.model.parameters import Params, abstract, cast_params
from t1_jax.model.remat import RematPolicy, rematerialised
from t1_jax.model.transformer import LayerInputs, embed_tokens, full_layer
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.parameters import gather_params


def head_only(params: Params) -> Params:
    """The same parameters, of which only the head's get a gradient."""
    fixed = {name: part for name, part in params.items() if name != "mtp"}
    return {**jax.lax.stop_gradient(fixed), "mtp": params["mtp"]}


def mtp_hidden(
    params: Params,
    config: ModelConfig,
    hidden: Float[Array, "B T D"],
    next_tokens: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    *,
    remat_policy: RematPolicy = "none",
    parallel: Parallel = SINGLE,
) -> Float[Array, "B T D"]:
    """What `transformer.token_statistics` predicts the token after the next one from.

    Args:
      params: with the head's.
      config: with `mtp_num_hidden_layers` 1.
      hidden: of `transformer.forward`.
      next_tokens: the token after each. Of a document's last token it is no token of its own; nothing of the
        document sees what comes out there.
      segment_ids: as given to `transformer.forward`, like `positions`.
      remat_policy: of the layer.
      parallel: on a mesh the arguments are this device's parts.
    """
    specs = abstract(config)
    head = cast_params(params, config)["mtp"]
    with jax.named_scope("mtp"):
        embedded = embed_tokens(config, parallel, params["embed"].astype(config.dtype), next_tokens)
        both = [
            rms_norm(embedded, head["pre_fc_norm_embedding"], config),
            rms_norm(hidden, head["pre_fc_norm_hidden"], config),
        ]
        fc = gather_params(parallel, specs["mtp"]["fc"], head["fc"])
        mixed = matmul(jnp.concatenate(both, axis=-1), fc)
        inputs = LayerInputs(
            config, parallel, specs["mtp"], positions, None, None, segment_ids, segment_ids > 0
        )
        layer = rematerialised(partial(full_layer, inputs), remat_policy)
        out, _ = layer(mixed, head["full"], head["moe"], None, None)
        return rms_norm(out, head["norm"], config)
