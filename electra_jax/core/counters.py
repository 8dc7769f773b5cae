# SPDX-License-Identifier: Apache-2.0
"""Counters that exceed 2^32 although integers have 32 bits: two uint32 numbers, low one first.

A training step adds to a counter on the device with `add`; on the host it is one Python integer.
"""

import jax
import numpy as np
from jax import numpy as jnp


def add(counter: jax.Array, amount: jax.Array) -> jax.Array:
    """Returns the counter, uint32 [2], after adding a uint32 amount."""
    low = counter[0] + amount
    carried = (low < amount).astype(jnp.uint32)  # the sum wrapped around
    return jnp.stack([low, counter[1] + carried])


def to_int(counter: jax.Array | np.ndarray) -> int:
    """Returns a counter as a Python integer."""
    low, high = (int(part) for part in counter)
    return low + (high << 32)


def from_int(number: int) -> np.ndarray:
    """Returns a Python integer as a counter, uint32 [2]."""
    return np.array([number & 0xFFFFFFFF, number >> 32], np.uint32)
