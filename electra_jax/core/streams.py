# SPDX-License-Identifier: Apache-2.0
"""Randomness as a tree of named streams, with one key per row of the run.

    run's key > stream > step > row [> part [> layer [> layer of a head]]]

A row's key depends only on the run's seed, the stream's name, the step and the row's number. It
does not depend on the device that holds the row or on how the batch is split. So 1 device, 8
devices and 2 processes draw the same numbers, and a resumed run continues with the numbers that an
uninterrupted run would draw.

During a run all keys are derived in this file; only the initial weights of a module are an
exception. A key is either used for one draw, or other keys are derived from it: all of one level,
with the numbers of one table, `STREAMS` or `PARTS`. `jax.random.split` is not used on purpose: its
keys equal those of `fold_in` with 0, 1, 2, ..., so using both on one key gives the same key twice.
"""

import dataclasses
import zlib

import jax
from jax import numpy as jnp

STREAMS = (
    # of the key of a run, of its initial weights, and of keys that take the place of a run's
    "init",
    "mask",
    "sample",
    "offer",
    "generator_dropout",
    "discriminator_dropout",
    "show",
    # of the key of all evaluations
    "unigram_probe_mask",
    "unigram_probe_sample",
    # initial weights
    "embeddings",
    "generator_embeddings",
    "generator",
    "discriminator",
    "baseline",
    "copy_gate",
    "selection",
    "correction",
    # fine-tuning
    "head",
    "tuning_dropout",
)

PARTS = {  # keys that are derived from a row's key; the number of a part is its index
    "mask": ("scores", "kept", "random_tokens", "spans"),
    "network": ("embeddings", "encoder"),
    "towers": ("left", "right"),
    "tuning": ("network", "head"),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Keys:
    """The random keys of one step, one per row, [B] each. Dropout keys are None without dropout."""

    mask_B: jax.Array  # chooses the slots, and which of them become [MASK]
    sample_B: jax.Array  # samples the replaced tokens
    offer_B: jax.Array  # samples the tokens among which the original is to be found
    generator_B: jax.Array | None = None  # dropout of the generator
    discriminator_B: jax.Array | None = None


def keys(key: jax.Array, step: jax.Array | int, row_B: jax.Array, *, dropout: bool) -> Keys:
    """Returns the keys of these rows at this step, derived from the key of the run."""

    def rows(name):
        return row_keys(stream(key, name), step, row_B)

    return Keys(
        mask_B=rows("mask"),
        sample_B=rows("sample"),
        offer_B=rows("offer"),
        generator_B=rows("generator_dropout") if dropout else None,
        discriminator_B=rows("discriminator_dropout") if dropout else None,
    )


def stream(key: jax.Array, name: str) -> jax.Array:
    """Returns the key of one of `STREAMS`."""
    return jax.random.fold_in(key, _NUMBERS[name])


def row_keys(key: jax.Array, step: jax.Array | int, row_B: jax.Array) -> jax.Array:
    """Returns one key per row, [B], for this step."""
    key = jax.random.fold_in(key, step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, row_B)


def part(keys_B: jax.Array, whole: str, name: str) -> jax.Array:
    """Returns the rows' keys for one of `PARTS[whole]`."""
    return _fold(keys_B, PARTS[whole].index(name))


def layers(keys_B: jax.Array, count: int) -> jax.Array:
    """Returns the rows' keys for all layers of a stack, [count, B]."""
    return jax.vmap(lambda number: _fold(keys_B, number))(jnp.arange(count))


def _fold(keys_B, number):
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, number)


def _numbers(names):
    """Returns the number of each name; it does not change when names are added."""
    numbers = {name: zlib.crc32(name.encode()) & 0x7FFFFFFF for name in names}
    if len(set(numbers.values())) < len(names):
        raise ValueError(f"two of these streams have one number: {numbers}; rename one")
    return numbers


_NUMBERS = _numbers(STREAMS)
