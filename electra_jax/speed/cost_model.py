# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the hours and chip-hours of a run, computed without compiling.

    configuration -> operations of a step, bytes of gradients     (`work`, traced, not compiled)
    work, chips, slices -> floor of a step -> hours, chip-hours    (`floor`)

Everything here is computed from datasheets and shapes; nothing is compiled or measured. The floor
is that of `topology_fit.floor`: products at the peak rate, gradients over all links of a chip, and
a chip's share of them over the network between slices. Only the data axis is modelled: every chip
has a whole copy of the model and whole rows, so a batch of 2,048 rows ends at 2,048 chips. A test
holds the bytes against those of compiled programs.
"""

import dataclasses
import math
import re

import jax

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import trees
from electra_jax.speed import chips as chips_lib
from electra_jax.speed import paper_flops, synthetic, topology_fit
from electra_jax.step import plans

# The runs of the paper with each configuration, by their names in `paper_flops.PUBLISHED`.
PAPER_RUNS = {
    "small": ("ELECTRA-Small",),
    "base": ("ELECTRA-Base",),
    "large": ("ELECTRA-Large, 400K", "ELECTRA-Large, 1.75M"),
}
# On accelerators kernels and their biases are used in bfloat16 and their gradients are summed in
# it; tables and norms are used in float32.
_IN_FLOAT32 = re.compile(r"(^|/)(embeddings(_delta)?/|norm|(\w+_)?norm/|(head|correction)/bias$)")


@dataclasses.dataclass(frozen=True)
class Work:
    """What a step computes and exchanges, whichever chips do it."""

    rows: int
    flops: float  # three forward passes of all rows
    gradients: int  # bytes of a whole copy's gradients, as copies sum them
    stage: stages.Stage | None = None  # whose step it is; None if the run has steps of one kind


@dataclasses.dataclass(frozen=True)
class Floor:
    """The shortest time that the datasheet allows for a step, computed."""

    chips: int
    limits: dict[str, float]  # the least seconds of a step under each limit alone

    @property
    def step(self) -> float:
        """Returns the least seconds of a step, if everything overlaps."""
        return max(self.limits.values())

    @property
    def exchanged(self) -> float:
        """Returns the share of exchanges in a step in which nothing overlaps, from 0 to 1."""
        return 1 - self.limits["products"] / sum(self.limits.values())

    def hours(self, steps: float) -> float:
        """Returns the least hours that this many steps take."""
        return steps * self.step / 3600

    def chip_hours(self, steps: float) -> float:
        """Returns the least hours of this many steps, over all chips together."""
        return self.hours(steps) * self.chips


def work(config: config_lib.Config, vocab_size: int, stage: stages.Stage | None = None) -> Work:
    """Returns the work of a step of a stage (of the first if none is given); traced over shapes."""
    plan = plans.make_plan(config, synthetic.MadeUpVocabulary(vocab_size))
    leaves = jax.tree_util.tree_leaves_with_path(plan.state_shapes.params)
    distinct = stages.distinct(config)
    stage = stage or distinct[0]
    rows, length = stage.batch_size, stage.sequence_length
    return Work(
        rows,
        plan.objectives[length].flops(length).train * rows,
        sum(_bytes(trees.path_name(path), x) for path, x in leaves),
        stage if len(distinct) > 1 else None,
    )


def floor(work: Work, topology: chips_lib.Topology) -> Floor:
    """Returns the floor of a step on these chips.

    Raises ValueError, one line, if the rows cannot be split evenly over the chips, or if the
    network between slices of these chips is not known.
    """
    count, chip = topology.chips, topology.chip
    if work.rows % count:
        raise ValueError(
            f"{work.rows} rows cannot be split evenly over the {count} chips of {topology}; take a"
            f" divisor of {work.rows}"
        )

    limits = {
        "products": work.flops / count / chip.peak,
        "exchange": topology_fit.AROUND_A_RING["all-reduce"] * work.gradients / chip.links,
    }
    if topology.slices > 1:
        if chip.network is None:
            raise ValueError(f"the network between slices of {chip.name} is not known here")
        share = work.gradients / topology.chips_per_slice
        limits["network"] = (
            topology_fit.to_other_slices("all-reduce", topology.slices) * share / chip.network
        )
    return Floor(count, limits)


def steps(name: str) -> float:
    """Returns the steps of a run of the paper, by its name in `paper_flops.PUBLISHED`."""
    return next(line.run.steps for line in paper_flops.PUBLISHED if line.name == name and line.run)


def _bytes(path, x):
    return math.prod(x.shape) * (4 if _IN_FLOAT32.search(path) else 2)
