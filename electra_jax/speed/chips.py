# SPDX-License-Identifier: Apache-2.0
"""Chips that a step can be compiled for without having them, and what their datasheets say."""

import dataclasses
import math
import re
from collections.abc import Sequence

from electra_jax.model import accounting


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of chip. Bytes are of one chip, bytes per second too."""

    name: str  # as --topology says it
    kind: str  # as in accounting.PEAKS
    platform: str  # 'tpu' or 'cuda', jax's name of the compiler
    dimensions: int  # of its topology: v5e:4x4 has two
    memory: int  # that a program may use
    bandwidth: float  # of this memory
    links: float  # to other chips, all links together, in one direction

    @property
    def peak(self) -> float:
        """Returns the FLOP/s in dense bf16."""
        return next(peak for name, _, peak in accounting.PEAKS if name == self.kind)


# Google Cloud TPU, one page a version: capacity and bandwidth of the memory, "interchip
# interconnect BW" in Gbps, here in bytes. What a program may use is less than the capacity: for
# v5e it is what the compiler itself names when it refuses a program. NVIDIA H100 and H200: SXM; the
# 900 GB/s of NVLink are of both directions.
CHIPS = (
    Chip("v4", "tpu v4", "tpu", 3, 32 * 2**30, 1228e9, 2400e9 / 8),
    Chip("v5e", "tpu v5e", "tpu", 2, int(15.75 * 2**30), 819e9, 1600e9 / 8),
    Chip("v5p", "tpu v5p", "tpu", 3, 95 * 2**30, 2765e9, 4800e9 / 8),
    Chip("v6e", "tpu v6e", "tpu", 2, 32 * 2**30, 1640e9, 3584e9 / 8),
    Chip("h100", "h100", "cuda", 1, 80 * 10**9, 3350e9, 450e9),
    Chip("h200", "h200", "cuda", 1, 141 * 10**9, 4800e9, 450e9),
)
_TOPOLOGY = re.compile(r"(?P<chip>\w+):(?P<shape>\d+(x\d+)*)")


@dataclasses.dataclass(frozen=True)
class Topology:
    """So many chips of one kind, connected to each other in one slice or one machine."""

    chip: Chip
    shape: Sequence[int]

    @property
    def chips(self) -> int:
        """Returns how many chips there are."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"


def topology(text: str) -> Topology:
    """Reads `v5e:16x16`, `v5p:4x4x4` or `h100:8`. Raises ValueError, one line, if it is none."""
    examples = "write one such as v5e:2x4, v4:2x2x2 or h100:8"
    found = _TOPOLOGY.fullmatch(text)
    if found is None:
        raise ValueError(f"--topology={text} is no topology; {examples}")

    chip = next((chip for chip in CHIPS if chip.name == found["chip"]), None)
    if chip is None:
        names = ", ".join(chip.name for chip in CHIPS)
        raise ValueError(f"--topology={text}: no chip {found['chip']} is known; there are {names}")

    shape = tuple(map(int, found["shape"].split("x")))
    if len(shape) != chip.dimensions or 0 in shape:
        lengths = {1: "a number", 2: "two lengths", 3: "three lengths"}[chip.dimensions]
        raise ValueError(f"--topology={text}: {chip.name} takes {lengths} from 1 on; {examples}")
    return Topology(chip, shape)
