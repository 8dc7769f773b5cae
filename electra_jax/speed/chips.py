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
    links: float  # to other chips of its slice, all links together, in one direction
    network: float | None  # its share of its host's network cards; None if not known here
    clock: float | None = None  # cycles per second of a TPU

    @property
    def peak(self) -> float:
        """Returns the FLOP/s in dense bf16."""
        return next(peak for name, _, peak in accounting.PEAKS if name == self.kind)


# Google Cloud TPU, one page per version: capacity and bandwidth of the memory, "interchip
# interconnect BW" in Gbps, here in bytes. What a program may use is less than the capacity: for
# v5e it is what the compiler itself names when it refuses a program. "Data center network
# bandwidth" is in Gbps too. NVIDIA H100 and H200: SXM; the 900 GB/s of NVLink are of both
# directions, and a DGX has a network card of 400 Gbps for each of its eight GPUs. A TPU's clock
# follows from its FLOP/s: 2 per cycle for each cell of its 4 (v5e), 8 (v4, v5p) or 4 (v6e) units of
# 128 x 128, on v6e 256 x 256.
CHIPS = (
    Chip("v4", "tpu v4", "tpu", 3, 32 * 2**30, 1228e9, 2400e9 / 8, None, 1.05e9),
    Chip("v5e", "tpu v5e", "tpu", 2, int(15.75 * 2**30), 819e9, 1600e9 / 8, 25e9 / 8, 1.5e9),
    Chip("v5p", "tpu v5p", "tpu", 3, 95 * 2**30, 2765e9, 4800e9 / 8, 50e9 / 8, 1.75e9),
    Chip("v6e", "tpu v6e", "tpu", 2, 32 * 2**30, 1640e9, 3584e9 / 8, 100e9 / 8, 1.75e9),
    Chip("h100", "h100", "cuda", 1, 80 * 10**9, 3350e9, 450e9, 400e9 / 8),
    Chip("h200", "h200", "cuda", 1, 141 * 10**9, 4800e9, 450e9, 400e9 / 8),
)
_TOPOLOGY = re.compile(r"((?P<slices>\d+)x)?(?P<chip>[a-z]\w*):(?P<shape>\d+(x\d+)*)")


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips of one kind, in one or several slices.

    The chips of a slice are connected by links of their own: a slice of a TPU pod, or the GPUs of
    one machine. Slices reach each other over the network of the data centre, which is slower.
    """

    chip: Chip
    shape: Sequence[int]  # of one slice
    slices: int = 1

    @property
    def chips(self) -> int:
        """Returns how many chips there are in all slices."""
        return self.slices * self.chips_per_slice

    @property
    def chips_per_slice(self) -> int:
        """Returns how many chips one slice has."""
        return math.prod(self.shape)

    @property
    def slice(self) -> str:
        """Returns one slice as text: `v5e:4x4`."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    def __str__(self) -> str:
        return f"{self.slices}x{self.slice}" if self.slices > 1 else self.slice


def topology(text: str) -> Topology:
    """Parses `v5e:16x16`, `v5p:4x4x4`, `h100:8`, or two slices, `2xv5e:16x16`.

    Raises ValueError, one line, if the text names no topology.
    """
    examples = "write one such as v5e:2x4, 2xv5e:4x4 (two slices), v4:2x2x2 or h100:8"
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

    slices = int(found["slices"] or 1)
    if slices < 1:
        raise ValueError(f"--topology={text}: {slices} slices have no chip; {examples}")
    return Topology(chip, shape, slices)
