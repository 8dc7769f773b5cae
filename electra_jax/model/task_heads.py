# SPDX-License-Identifier: Apache-2.0
"""The heads on top of a pre-trained encoder in fine-tuning, as pure functions.

    linear         [CLS] -> dropout -> one layer                              as published
    two_layer      [CLS] -> dropout -> dense -> GELU -> dropout -> one layer  Hugging Face's
    mean           mean of all tokens -> dropout -> one layer
    matched_means  means u, v of both texts -> u, v, |u - v|, u v -> dropout -> one layer
    token          every token -> dropout -> one layer
    span plain     every token -> two scores, of a start and of an end        BERT's
    span joint     the end is scored given the start; can also score that there is no answer

Hidden states [B, L, D] go in, float32 scores come out. Reference: google-research/electra,
finetune/classification, finetune/tagging and finetune/qa. As there, the initial weights of output
layers are Glorot-uniform. The features of `matched_means` are those of Conneau et al. 2017
(arXiv:1705.02364), who encode both texts apart.
"""

import dataclasses

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.model import layers

HIDDEN_SCORE = -1000.0  # added where no answer is allowed; the reference's number


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """The settings of one head. A kind ignores the fields that it does not need."""

    kind: str  # one of `INITS`
    width: int  # of the encoder
    outputs: int = 1  # C
    dropout: float = 0.1
    dropout_bits: int = 8
    initial_scale: float = 0.02  # of two_layer's inner layer, as in Hugging Face
    hidden: int = 512  # of the joint head's two small networks
    impossible: bool = False  # the joint head also scores that there is no answer
    beam: int = 20  # starts, and ends for each start


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Beam:
    """The joint head's best starts, best first, and the best ends of each, as token indices."""

    start_BP: jax.Array
    start_log_BP: jax.Array  # log-probabilities
    end_BPT: jax.Array
    end_log_BPT: jax.Array  # given the start
    impossible_B: jax.Array | None  # logit: above 0 there is no answer; None if it is not scored


def init(config: HeadConfig, key: jax.Array) -> dict:
    """Returns the `head` subtree of any kind."""
    return INITS[config.kind](config, key)


def init_linear(config: HeadConfig, key: jax.Array) -> dict:
    """Returns output [D, C], for `linear`, `mean` and `token`."""
    return {"output": layers.init_glorot(key, config.width, config.outputs)}


def init_matched_means(config: HeadConfig, key: jax.Array) -> dict:
    """Returns output [4 D, C]."""
    return {"output": layers.init_glorot(key, 4 * config.width, config.outputs)}


def init_two_layer(config: HeadConfig, key: jax.Array) -> dict:
    """Returns dense [D, D] and output [D, C]."""
    dense, output = jax.random.split(key)
    shape, bias = (config.width, config.width), (config.width,)
    return {
        "dense": layers.init_dense(dense, shape, bias, config.initial_scale),
        "output": layers.init_glorot(output, config.width, config.outputs),
    }


def init_span_plain(config: HeadConfig, key: jax.Array) -> dict:
    """Returns output [D, 2], for start and end."""
    return {"output": layers.init_glorot(key, config.width, 2)}


def init_span_joint(config: HeadConfig, key: jax.Array) -> dict:
    """Returns start [D, 1], end and, if configured, impossible: [2 D, hidden], [hidden, 1] each."""
    start, *pairs = jax.random.split(key, 5)

    def pair(dense, output):
        return {
            "dense": layers.init_glorot(dense, 2 * config.width, config.hidden),
            "output": layers.init_glorot(output, config.hidden, 1),
        }

    head = {"start": layers.init_glorot(start, config.width, 1), "end": pair(*pairs[:2])}
    return head | ({"impossible": pair(*pairs[2:])} if config.impossible else {})


INITS = {
    "linear": init_linear,
    "two_layer": init_two_layer,
    "mean": init_linear,
    "matched_means": init_matched_means,
    "token": init_linear,
    "span_plain": init_span_plain,
    "span_joint": init_span_joint,
}


