# SPDX-License-Identifier: Apache-2.0
"""Every mean as a sum and a weight, divided at the last moment.

A step returns `Sums`: names of the metrics with [2] arrays (sum, weight), and for an area under
the curve a [2, BINS] histogram of logits (row 0 real, row 1 replaced). Micro-batches, devices and
evaluation batches all merge by addition, so a metric is a global sum over a global weight and
never a mean of means. The names are those of the console, metrics.jsonl and the report.
"""

from collections.abc import Mapping

import jax
import numpy as np
from jax import numpy as jnp

BINS = 2048  # of a logit histogram, over [-RANGE, RANGE]; ties inside a bin count half
RANGE = 16.0

Sums = dict[str, jax.Array]


def pair(values: jax.Array, weights: jax.Array) -> jax.Array:
    """(sum of values where the weight is, sum of weights), float32 [2]."""
    weights = weights.astype(jnp.float32)
    return jnp.stack([(values.astype(jnp.float32) * weights).sum(), weights.sum()])


def histogram(logits_BL: jax.Array, positive_BL: jax.Array, counted_BL: jax.Array) -> jax.Array:
    """Counts logits by bin and by label, float32 [2, BINS]; padding is not counted.

    A logit that is NaN goes where it cannot count as right: a replaced token's to the lowest bin, a
    real one's to the highest.
    """
    wrong_BL = jnp.where(positive_BL, -RANGE, RANGE)
    logits_BL = jnp.where(jnp.isnan(logits_BL), wrong_BL, logits_BL)
    bins_BL = jnp.floor((logits_BL + RANGE) * (BINS / (2 * RANGE))).astype(jnp.int32)
    places_BL = jnp.clip(bins_BL, 0, BINS - 1) + BINS * positive_BL.astype(jnp.int32)
    counts = jnp.zeros((2 * BINS,), jnp.float32)
    counts = counts.at[places_BL.reshape(-1)].add(counted_BL.reshape(-1).astype(jnp.float32))
    return counts.reshape(2, BINS)


def add(left: Mapping, right: Mapping) -> dict:
    """Merges two sets of sums with the same names."""
    return {name: left[name] + right[name] for name in left}


def compute(sums: Mapping[str, jax.Array | np.ndarray]) -> dict[str, float | None]:
    """Divides: one number a name, None where nothing was counted.

    Adds `disc_f1`, which follows from the others.
    """
    values = {name: _value(np.asarray(x, np.float64)) for name, x in sums.items()}
    precision, recall = values.get("disc_precision"), values.get("disc_recall")
    if "disc_precision" in values:
        both = (precision or 0) + (recall or 0)
        values["disc_f1"] = 2 * (precision or 0) * (recall or 0) / both if both else 0.0
    return values


def _value(x):
    if x.shape == (2,):
        return float(x[0] / x[1]) if x[1] else None
    return _area(x)


def _area(counts):
    """The chance that a replaced token scores above a real one; equal bins count half."""
    real, replaced = counts
    if not real.sum() or not replaced.sum():
        return None
    below = np.cumsum(real) - real
    return float((replaced * (below + real / 2)).sum() / (real.sum() * replaced.sum()))
