# SPDX-License-Identifier: Apache-2.0
"""What devices exchange in a compiled program: kinds of collectives, their bytes, their groups.

HLO text -> collectives      each exchange once, with how often it runs
         -> exchanged        totals by kind
         -> crossing         those between slices, by what a device sends to other slices
"""

import collections
import dataclasses
import math
import re

import numpy as np

from electra_jax.speed import hlo

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(
    r"replica_groups=mesh\[((?:'\w+'=\d+,?)+)\]"
    r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{((?:'\w+',?)+)\}"
)
_PARTITIONS = re.compile(r"num_partitions=(\d+)")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange between devices."""

    kind: str
    shapes: tuple[hlo.Shape, ...]  # its results on one device
    source: str
    times: int  # in one run of the program

    @property
    def bytes(self) -> int:
        return sum(shape.bytes for shape in self.shapes)


def collectives(text: str) -> list[Collective]:
    """Every exchange in the text; its kind is the opcode.

    A compiler may cut one exchange into halves (`-start`, `-done`) or spread it over several
    fusions; the pieces have the same channel and shapes, and are one exchange here. An exchange
    inside a loop is listed once, with the number of times that the loop runs. If the compiler does
    not know that number, the loop counts as run once.
    """
    return [one for one, _ in _exchanges(hlo.parse(text))]


def exchanged(text: str) -> dict[str, tuple[int, int]]:
    """{kind of collective: (how many in one run, bytes of their results on one device)}."""
    total: dict[str, tuple[int, int]] = {}
    for one in collectives(text):
        count, size = total.get(one.kind, (0, 0))
        total[one.kind] = (count + one.times, size + one.times * one.bytes)
    return total


def crossing(text: str, per_slice: int) -> dict[str, tuple[int, int]]:
    """{kind of collective: (how many in one run, bytes that a device sends to other slices)}.

    Only exchanges between slices are counted. A slice has `per_slice` devices, and devices are
    numbered slice by slice. The program of a TPU is that of a single slice: what leaves the slice
    is sent through the host, and the text names its kind. In the program of a GPU the groups of
    devices show which exchanges cross; their bytes are divided among the devices of a slice that
    are in the same group, since each can send a part. Raises ValueError if the groups are written
    in an unknown way.
    """
    module = hlo.parse(text)
    total: dict[str, tuple[int, int]] = {}

    def add(kind, times, size):
        count, before = total.get(kind, (0, 0))
        total[kind] = (count + times, before + times * size)

    for times, x in _sent_through_hosts(module):
        kind = hlo.attribute_of(x, r'_xla_megascale_transfer_type="(\w+)"')
        add(kind.lower().replace("_", "-"), times, x.shapes[0].bytes)

    found = _PARTITIONS.search(text[: text.index("\n")])
    devices = int(found[1]) if found else 1
    if devices > per_slice:
        for one, x in _exchanges(module):
            members = [
                collections.Counter(n // per_slice for n in group) for group in _groups(x, devices)
            ]
            sharing = [max(slices.values()) for slices in members if len(slices) > 1]
            if sharing:
                add(one.kind, one.times, one.bytes // min(sharing))
    return total


def _exchanges(module):
    """Yields (Collective, its instruction) for each exchange, pieces of one only once."""
    times, seen = hlo.run_counts(module), set()
    for name, computation in module.computations.items():
        for x in computation.values():
            kind = x.opcode.removesuffix("-start")
            if kind not in COLLECTIVES:
                continue
            shapes = x.shapes
            if x.opcode == "all-gather-start":  # (operands, results)
                shapes = shapes[len(shapes) // 2 :]

            one = kind, hlo.attribute_of(x, r"channel_id=(\d+)") or x.name, shapes
            if one not in seen:
                seen.add(one)
                yield Collective(kind, shapes, x.source, times.get(name, 1)), x


def _sent_through_hosts(module):
    """Yields (how often it runs, instruction) for what the host of a TPU sends to other slices."""
    times = hlo.run_counts(module)
    for name, computation in module.computations.items():
        for x in computation.values():
            if x.opcode == "send" and "_xla_megascale_transfer_type=" in x.attributes:
                yield times.get(name, 1), x


def _groups(x, devices):
    """The groups of devices that exchange with each other, as lists of numbers."""
    listed = _LISTED.search(x.attributes)
    if listed is not None:
        groups = re.findall(r"\{([\d,]+)\}", listed[1])
        return [[int(n) for n in one.split(",")] for one in groups] or [list(range(devices))]

    named = _NAMED.search(x.attributes)
    if named is not None:
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", named[1])}
        along = re.findall(r"'(\w+)'", named[4])
        dims, order = (_integers(part) for part in named.group(2, 3))
        numbers = np.arange(math.prod(sizes.values())).reshape(dims or [-1])
        numbers = np.transpose(numbers, order).reshape(list(sizes.values()))
        last = range(-len(along), 0)
        numbers = np.moveaxis(numbers, [list(sizes).index(name) for name in along], list(last))
        return numbers.reshape(-1, math.prod(sizes[name] for name in along)).tolist()

    counted = _COUNTED.search(x.attributes)
    if counted is None:
        raise ValueError(f"{x.name}: which devices exchange is not in the text in a known way")
    shape, dims, order = (_integers(part) for part in counted.groups())
    numbers = np.arange(math.prod(dims)).reshape(dims)
    return np.transpose(numbers, order).reshape(shape).tolist()


def _integers(text):
    """`2,4` as [2, 4]; None if there is nothing."""
    return [int(n) for n in text.split(",")] if text else None
