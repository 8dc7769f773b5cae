# SPDX-License-Identifier: Apache-2.0
"""Learning rates of fine-tuning: a peak by model size, a schedule, and a factor per layer.

    rate of a parameter = peak x (1 - step / steps) x min(1, step / warmup) x decay^depth

Depth counts from the head (0) down to the embeddings. With n layers there are two rules:

                   head   top layer   layer i of 0 .. n-1   embeddings and projection
    paper           0         1              n - i                   n + 1
    released_code   0         2            n + 1 - i                 n + 2

The released code counts a pooler that the network does not have, so its top layer gets decay^2
(issues 51 and 64 of google-research/electra); the published scores were made with it. All layers
are stacked in one array, [layers, ...], so a factor is a vector along its first axis.
"""

import dataclasses
import re

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import trees
from electra_jax.step import schedule

RULES = {"paper": 1, "released_code": 2}  # -> depth of the top layer

_HEAD = re.compile(r"^head/")
_STACKED = re.compile(r"(^|/)encoder/(attention|feed_forward)/")
_LAST_NORM = re.compile(r"(^|/)encoder/norm/")


@dataclasses.dataclass(frozen=True)
class PublishedRecipe:
    """The fine-tuning settings that the paper gives for one model size."""

    learning_rate: float
    layer_decay: float


SMALL = PublishedRecipe(3e-4, 0.8)
BASE = PublishedRecipe(1e-4, 0.8)
LARGE = PublishedRecipe(5e-5, 0.9)


def published(layers: int, width: int) -> PublishedRecipe:
    """The paper's settings for an encoder: width 256 is small, 12 layers of width 768 are base.

    A size in between takes the settings of the next larger one, whose rate is lower.
    """
    if width <= 256:
        return SMALL
    return BASE if width <= 768 and layers <= 12 else LARGE


def name(learning_rate: float) -> str:
    """The rate as folders and tables name it: 0.0003, 3e-05, or with as many digits as it has.

    Different rates have different names.
    """
    short = f"{learning_rate:.3g}"
    return short if float(short) == learning_rate else repr(float(learning_rate))


def rate(step: jax.Array, peak: jax.Array, steps: jax.Array, warmup_steps: jax.Array) -> jax.Array:
    """The rate of the head at a step.

    All four arguments may be traced, so one program serves all tasks and points of a grid.
    """
    step = jnp.asarray(step, jnp.float32)
    warm = jnp.where(step < warmup_steps, step / jnp.maximum(warmup_steps, 1), 1.0)
    return peak * schedule.linear(step / steps) * warm


def factors(params: dict, decay: float, rule: str, frozen: int = 0) -> dict:
    """decay^depth for each parameter, as an array that broadcasts against it.

    With `frozen` layers it is 0 for them, and for all that is below them.
    """
    layers = _layers(params)

    def leaf(path, x):
        exponents = _depth(trees.path_name(path), layers, rule)
        powers = np.float32(decay) ** np.asarray(exponents, np.float32)
        powers *= _trained(exponents, layers, rule, frozen)
        return powers.reshape(-1, *[1] * (x.ndim - 1)) if powers.ndim else powers

    return jax.tree_util.tree_map_with_path(leaf, params)


def table(layers: int, decay: float, rule: str, frozen: int = 0) -> dict[str, float]:
    """{'head': 1.0, 'layer 11': ..., ..., 'embeddings': ...}: one entry per depth, to be shown."""
    first = RULES[rule]
    lines = {"head": 0} | {f"layer {i}": layers - 1 - i + first for i in reversed(range(layers))}
    lines |= {"embeddings": layers + first}
    return {
        name: decay**depth * bool(_trained(depth, layers, rule, frozen))
        for name, depth in lines.items()
    }


def _trained(depth, layers, rule, frozen):
    """Whether parameters of this depth lie above the lowest `frozen` layers."""
    return depth < layers - frozen + RULES[rule] if frozen else True


def _depth(path, layers, rule):
    first = RULES[rule]
    if _HEAD.search(path):
        return 0
    if _STACKED.search(path):
        return layers - 1 - np.arange(layers) + first
    if _LAST_NORM.search(path):  # of a pre-norm encoder: it follows the top layer
        return first
    return layers + first


def _layers(params):
    return params["discriminator"]["encoder"]["attention"]["query"]["kernel"].shape[0]
