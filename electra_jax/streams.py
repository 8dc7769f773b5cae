# SPDX-License-Identifier: Apache-2.0
"""Randomness as named streams of keys, one key per row of the run.

A row's key depends on the run's seed, the stream's name, the step and the row's number, and on
nothing else: not on the device that holds the row, nor on how the batch is cut. So 1 device,
8 devices and 2 processes draw the same numbers, and a resumed run goes on as if never stopped.
"""

import dataclasses
import zlib

import jax
from jax import numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Keys:
    """What one step draws from, one key a row, [B] each; no dropout keys, no dropout."""

    mask_B: jax.Array  # which slots, and which of them become [MASK]
    sample_B: jax.Array  # what the generator writes there
    generator_B: jax.Array | None = None  # its dropout
    discriminator_B: jax.Array | None = None


def keys(key: jax.Array, step: jax.Array | int, row_B: jax.Array, *, dropout: bool) -> Keys:
    """Returns the keys of these rows at this step of the run that `key` belongs to."""

    def rows(name):
        return row_keys(stream(key, name), step, row_B)

    return Keys(
        mask_B=rows("mask"),
        sample_B=rows("sample"),
        generator_B=rows("generator_dropout") if dropout else None,
        discriminator_B=rows("discriminator_dropout") if dropout else None,
    )


def stream(key: jax.Array, name: str) -> jax.Array:
    """Returns the key of a named stream."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF)


def row_keys(key: jax.Array, step: jax.Array | int, row_B: jax.Array) -> jax.Array:
    """Returns one key per row, [B], for this step."""
    key = jax.random.fold_in(key, step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, row_B)


def fold(keys_B: jax.Array, place: jax.Array | int) -> jax.Array:
    """Returns the rows' keys for one place of a network, such as a layer."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, place)


def fold_each(keys_B: jax.Array, count: int) -> jax.Array:
    """Returns the rows' keys for places 0 to count - 1, [count, B], in one go."""
    return jax.vmap(lambda place: fold(keys_B, place))(jnp.arange(count))
