# SPDX-License-Identifier: Apache-2.0
"""Randomness as a tree of named streams, with one key per row of the run.

    run's key > stream > step > row [> part [> layer]]

A row's key depends on the run's seed, the stream's name, the step and the row's number, and on
nothing else: not on the device that holds the row, nor on how the batch is cut. So 1 device,
8 devices and 2 processes draw the same numbers, and a resumed run goes on as if never stopped.

In a run this file is the only place where a key is derived from another, outside the first weights
of one module. A key is either drawn from, once, or a parent of keys, all of one level and with
numbers that one table gives: `STREAMS` or `PARTS`. `jax.random.split` is left out on purpose: its
keys are those of `fold_in` with 0, 1, 2, ..., so the two on one key make the same key twice.
"""

import dataclasses
import zlib

import jax
from jax import numpy as jnp

STREAMS = (  # of a run's key, of the key of its first weights, and of what stands in for a run's
    "init",
    "mask",
    "sample",
    "generator_dropout",
    "discriminator_dropout",
    "show",
    # of the key of all evaluations
    "unigram_probe_mask",
    "unigram_probe_sample",
    # first weights
    "embeddings",
    "generator_embeddings",
    "generator",
    "discriminator",
    "baseline",
    "copy_gate",
    # fine-tuning
    "head",
    "tuning_dropout",
)

PARTS = {  # what a row's key is a parent of; the number of a part is its place
    "mask": ("scores", "kept", "random_tokens", "spans"),
    "network": ("embeddings", "encoder"),
    "towers": ("left", "right"),
    "tuning": ("network", "head"),
}


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
    """Returns the key of a stream of `STREAMS`."""
    return jax.random.fold_in(key, _NUMBERS[name])


def row_keys(key: jax.Array, step: jax.Array | int, row_B: jax.Array) -> jax.Array:
    """Returns one key per row, [B], for this step."""
    key = jax.random.fold_in(key, step)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, row_B)


def part(keys_B: jax.Array, whole: str, name: str) -> jax.Array:
    """Returns the rows' keys for one of `PARTS[whole]`."""
    return _fold(keys_B, PARTS[whole].index(name))


def layers(keys_B: jax.Array, count: int) -> jax.Array:
    """Returns the rows' keys for each layer of a stack, [count, B], in one go."""
    return jax.vmap(lambda number: _fold(keys_B, number))(jnp.arange(count))


def _fold(keys_B, number):
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, number)


def _numbers(names):
    """The number of each name, which does not change when names are added."""
    numbers = {name: zlib.crc32(name.encode()) & 0x7FFFFFFF for name in names}
    if len(set(numbers.values())) < len(names):
        raise ValueError(f"two of these streams have one number: {numbers}; rename one")
    return numbers


_NUMBERS = _numbers(STREAMS)
