# SPDX-License-Identifier: Apache-2.0
"""How much room on the disk the checkpoints of a run need."""

import math

import jax

from electra_jax import config as config_lib


def bytes_per_checkpoint(state_shapes) -> int:
    """Bytes of a saved state, weights and moments and averages, of all devices together.

    What orbax adds is less than a hundredth of it in `small` and larger models.
    """
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state_shapes))


def checkpoints(section: config_lib.Checkpoint, steps: int) -> int:
    """How many checkpoints a run of so many steps has at most at one time.

    An old one is deleted once the new one is complete, so there is one more for a while. The last
    step is saved too, whatever its number.
    """
    saves = math.ceil(steps / section.every)
    newest = min(saves, section.keep_last + 1 + bool(section.keep_best))
    if not section.keep_every:
        return newest

    kept = steps // math.lcm(section.every, section.keep_every)
    return min(saves, newest + kept)