def linear(
    config: HeadConfig,
    params: dict,
    hidden_BLD: jax.Array,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None,
) -> jax.Array:
    """Returns scores of each row from its first token, [B, C]. Dropout only if keys are given."""
    del batch
    cls_BD = hidden_BLD[:, 0]
    (drawn_BD,) = _draw(config, keys_B, cls_BD)
    return _scores(params["output"], layers.dropout(cls_BD, config.dropout, drawn_BD))


def two_layer(
    config: HeadConfig,
    params: dict,
    hidden_BLD: jax.Array,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None,
) -> jax.Array:
    """Returns scores like `linear`, with a hidden layer in between."""
    del batch
    cls_BD = hidden_BLD[:, 0]
    drawn_BD, inner_BD = _draw(config, keys_B, cls_BD, cls_BD)
    cls_BD = layers.dropout(cls_BD, config.dropout, drawn_BD)
    cls_BD = layers.gelu(layers.dense(params["dense"], cls_BD))
    return _scores(params["output"], layers.dropout(cls_BD, config.dropout, inner_BD))


def mean(
    config: HeadConfig,
    params: dict,
    hidden_BLD: jax.Array,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None,
) -> jax.Array:
    """Returns scores of each row like `linear`, from the mean of its real tokens.

    No objective of pre-training asks [CLS] for anything about the row; docs/LOG.md (2026-11-25) has
    both heads on one encoder. [CLS] and [SEP] count as tokens.
    """
    mean_BD = _mean(hidden_BLD, batch.real_BL).astype(hidden_BLD.dtype)
    (drawn_BD,) = _draw(config, keys_B, mean_BD)
    return _scores(params["output"], layers.dropout(mean_BD, config.dropout, drawn_BD))


def matched_means(
    config: HeadConfig,
    params: dict,
    hidden_BLD: jax.Array,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None,
) -> jax.Array:
    """Returns scores of each row like `linear`, from the means of both its texts, matched.

    Nothing in a short pre-training compares two texts, so the head does: its layer reads both
    means, their difference and their product (Conneau et al. 2017, arXiv:1705.02364). [CLS] belongs
    to neither text, a [SEP] to the text before it. Without a second text its mean is 0.
    """
    text_BL = batch.real_BL.at[:, 0].set(False)
    u_BD, v_BD = (_mean(hidden_BLD, text_BL & (batch.types_BL == text)) for text in (0, 1))
    # Four times as wide as the hidden states. In float32: two means that are close have a
    # difference of few digits.
    matched_BD = jnp.concatenate([u_BD, v_BD, jnp.abs(u_BD - v_BD), u_BD * v_BD], axis=-1)
    (drawn_BD,) = _draw(config, keys_B, matched_BD)
    return _scores(params["output"], layers.dropout(matched_BD, config.dropout, drawn_BD))


def token(
    config: HeadConfig,
    params: dict,
    hidden_BLD: jax.Array,
    batch: batch_lib.Batch,
    keys_B: jax.Array | None,
) -> jax.Array:
    """Returns scores of each token, [B, L, C]."""
    del batch
    (drawn_BLD,) = _draw(config, keys_B, hidden_BLD)
    return _scores(params["output"], layers.dropout(hidden_BLD, config.dropout, drawn_BLD))


# kind -> (config, params, hidden_BLD, batch, keys_B) -> scores. The span heads have other outputs.
SCORES = {
    "linear": linear,
    "two_layer": two_layer,
    "mean": mean,
    "matched_means": matched_means,
    "token": token,
}


