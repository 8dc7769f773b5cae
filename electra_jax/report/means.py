# SPDX-License-Identifier: Apache-2.0
"""Means over runs or seeds, and whether the difference of two of them is more than luck.

    values           ->  mean        ->  mean, standard error, count
    two such means   ->  difference  ->  amount, standard error, 'better' or 'not resolved'
    pairs of values  ->  paired      ->  the same

Runs are of one configuration and differ in their seed.
"""

import dataclasses
import math
from collections.abc import Sequence

from scipy import special

RESOLVED = 2.0  # standard errors
LUCK = 0.05  # the share of cases in which luck alone may make so large a difference


@dataclasses.dataclass(frozen=True)
class Mean:
    """The mean of one number over some runs."""

    value: float
    error: float | None  # its standard error; None for a single run
    count: int


@dataclasses.dataclass(frozen=True)
class Difference:
    """One mean minus another one."""

    amount: float
    error: float | None
    resolved: bool | None  # None if no error is known
    better: bool | None  # None if neither side of the metric is the better one
    degrees: float = math.inf  # of freedom of the error: few, where it is of few runs

    @property
    def beyond_luck(self) -> bool:
        """Whether equal means would be so far apart in less than `LUCK` of all cases.

        By Student's t, which asks for more standard errors where few runs have given the error:
        12.7 with one degree of freedom, 4.3 with two, 2.8 with four.
        """
        if self.error is None or self.amount == 0:
            return False
        distance = abs(self.amount) / self.error if self.error else math.inf
        return of_luck(self.degrees, distance) < LUCK

    @property
    def verdict(self) -> str:
        """One or two words for the table."""
        if self.amount == 0:
            return "equal"
        if self.resolved is None:
            return "one seed"  # so no error is known
        if not self.resolved:
            return "not resolved"
        return {True: "better", False: "worse", None: "resolved"}[self.better]


def mean(values: Sequence[float]) -> Mean:
    """The mean of some values and its standard error."""
    count = len(values)
    if count == 1:
        return Mean(values[0], None, 1)
    if min(values) == max(values):
        return Mean(values[0], 0.0, count)  # exactly, without an error from rounding
    middle = math.fsum(values) / count
    variance = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    return Mean(middle, math.sqrt(variance / count), count)


def difference(one: Mean, other: Mean, higher_is_better: bool | None) -> Difference:
    """`one` minus `other`. The two errors are independent, so their squares add up.

    It is resolved if it is at least `RESOLVED` standard errors. `higher_is_better` is None for a
    metric of which neither side is better.
    """
    amount = one.value - other.value
    better = None if higher_is_better is None or amount == 0 else (amount > 0) == higher_is_better

    if one.error is None or other.error is None:
        return Difference(amount, None, None, better)
    error = math.hypot(one.error, other.error)
    resolved = amount != 0 and abs(amount) >= RESOLVED * error
    return Difference(amount, error, resolved, better, _degrees(one, other))


def _degrees(one, other):
    """The degrees of freedom of a difference, by Welch and Satterthwaite."""
    parts = [mean.error**4 / (mean.count - 1) for mean in (one, other) if mean.error]
    return math.hypot(one.error, other.error) ** 4 / sum(parts) if parts else math.inf


def degrees_of(one: int, other: int) -> float:
    """The degrees of freedom of a difference of two means over so many runs, equally spread."""
    return _degrees(*(Mean(0.0, count**-0.5, count) for count in (one, other)))


def of_luck(degrees: float, errors: float = RESOLVED) -> float:
    """The share of cases in which equal means are so many standard errors apart, by Student's t."""
    return 2 * float(special.stdtr(degrees, -errors))


def paired(ones: Sequence[float], others: Sequence[float]) -> Difference:
    """The mean of the differences of pairs, such as two arms with the same seed.

    An effect common to both of a pair is not part of the error. Higher is not called better.
    """
    less = mean([one - other for one, other in zip(ones, others, strict=True)])
    nothing = Mean(0.0, None if less.error is None else 0.0, less.count)
    return difference(less, nothing, None)
