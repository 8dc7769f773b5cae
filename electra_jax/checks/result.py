# SPDX-License-Identifier: Apache-2.0
"""The result of a check: numbers with bounds. The verdict is not stored; it follows from both.

A number without a bound has a reason for that: it is 'not calibrated' (the bound depends on the
size of the run and needs several seeds), 'soft' (the run is too small to decide), or 'for scale'
(only there to compare with).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from scipy import stats

from electra_jax import config as config_lib
from electra_jax.host import console_table

ABOVE_ZERO = math.ulp(0.0)  # the smallest number above 0; as a lower bound it excludes 0
NOT_CALIBRATED, SOFT, FOR_SCALE = "not calibrated", "soft", "for scale"
PASSES, FAILS = "passes", "FAILS"
COLOURS = rf"(?m)  (?:(?P<green>{PASSES})(?=,|$)|(?P<red>{FAILS})$)"  # of verdicts in the table


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number with its bounds, which are inclusive, or `why`: the reason for having none."""

    name: str
    value: float | None  # None: nothing could be measured, which fails any bound
    low: float | None = None
    high: float | None = None
    why: str = ""

    def __post_init__(self):
        if (self.low is None and self.high is None) != bool(self.why):
            raise ValueError(f"{self.name!r} needs a bound, or a reason for having none")

    @property
    def verdict(self) -> str:
        """'passes', 'FAILS', or the reason why it is neither."""
        if self.why:
            return self.why.partition(":")[0]
        if self.value is None or not math.isfinite(self.value):
            return FAILS

        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return PASSES if low <= self.value <= high else FAILS

    @property
    def expected(self) -> str:
        """The bounds as text; without bounds, what the reason gives for comparison."""
        if self.why:
            return self.why.partition(":")[2].strip() or "-"
        if self.low == self.high:
            return f"= {_short(self.low)}"
        if self.low == ABOVE_ZERO:
            return "> 0"
        if self.low is None:
            return f"<= {_short(self.high)}"
        if self.high is None:
            return f">= {_short(self.low)}"
        return f"{_short(self.low)} to {_short(self.high)}"


def calibrated(
    config: config_lib.Config,
    name: str,
    value: float | None,
    table: str,
    low: float | None = None,
    high: float | None = None,
) -> Measure:
    """A number with bounds that come from runs of `configs/tiny_paper.py` and hold for it alone.

    For other configurations it has no bounds; `table` is the value to hope for, for orientation.
    """
    if (config.name, config.data.source, config.schedule.steps) == ("tiny_paper", "builtin", 2000):
        return Measure(name, value, low, high)
    return Measure(name, value, why=f"{NOT_CALIBRATED}: table {table}")


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one check with one seed."""

    number: int
    title: str
    catches: str  # what a failure would mean
    measures: tuple[Measure, ...]

    @property
    def verdict(self) -> str:
        """Fails if any number fails, passes if none fails and one passes, else why none has bounds.

        Raises ValueError if all numbers are only for scale.
        """
        verdicts = [measure.verdict for measure in self.measures]
        for verdict in (FAILS, PASSES, NOT_CALIBRATED, SOFT):
            if verdict in verdicts:
                return verdict
        raise ValueError(f"check {self.number} measures nothing")


def to_tree(result: Result) -> dict:
    """Returns the result as JSON stores it."""
    return dataclasses.asdict(result)


def from_tree(tree: dict) -> Result:
    """Returns the result in a tree that `to_tree` made."""
    measures = tuple(Measure(**measure) for measure in tree["measures"])
    return Result(**(tree | {"measures": measures}))


def table(results: Iterable[tuple[int, Result]]) -> str:
    """Returns (seed, result) pairs as text: one line per check and one for each of its numbers."""
    rows = [("check", "expected", "measured", "verdict")]
    for seed, result in results:
        waiting = sum(measure.verdict == NOT_CALIBRATED for measure in result.measures)
        rest = f", {waiting} not calibrated" if waiting and result.verdict == PASSES else ""
        title = f"{result.number:>2}  {result.title}, seed {seed}"
        rows.append((title, "", "", result.verdict + rest))
        rows += [
            (f"      {m.name}", m.expected, "-" if m.value is None else _short(m.value), m.verdict)
            for m in result.measures
        ]

    head, *lines = console_table.lines(rows)
    return "\n".join([head, "-" * max(map(len, lines)), *lines])


def suspicions(results: Iterable[tuple[int, Result]]) -> str:
    """Returns a line for each check that failed with any seed: what that would mean."""
    failed = {result.number: result.catches for _, result in results if result.verdict == FAILS}
    return "\n".join(
        f"check {number} failed, which may mean: {catches}" for number, catches in failed.items()
    )


MISSED = 1e-3  # share of seeds that a bound of `calibration` would call wrong, at each side


def calibration(results: Sequence[tuple[int, Result]]) -> str:
    """Suggests bounds for numbers that are not calibrated, from their values over the seeds.

    Returns a line per number: mean, standard deviation and the bounds of `next_seed`. Numbers with
    fewer than three seeds, too few for a deviation, are left out.
    """
    values: dict[tuple[int, str], list[float]] = {}
    for _, result in results:
        for measure in result.measures:
            if measure.verdict == NOT_CALIBRATED and measure.value is not None:
                values.setdefault((result.number, measure.name), []).append(measure.value)

    lines = []
    for (number, name), found in values.items():
        if len(found) >= 3:
            low, high = next_seed(found)
            lines.append(
                f"{number:>2}  {name}: {_short(statistics.fmean(found))}, deviation"
                f" {_short(statistics.stdev(found))} over {len(found)} seeds; a bound would be"
                f" {_short(low)} or {_short(high)}"
            )

    return "\n".join(lines)


def next_seed(found: Sequence[float]) -> tuple[float, float]:
    """Returns the bounds below and above which one further seed in a thousand lies.

    These are the one-sided prediction bounds of normally distributed values, by Student's t: with
    three seeds 26 deviations from their mean, with ten 4.5.
    """
    count, mean, deviation = len(found), statistics.fmean(found), statistics.stdev(found)
    away = stats.t.isf(MISSED, count - 1) * deviation * math.sqrt(1 + 1 / count)
    return float(mean - away), float(mean + away)


def _short(x):
    return f"{x:.4g}"
