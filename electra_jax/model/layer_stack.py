# SPDX-License-Identifier: Apache-2.0
"""Runs the layers of a stack one after the other: as one loop, or unrolled.

Nothing here knows what a layer computes. What differs between layers is stacked along a first
dimension, and settings of speed alone choose between the ways: how long compiling takes, what is in
memory until the backward pass, and in what form the gradients of the weights come together.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

REMAT = {  # what the backward pass keeps; it computes the rest again
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def run(
    layer: Callable,
    hidden_BLD: jax.Array,
    stacked: tuple[Any, Any, Any],
    *,
    count: int,
    scan: bool,
    joined_gradients: bool,
    remat: str,
) -> jax.Array:
    """Returns the hidden states after all layers.

    Args:
      layer: (hidden states, inputs of one layer) -> (hidden states, None), as `lax.scan` calls it.
      stacked: the inputs of all layers, [layers, ...]: (keys, weights, more).
      count: the number of layers.
      scan: whether they run as one loop.
      joined_gradients: of unrolled layers, `split_layers_joining_gradients`.
      remat: 'none', or a key of `REMAT`.
    """
    if remat != "none":
        layer = jax.checkpoint(layer, policy=REMAT[remat], prevent_cse=not scan)

    if scan:
        return lax.scan(layer, hidden_BLD, stacked)[0]

    keys, weights, more = stacked
    split = split_layers_joining_gradients if joined_gradients else split_layers
    for number, of_layer in enumerate(split(count, weights)):
        if remat != "none":
            hidden_BLD, of_layer = _tie_backward_passes(hidden_BLD, of_layer)
        keys_B, more_here = jax.tree.map(lambda x, number=number: x[number], (keys, more))
        hidden_BLD, _ = layer(hidden_BLD, (keys_B, of_layer, more_here))
    return hidden_BLD


def cut(stacked: Any, lowest: int) -> tuple[Any, Any]:
    """Returns the inputs of the lowest layers, and those of the layers above them."""
    return jax.tree.map(lambda x: x[:lowest], stacked), jax.tree.map(lambda x: x[lowest:], stacked)


def split_layers(count: int, stacked: Any) -> list:
    """Returns the weights of each layer."""
    return [jax.tree.map(lambda x, number=number: x[number], stacked) for number in range(count)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def split_layers_joining_gradients(count: int, stacked: Any) -> list:
    """The same; the gradients of the layers are put one after the other.

    By itself jax pads the gradient of each layer to the size of all and adds them. A CPU takes up
    to a sixth of a step for that. Only CPUs use this: for a GPU to pad and add is fewer kernels
    (docs/LOG.md).
    """
    return split_layers(count, stacked)


def _joined(count, _, gradients):
    return (jax.tree.map(lambda *of_layers: jnp.stack(of_layers), *gradients),)


split_layers_joining_gradients.defvjp(
    lambda count, stacked: (split_layers(count, stacked), None), _joined
)


@jax.custom_vjp
def _tie_backward_passes(hidden_BLD, weights):
    """Returns both as they are; the backward pass continues with their gradients together.

    Without it XLA's GPU compiler goes back through all layers first and computes the gradients of
    the weights afterwards, and what `remat` computes again for each layer is in memory until then
    (docs/LOG.md, 2026-11-23).
    """
    return hidden_BLD, weights


_tie_backward_passes.defvjp(
    lambda *both: (both, None), lambda _, gradients: lax.optimization_barrier(gradients)
)
