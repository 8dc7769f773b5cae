# SPDX-License-Identifier: Apache-2.0
"""The learning rate: a shape over the spent share of the budget, times a warmup in steps.

    rate = peak x shape(progress) x min(1, step / warmup_steps)

`step` is the number of steps taken before this one, so with a warmup the first update has rate 0,
as in the reference. Progress goes from 0 to 1, whether the budget is in steps, tokens or minutes.
The warmup is always in steps, because it gives the optimizer's moments time to settle, and these
change once per step.

Sources: `linear` is google-research/electra, optimization.py; `cosine` is Loshchilov and Hutter
2017 (arXiv:1608.03983) without restarts; `warmup_stable_decay` is Hu et al. 2024 (arXiv:2404.06395)
with the decay 1 - sqrt of Haegele et al. 2024 (arXiv:2405.18392), as in ModernBERT
(arXiv:2412.13663).
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

_REACHED = 0.75  # share of the peak; a run whose rate stays below it logs a warning at its start


def linear(progress: jax.Array, power: float = 1.0) -> jax.Array:
    """A straight line from 1 at the start to 0 at the end, to a power: 0.5 falls late and steeply.

    The power is the reference's `lr_decay_power`, which is 1 there.
    """
    line = jnp.maximum(0.0, 1 - progress)
    return line if power == 1 else line**power


def cosine(progress: jax.Array) -> jax.Array:
    """Half a period of a cosine, from 1 to 0."""
    return (1 + jnp.cos(jnp.pi * jnp.clip(progress, 0, 1))) / 2


def warmup_stable_decay(progress: jax.Array, decay_share: float) -> jax.Array:
    """1 until the last `decay_share` of the budget; then 1 - sqrt(spent share of that part).

    A run can be lengthened from any checkpoint before the decay: up to there nothing depends on
    where the run ends.
    """
    decaying = (progress - (1 - decay_share)) / decay_share
    return 1 - jnp.sqrt(jnp.clip(decaying, 0, 1))


def rate(
    peak: float,
    steps: int,
    warmup_steps: int,
    shape: Callable[[jax.Array], jax.Array] = linear,
) -> Callable[..., jax.Array]:
    """Returns the function `rate(step, progress)`; if progress is None, it is step / steps.

    The default is the reference's: peak (1 - step / steps) min(1, step / warmup_steps), which
    already decays during the warmup.
    """

    def at(step: jax.Array, progress: jax.Array | None = None) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        progress = step / steps if progress is None else progress
        warmup = jnp.minimum(1.0, step / warmup_steps) if warmup_steps else 1.0
        return peak * shape(progress) * warmup

    return at


# The progress of a run: the spent share of its budget, as a function of the state.


def share_of_steps(steps: int) -> Callable[[Any], jax.Array]:
    """The spent share of a budget of steps, as a function of the state."""
    return lambda state: state.step / steps


def share_of_tokens(tokens: int) -> Callable[[Any], jax.Array]:
    """The spent share of a budget of tokens; `tokens_seen` is a counter of `core/counters.py`."""

    def share(state):
        low, high = state.tokens_seen.astype(jnp.float32)
        return (low + high * 2.0**32) / float(tokens)  # the int may not fit into 32 bits

    return share


def share_of_minutes(minutes: float) -> Callable[[Any], jax.Array]:
    """The spent share of a budget of minutes, which the state counts (`Extras.timed`)."""

    def share(state):
        assert state.seconds is not None, "`extras` makes the state of such a run count seconds"
        return state.seconds / (60 * minutes)

    return share


def low_peak_warning(
    rate: Callable[..., jax.Array], peak: float, warmup_steps: int, limit: int, steps: int | None
) -> str | None:
    """A warning if the learning rate stays far below its peak during the whole run; else None.

    `linear` falls from step 0, so a little is always missing: 10 % with a warmup of a tenth of the
    steps. This is how the reference works and needs no warning.

    Args:
      rate: (step, progress) -> the rate.
      peak: its peak, without warmup and decay.
      warmup_steps: the steps of the warmup.
      limit: the largest number of steps, `schedule.steps`.
      steps: how many steps the budget allows, or None if that depends on an unknown speed. Then
        the only warning is for a warmup that is longer than the limit.
    """
    end = steps or limit
    too_long = warmup_steps >= end
    if steps is None and not too_long:
        return None

    # The rate is looked at in a thousand places, and where the warmup ends.
    at = np.unique(np.append(np.linspace(0, end - 1, 1000).round(), min(warmup_steps, end - 1)))
    highest = float(np.max(rate(at, at / end)))
    if highest >= _REACHED * peak:
        return None

    why = (
        f"the run ends at step {end:,}, within the warmup"
        if too_long
        else f"it falls while the warmup continues, for {warmup_steps:,} of {end:,} steps"
    )
    return (
        f"the learning rate reaches at most {highest:.3g}, {highest / peak:.0%} of its peak of"
        f" {peak:.3g}: {why}; schedule.warmup_steps={warmup_steps}, try {end // 10}"
    )
