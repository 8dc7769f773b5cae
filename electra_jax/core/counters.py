# SPDX-License-Identifier: Apache-2.0
"""Counters beyond 2^32 where integers have 32 bits: two uint32 numbers, the low one first."""

import jax
import numpy as np
from jax import numpy as jnp


def add(counter: jax.Array, amount: jax.Array) -> jax.Array:
    """The counter, uint32 [2], after adding a uint32 amount."""
    low = counter[0] + amount
    carried = (low < amount).astype(jnp.uint32)  # the sum wrapped around
    return jnp.stack([low, counter[1] + carried])


def to_int(counter: jax.Array | np.ndarray) -> int:
    """A counter on the host as a Python integer."""
    low, high = (int(part) for part in counter)
    return low + (high << 32)


def from_int(number: int) -> np.ndarray:
    """A Python integer as a counter, uint32 [2]."""
    return np.array([number & 0xFFFFFFFF, number >> 32], np.uint32)
