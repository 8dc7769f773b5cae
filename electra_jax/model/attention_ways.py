# SPDX-License-Identifier: Apache-2.0
"""The ways in which a layer computes its attention, global or local, by their names.

`WAYS` has one function for each value of `EncoderConfig.attention`. It takes a batch's documents
and returns the attention of one layer: (is the layer global, random numbers for dropout, query,
key, value) -> mixed values [B, L, H, K].
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from electra_jax.core import placing
from electra_jax.model import attention
from electra_jax.model.encoder_config import EncoderConfig

DIRECTIONS = {"left_to_right": jnp.tril, "right_to_left": jnp.triu}  # of a matrix [query, key]


def einsum(
    c: EncoderConfig, placement: placing.Placement, documents_BL: jax.Array
) -> Callable[..., jax.Array]:
    """`attention.einsum` over the keys that each query sees."""
    del placement  # XLA splits it by itself
    visible_of = _visible(c, documents_BL)

    def mix(is_global, drawn_BHLM, query_BLHK, key_BLHK, value_BLHK):
        return attention.einsum(
            query_BLHK,
            key_BLHK,
            value_BLHK,
            visible_of(is_global),
            dropout=c.attention_dropout,
            drawn_BHLM=drawn_BHLM,
            accumulate_in=jnp.float32 if c.products == "cpu" else None,
        )

    return mix


def fused(
    c: EncoderConfig, placement: placing.Placement, documents_BL: jax.Array
) -> Callable[..., jax.Array]:
    """`attention.fused` on the heads that each device holds."""
    kernel = functools.partial(
        attention.fused, dropout=c.attention_dropout, bits=c.dropout_bits, direction=c.direction
    )
    return _in_kernel(c, placement, documents_BL, kernel)


def blockwise(
    c: EncoderConfig, placement: placing.Placement, documents_BL: jax.Array
) -> Callable[..., jax.Array]:
    """`attention.blockwise` on the heads that each device holds."""
    kernel = functools.partial(
        attention.blockwise, dropout=c.attention_dropout, direction=c.direction
    )
    return _in_kernel(c, placement, documents_BL, kernel)


def splash(
    c: EncoderConfig, placement: placing.Placement, documents_BL: jax.Array
) -> Callable[..., jax.Array]:
    """`attention.splash` on the heads that each device holds."""
    globally = placement.headwise(attention.splash)
    locally = placement.headwise(functools.partial(attention.splash, window=c.local_window))

    def mix(is_global, _, *query_key_value):
        return _by_reach(is_global, globally, locally, (*query_key_value, documents_BL))

    return mix


WAYS = {"einsum": einsum, "fused": fused, "blockwise": blockwise, "splash": splash}


def _in_kernel(c, placement, documents_BL, kernel):
    """A kernel that drops probabilities by the random numbers of each head."""
    globally = placement.headwise(kernel)
    locally = placement.headwise(functools.partial(kernel, window=c.local_window))

    def mix(is_global, drawn, *query_key_value):
        by_head = () if drawn is None else (drawn,)
        return _by_reach(
            is_global,
            lambda *x: globally(*x, documents_BL, by_head=by_head),
            lambda *x: locally(*x, documents_BL, by_head=by_head),
            query_key_value,
        )

    return mix


def _by_reach(is_global, globally, locally, inputs):
    """Runs the layer's global or local attention; `is_global` is None if all layers are global."""
    if is_global is None:
        return globally(*inputs)
    if isinstance(is_global, np.bool_):  # unrolled layers: known before compiling
        return (globally if is_global else locally)(*inputs)
    return lax.cond(is_global, globally, locally, *inputs)


def _visible(c, documents_BL):
    """Returns a function: is a layer global -> which keys its queries see, bool [B, L, M]."""
    global_BLM = attention.visible(documents_BL)
    if c.direction != "both":
        global_BLM &= DIRECTIONS[c.direction](jnp.ones_like(global_BLM))

    if not c.local_window:
        return lambda is_global: global_BLM

    local_BLM = global_BLM & attention.near(documents_BL.shape[1], c.local_window)
    return lambda is_global: jnp.where(is_global, global_BLM, local_BLM)
