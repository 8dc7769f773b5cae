# SPDX-License-Identifier: Apache-2.0
"""What a check says: numbers with their bounds. A verdict is never written, it follows from both.

A number without a bound says why it has none: it is 'not calibrated' (the bound depends on the
size of the run and waits for several seeds), 'soft' (too small a run to decide), or 'for scale'.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

ABOVE_ZERO = math.ulp(0.0)  # the smallest bound that zero does not reach
NOT_CALIBRATED, SOFT, FOR_SCALE = "not calibrated", "soft", "for scale"
PASSES, FAILS = "passes", "FAILS"


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number. Bounds are inclusive; `why` says why there is none."""

    name: str
    value: float | None  # None where nothing could be measured: that fails a bound
    low: float | None = None
    high: float | None = None
    why: str = ""

    def __post_init__(self):
        if (self.low is None and self.high is None) != bool(self.why):
            raise ValueError(f"{self.name!r} needs a bound, or a reason for having none")

    @property
    def verdict(self) -> str:
        """'passes' or 'FAILS', or why neither."""
        if self.why:
            return self.why.partition(":")[0]
        if self.value is None or not math.isfinite(self.value):
            return FAILS
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return PASSES if low <= self.value <= high else FAILS

    @property
    def expected(self) -> str:
        """The bounds as text."""
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


@dataclasses.dataclass(frozen=True)
class Result:
    """One check of one seed."""

    number: int
    title: str
    catches: str  # what a failure would mean
    measures: tuple[Measure, ...]

    @property
    def verdict(self) -> str:
        """Fails if any number does; passes if at least one has a bound; else why none has."""
        verdicts = [measure.verdict for measure in self.measures]
        for verdict in (FAILS, PASSES, NOT_CALIBRATED, SOFT):
            if verdict in verdicts:
                return verdict
        raise ValueError(f"check {self.number} measures nothing")


def to_tree(result: Result) -> dict:
    """As JSON holds it."""
    return dataclasses.asdict(result)


def from_tree(tree: dict) -> Result:
    """The way back."""
    measures = tuple(Measure(**measure) for measure in tree["measures"])
    return Result(**(tree | {"measures": measures}))


def table(results: Iterable[tuple[int, Result]]) -> str:
    """(seed, result) of each as text: a line for the check, one for each of its numbers."""
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
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def calibration(results: Sequence[tuple[int, Result]], least: int = 3) -> str:
    """Of numbers that wait for a bound: mean, deviation and mean -+ 3 deviations over the seeds.

    Empty with fewer than `least` seeds, which is too few for a deviation.
    """
    values: dict[tuple[int, str], list[float]] = {}
    for _, result in results:
        for measure in result.measures:
            if measure.verdict == NOT_CALIBRATED and measure.value is not None:
                values.setdefault((result.number, measure.name), []).append(measure.value)
    lines = []
    for (number, name), found in values.items():
        if len(found) >= least:
            mean = sum(found) / len(found)
            deviation = math.sqrt(sum((x - mean) ** 2 for x in found) / (len(found) - 1))
            low, high = mean - 3 * deviation, mean + 3 * deviation
            lines.append(
                f"{number:>2}  {name}: {_short(mean)}, deviation {_short(deviation)} over"
                f" {len(found)} seeds; a bound would be {_short(low)} or {_short(high)}"
            )
    return "\n".join(lines)


def _short(x):
    return f"{x:.4g}"
