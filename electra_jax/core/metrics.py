# SPDX-License-Identifier: Apache-2.0
"""Metrics as a sum and a weight, which are divided only when a value is shown.

A step returns `Sums`: a dict from the metric's name to an array [2] of (sum, weight). For an area
under the ROC curve it is a histogram of logits, [2, BINS] (row 0 original tokens, row 1 replaced
ones). Micro-batches, devices and evaluation batches are merged by addition, so a metric is a global
sum divided by a global weight and never a mean of means. The console, metrics.jsonl and the report
use the same names.
"""

from collections.abc import Mapping

import jax
import numpy as np
from jax import numpy as jnp

BINS = 2048  # of a histogram of logits over [-RANGE, RANGE]; equal bins count half
RANGE = 16.0
FALSE_ALARMS = 0.02  # the share of original tokens that `disc_recall_at_2` lets be called replaced

Sums = dict[str, jax.Array]


def pair(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns (weighted sum of the values, sum of the weights), float32 [2]."""
    weights = weights.astype(jnp.float32)
    return jnp.stack([(values.astype(jnp.float32) * weights).sum(), weights.sum()])


def histogram(logits_BL: jax.Array, positive_BL: jax.Array, counted_BL: jax.Array) -> jax.Array:
    """Counts logits by label and bin, float32 [2, BINS], where `counted_BL` is True.

    A logit that is NaN counts as wrong: it goes to the lowest bin for a replaced token and to the
    highest bin for an original one.
    """
    wrong_BL = jnp.where(positive_BL, -RANGE, RANGE)
    logits_BL = jnp.where(jnp.isnan(logits_BL), wrong_BL, logits_BL)

    bins_BL = jnp.floor((logits_BL + RANGE) * (BINS / (2 * RANGE))).astype(jnp.int32)
    places_BL = jnp.clip(bins_BL, 0, BINS - 1) + BINS * positive_BL.astype(jnp.int32)

    counts = jnp.zeros((2 * BINS,), jnp.float32)
    counts = counts.at[places_BL.reshape(-1)].add(counted_BL.reshape(-1).astype(jnp.float32))
    return counts.reshape(2, BINS)


def add(left: Mapping, right: Mapping) -> dict:
    """Returns the sums of two `Sums` with the same names."""
    return {name: left[name] + right[name] for name in left}


def compute(sums: Mapping[str, jax.Array | np.ndarray]) -> dict[str, float | None]:
    """Returns one number per metric: the sum divided by the weight, None if nothing was counted.

    Adds `disc_f1`, which is computed from precision and recall, and `disc_recall_at_2`, the recall
    at the threshold at which 2 % of the original tokens are false alarms. `disc_recall` is that at
    probability 0.5, which hardly any token reaches while replaced ones are rare.
    """
    values = {name: _value(np.asarray(x, np.float64)) for name, x in sums.items()}
    precision, recall = values.get("disc_precision"), values.get("disc_recall")
    if "disc_precision" in values:
        both = (precision or 0) + (recall or 0)
        values["disc_f1"] = 2 * (precision or 0) * (recall or 0) / both if both else 0.0
    if "disc_auc" in sums:
        values["disc_recall_at_2"] = _recall(np.asarray(sums["disc_auc"], np.float64), FALSE_ALARMS)
    return values


def _value(x):
    if x.shape == (2,):
        return float(x[0] / x[1]) if x[1] else None
    return _area(x)


def _recall(counts, false_alarms):
    """Returns the share of replaced tokens above the threshold with this share of false alarms.

    Within a bin the curve is a straight line, as for the area: equal scores are drawn by lot.
    """
    if not counts.sum(axis=1).all():
        return None
    above = np.cumsum(counts[:, ::-1], axis=1) / counts.sum(axis=1, keepdims=True)
    real, replaced = np.pad(above, [(0, 0), (1, 0)])  # the curve starts with no token called
    after = np.searchsorted(real, false_alarms, side="right")
    if after == len(real):
        return 1.0
    share = (false_alarms - real[after - 1]) / (real[after] - real[after - 1])
    return float(replaced[after - 1] + share * (replaced[after] - replaced[after - 1]))


def _area(counts):
    """Returns the probability that a replaced token scores above an original one."""
    real, replaced = counts
    if not real.sum() or not replaced.sum():
        return None
    below = np.cumsum(real) - real
    return float((replaced * (below + real / 2)).sum() / (real.sum() * replaced.sum()))
