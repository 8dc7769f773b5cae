# SPDX-License-Identifier: Apache-2.0
"""What is drawn of a run: its metrics as series, and the panels that show them.

    rows of metrics.jsonl  ->  Curves: a series (step, value) per metric  ->  panels

Nothing is drawn here (`run_drawing.py`).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from electra_jax.report import alarms as alarms_lib
from electra_jax.report import baselines

POINTS = 600  # more than a panel has pixels to tell apart


@dataclasses.dataclass(frozen=True)
class Series:
    """The finite values of one metric; true where there are any."""

    steps: np.ndarray
    values: np.ndarray

    def __bool__(self):
        return len(self.steps) > 0


@dataclasses.dataclass(frozen=True)
class Curves:
    """All rows of a run, turned into one series per (kind, metric)."""

    series: Mapping[tuple[str, str], Series]
    last: Mapping[str, Mapping]  # kind -> its last row
    last_step: int
    alarms: Sequence[alarms_lib.Alarm]

    @classmethod
    def of(cls, rows: Sequence[Mapping]) -> "Curves":
        """Collects the series from the rows of `metrics.jsonl`, with their baselines and alarms."""
        points: dict[tuple[str, str], tuple[list, list]] = {}
        last: dict[str, Mapping] = {}

        for row in rows:
            kind, step = row["kind"], row["step"]
            last[kind] = row
            for name, value in (row | _baselines(row)).items():
                if name in ("step", "kind") or value is None or not math.isfinite(value):
                    continue
                steps, values = points.setdefault((kind, name), ([], []))
                steps.append(step)
                values.append(value)

        series = {
            key: Series(np.array(s, float), np.array(v, float)) for key, (s, v) in points.items()
        }
        end = max((row["step"] for row in rows), default=0)
        return cls(series, last, end, alarms_lib.alarms(rows))

    def get(self, kind: str, name: str) -> Series:
        """The series of a metric; empty if no row has it."""
        return self.series.get((kind, name), _NO_POINTS)


_NO_POINTS = Series(np.zeros(0), np.zeros(0))


def _baselines(row: Mapping) -> dict[str, float]:
    """The baselines of the metrics in a row, named as `baseline of disc_loss`."""
    found = {name: baselines.of(name, row) for name in _HELD_AGAINST if name in row}
    return {f"baseline of {name}": line.value for name, line in found.items() if line is not None}


_HELD_AGAINST = ("gen_masked_loss", "mlm_masked_loss", "disc_loss", "disc_accuracy")


def thinned(series: Series) -> tuple[Series, np.ndarray, np.ndarray]:
    """At most POINTS means over equally many neighbours, and the range of 90 % of each group.

    Returns the means, and the 5 % and 95 % quantiles of each group as arrays.
    """
    size = math.ceil(len(series.steps) / POINTS)
    if size <= 1:
        return series, series.values, series.values

    # The last group is filled up with copies of the last point.
    fill = -len(series.steps) % size
    runs = [
        np.pad(lane, (0, fill), "edge").reshape(-1, size) for lane in (series.steps, series.values)
    ]
    low, high = np.quantile(runs[1], (0.05, 0.95), axis=1)
    return Series(*(run.mean(axis=1) for run in runs)), low, high


@dataclasses.dataclass(frozen=True)
class Line:
    """A series in a panel, and how it looks."""

    label: str
    series: Series
    look: str  # 'train' (running mean in a band), 'exact', 'eval' (dots), 'baseline' (dashed)
    colour: str  # a name of the palette


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    unit: str  # the names of its metrics, in small letters below the title
    lines: tuple[Line, ...]
    log: bool = False
    percent: bool = False
    from_zero: bool = False


def panels(curves: Curves) -> list[Panel]:
    """The panels that have something to show, in the order in which they are drawn.

    The body is long because it is a table of all panels.
    """
    end = curves.last_step
    whole = np.array([0, max(end, 1)], float)

    def train(name, colour, label="train"):
        return Line(label, curves.get("train", name), "train", colour)

    def held(name, colour, label="held-out"):
        return Line(label, curves.get("eval", name), "eval", colour)

    def level(name, label):
        series = curves.get("eval", name) or curves.get("train", name)
        if len(series.steps) == 1 or (series and np.ptp(series.values) == 0):
            series = Series(whole, np.full(2, series.values[-1]))
        return Line(label, series, "baseline", "muted")

    def baseline(name, label):
        return level(f"baseline of {name}", label)

    unigram = baseline("gen_masked_loss", "unigram")
    chance = Line("chance", Series(whole, np.full(2, baselines.CHANCE)), "baseline", "muted")

    # The held-out loss is over masked slots alone. The training loss beside it is the one over
    # masked slots too, if the rows have it.
    masked = curves.get("train", "gen_masked_loss")
    trained = "gen_masked_loss" if masked else "gen_loss"

    rates = [
        Line(label, curves.get("train", name), "exact", colour)
        for name, colour, label in (
            ("learning_rate", "shared", ""),
            ("gen_learning_rate", "generator", "generator"),
            ("disc_learning_rate", "discriminator", "discriminator"),
            ("muon_learning_rate", "ink", "matrices"),
        )
    ]
    norms = [train("grad_norm", "muted", "all")] + [
        train(f"grad_norm_{part}", colour, part)
        for part, colour in (
            ("embeddings", "shared"),
            ("encoder", "shared"),
            ("generator", "generator"),
            ("discriminator", "discriminator"),
        )
    ]

    g, d = "generator", "discriminator"
    drafts = [
        Panel(
            "Generator loss",
            f"{trained}, nats" if masked else "train gen_loss, held-out gen_masked_loss, nats",
            (unigram, train(trained, g), held("gen_masked_loss", g)),
        ),
        Panel(
            "Main network's loss",
            "mlm_masked_loss, nats",
            (
                baseline("mlm_masked_loss", "unigram"),
                train("mlm_masked_loss", d),
                held("mlm_masked_loss", d),
            ),
        ),
        Panel(
            "Main network's accuracy",
            "mlm_masked_accuracy",
            (train("mlm_masked_accuracy", d), held("mlm_masked_accuracy", d)),
            percent=True,
        ),
        Panel(
            "Discriminator loss",
            "disc_loss, nats",
            (
                baseline("disc_loss", "constant guess"),
                train("disc_loss", d),
                held("disc_loss", d),
            ),
        ),
        Panel(
            "Discriminator AUC",
            "disc_auc",
            (
                chance,
                train("disc_auc", d),
                held("disc_auc_unigram", "shared", "on unigram"),
                held("disc_auc", d),
            ),
        ),
        Panel(
            "Generator accuracy",
            "gen_masked_accuracy" if masked else "train gen_accuracy, held-out gen_masked_accuracy",
            (
                train("gen_masked_accuracy" if masked else "gen_accuracy", g),
                held("gen_masked_accuracy", g),
            ),
            percent=True,
        ),
        Panel(  # a network that is well calibrated has an entropy as large as its loss
            "Generator entropy",
            "gen_entropy, nats",
            (
                unigram,
                level("gen_masked_loss", "its loss"),
                train("gen_entropy", g),
                held("gen_entropy", g),
            ),
        ),
        Panel(
            "Discriminator accuracy",
            "disc_accuracy",
            (
                baseline("disc_accuracy", "majority"),
                train("disc_accuracy", d),
                held("disc_accuracy", d),
            ),
            percent=True,
        ),
        Panel(
            "Masked and replaced tokens",
            "masked_rate, replaced_rate",
            (train("masked_rate", g, "masked"), train("replaced_rate", d, "replaced")),
            percent=True,
        ),
        Panel("Gradient norms", "grad_norm, before clipping", tuple(norms), log=True),
        Panel("Learning rate", "learning_rate", tuple(rates)),
        Panel(
            "Speed", "tokens_per_second", (train("tokens_per_second", "ink", ""),), from_zero=True
        ),
    ]

    panels = []
    for panel in drafts:
        lines = tuple(line for line in panel.lines if line.series)
        if any(line.look != "baseline" for line in lines):
            panels.append(dataclasses.replace(panel, lines=lines))

    return panels


MARKED = {  # alarm -> the panels that mark its step
    "loss_spike": (
        "Generator loss",
        "Main network's loss",
        "Discriminator loss",
        "Gradient norms",
    ),
    "main_network_collapse": ("Main network's loss",),
    "generator_collapse": ("Generator loss", "Generator accuracy", "Generator entropy"),
    "discriminator_collapse": (
        "Discriminator loss",
        "Discriminator AUC",
        "Discriminator accuracy",
    ),
}
