# SPDX-License-Identifier: Apache-2.0
"""Whether the rows of a step can be split evenly over devices and micro-batches, and what would.

An evaluation has no micro-batches: its rows are split over the devices of all processes only. All
devices of a mesh but those along `tensor` have rows of their own, so a larger `mesh.tensor` leaves
fewer parts. It splits the products of a layer by heads, and copies of the model lie in one slice.
"""

from electra_jax.config import stages
from electra_jax.config.fields import Config


def refused(config: Config, row_devices: int, devices: int, slices: int = 1) -> str:
    """Returns in one line why rows cannot be split evenly and what would help; '' if they can.

    Args:
      config: the configuration; the rows of all its stages are split.
      row_devices: parts that the mesh splits rows into.
      devices: number of all devices.
      slices: number of slices that they are of.
    """
    ways = row_devices * config.schedule.accumulation
    for stage in stages.of(config):
        size = stage.batch_size
        if size % ways:
            name = "schedule.stages: batch_size" if stage.share else "data.batch_size"
            low = size // ways * ways
            remedies = [str(low)] * (low > 0) + [str(low + ways)]
            if tensor := dividing_tensor(config, devices, slices):
                whole = "" if config.mesh.data == -1 else " with mesh.data=-1"
                remedies.append(f"mesh.tensor={tensor}{whole}")
            return (
                f"{name}={size} is not divisible by {ways} (devices that split the rows x"
                f" accumulation); try {' or '.join(remedies)}"
            )
    return ""


def evaluation_refused(config: Config, row_devices: int) -> str:
    """Returns in one line why the rows of an evaluation cannot be split evenly and what would help;
    '' if they can. Without `evaluation.batch_size` they are those of a step, see `refused`.

    Args:
      config: the configuration.
      row_devices: parts that the mesh splits rows into.
    """
    size = config.evaluation.batch_size
    if size % row_devices == 0:
        return ""

    low = size // row_devices * row_devices
    nearest = [str(low)] * (low > 0) + [str(low + row_devices)]
    return (
        f"evaluation.batch_size={size} is not divisible by {row_devices} (devices that split the"
        f" rows); try {' or '.join(nearest)}, or 0, which takes the training batch"
    )


def dividing_tensor(config: Config, devices: int, slices: int = 1) -> int | None:
    """Returns the smallest larger `mesh.tensor` with which all rows can be split, also those of an
    evaluation; None if there is none that divides the heads of the main network and the devices of
    a slice."""
    c, heads = config.mesh, config.model.discriminator.heads
    for tensor in range(c.tensor + 1, heads + 1):
        if heads % tensor or devices // slices % (c.fsdp * tensor):
            continue
        ways = devices // tensor * config.schedule.accumulation
        divided = all(stage.batch_size % ways == 0 for stage in stages.of(config))
        if divided and not evaluation_refused(config, devices // tensor):
            return tensor
    return None