def span_plain(
    params: dict, hidden_BLD: jax.Array, allowed_BL: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns scores of each token as a start and as an end, [B, L] each."""
    scores_BL2 = _scores(params["output"], hidden_BLD)
    return tuple(_within(scores_BL2[..., side], allowed_BL) for side in (0, 1))


def span_joint(
    params: dict, hidden_BLD: jax.Array, allowed_BL: jax.Array, start_B: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Returns scores for training: start and, given the true start, end [B, L]; impossible [B]."""
    start_BL = _starts(params, hidden_BLD, allowed_BL)
    start_BD = _at(hidden_BLD, start_B[:, None])[:, 0]
    from_token_BLF, from_start_F = _halves(params["end"]["dense"], hidden_BLD)
    end_BL = _ends(params["end"], from_token_BLF, from_start_F(start_BD), allowed_BL)
    return start_BL, end_BL, _impossible(params, hidden_BLD, start_BL)


def span_beam(
    config: HeadConfig, params: dict, hidden_BLD: jax.Array, allowed_BL: jax.Array
) -> Beam:
    """Returns the prediction: the best starts, and for each of them the best ends."""
    start_BL = _starts(params, hidden_BLD, allowed_BL)
    width = min(config.beam, allowed_BL.shape[1])
    start_log_BP, start_BP = lax.top_k(jax.nn.log_softmax(start_BL), width)
    from_token_BLF, from_start_F = _halves(params["end"]["dense"], hidden_BLD)

    def ends(place_B):
        start_BD = _at(hidden_BLD, place_B[:, None])[:, 0]
        end_BL = _ends(params["end"], from_token_BLF, from_start_F(start_BD), allowed_BL)
        return lax.top_k(jax.nn.log_softmax(end_BL), width)

    # One start at a time: [B, P, L, hidden] would take P times the memory.
    end_log_PBT, end_PBT = lax.map(ends, start_BP.T)
    return Beam(
        start_BP,
        start_log_BP,
        end_PBT.swapaxes(0, 1),
        end_log_PBT.swapaxes(0, 1),
        _impossible(params, hidden_BLD, start_BL),
    )


def _starts(params, hidden_BLD, allowed_BL):
    return _within(_scores(params["start"], hidden_BLD)[..., 0], allowed_BL)


def _halves(dense, hidden_BLD):
    """Splits a product with [start, token]: its half for all tokens, and a function of starts.

    The half for tokens is computed once for all starts of a beam.
    """
    kernel_DF = dense["kernel"]
    width = kernel_DF.shape[0] // 2
    second_BLF = layers.dense({**dense, "kernel": kernel_DF[width:]}, hidden_BLD)
    return second_BLF, lambda x_BD: layers.dense({"kernel": kernel_DF[:width]}, x_BD)


def _ends(params, from_token_BLF, from_start_BF, allowed_BL):
    hidden_BLF = layers.gelu(from_token_BLF + from_start_BF[:, None])
    return _within(_scores(params["output"], hidden_BLF)[..., 0], allowed_BL)


def _impossible(params, hidden_BLD, start_BL):
    """Returns scores from two states: that of [CLS], and the mean of all tokens' states, weighted
    by each token's probability of being the start."""
    if "impossible" not in params:
        return None
    weights_BL = jax.nn.softmax(start_BL).astype(hidden_BLD.dtype)
    start_BD = jnp.einsum("BL,BLD->BD", weights_BL, hidden_BLD)
    both_BD = jnp.concatenate([hidden_BLD[:, 0], start_BD], -1)
    hidden_BF = layers.gelu(layers.dense(params["impossible"]["dense"], both_BD))
    return _scores(params["impossible"]["output"], hidden_BF)[..., 0]


def _within(scores_BL, allowed_BL):
    return scores_BL + jnp.where(allowed_BL, 0.0, HIDDEN_SCORE)


def _at(hidden_BLD, place_BN):
    return jnp.take_along_axis(hidden_BLD, place_BN[:, :, None], axis=1)


def _scores(params, x):
    return layers.dense(params, x.astype(jnp.float32))


def _mean(hidden_BLD, counted_BL):
    """The mean of the tokens that count, float32; 0 where none does."""
    counted_BL1 = counted_BL[..., None].astype(jnp.float32)
    sum_BD = (hidden_BLD.astype(jnp.float32) * counted_BL1).sum(1)
    return sum_BD / jnp.maximum(counted_BL1.sum(1), 1)


def _draw(config, keys_B, *places):
    sites = [(config.dropout, x.shape[1:]) for x in places]
    return layers.draw(keys_B, sites, config.dropout_bits)
