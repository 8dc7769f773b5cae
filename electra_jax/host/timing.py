# SPDX-License-Identifier: Apache-2.0
"""Measures the seconds of compiled calls, including the work of the device."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax


@dataclasses.dataclass(frozen=True)
class Seconds:
    """The seconds of single calls."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over all calls."""
        return statistics.median(self.each)

    @property
    def spread(self) -> tuple[float, float]:
        """The seconds of the fastest and of the slowest call."""
        return min(self.each), max(self.each)


def calls(call: Callable[[], object], count: int, warm_up: int = 1) -> Seconds:
    """Times `count` calls one by one, after `warm_up` calls that are not counted."""
    for _ in range(warm_up):
        jax.block_until_ready(call())

    each = []
    for _ in range(count):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        each.append(time.perf_counter() - begun)

    return Seconds(tuple(each))
