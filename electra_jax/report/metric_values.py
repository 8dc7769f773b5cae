# SPDX-License-Identifier: Apache-2.0
"""Reads numbers from the rows of metrics.jsonl, in which one may be missing, null or not finite."""

import math
from collections.abc import Mapping

Number = float | int | None


def value(row: Mapping[str, Number], name: str) -> float | None:
    """A metric as a finite float; None if it is missing, null, NaN or infinite."""
    return finite(row.get(name))


def finite(number: Number) -> float | None:
    """A number as a float; None if there is none, or if it is NaN or infinite."""
    if number is None or isinstance(number, str) or not math.isfinite(number):
        return None
    return float(number)


def seconds_left(step: int, steps: int, row: Mapping[str, Number]) -> float | None:
    """The time that a run still needs, from one of its training rows.

    It is the row's own `seconds_left`, or else its pace times the steps that are left. Returns None
    if the row has neither.
    """
    left, pace = value(row, "seconds_left"), value(row, "step_seconds")
    if left is not None:
        return left
    return None if pace is None else pace * max(0, steps - step)
