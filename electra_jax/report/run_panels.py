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
    first_step: int  # without step 0, which has no place on a logarithmic axis
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
        steps = [row["step"] for row in rows if row["step"]] or [0]
        return cls(series, last, min(steps), max(steps), alarms_lib.alarms(rows))

    def get(self, kind: str, name: str) -> Series:
        """The series of a metric; empty if no row has it."""
        return self.series.get((kind, name), _NO_POINTS)


_NO_POINTS = Series(np.zeros(0), np.zeros(0))


def _baselines(row: Mapping) -> dict[str, float]:
    """The baselines of the metrics in a row, named as `baseline of disc_loss`."""
    found = {name: baselines.of(name, row) for name in _HELD_AGAINST if name in row}
    return {f"baseline of {name}": line.value for name, line in found.items() if line is not None}


_HELD_AGAINST = (
    "gen_masked_loss", "mlm_masked_loss", "disc_loss", "disc_accuracy", "selection_accuracy",
)  # fmt: skip


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
    subtitle: str  # the names of its metrics, in small letters below the title
    lines: tuple[Line, ...]
    log: bool = False
    percent: bool = False
    from_zero: bool = False


def panels(curves: Curves) -> list[Panel]:
    """The panels that have something to show, in the order in which they are drawn."""
    of = _LinesOf(curves)
    drafts = [*_losses(of), *_judgements(of), *_shares(of), *_training(of)]

    panels = []
    for panel in drafts:
        lines = tuple(line for line in panel.lines if line.series)
        if any(line.look != "baseline" for line in lines):
            panels.append(dataclasses.replace(panel, lines=lines))
    return panels


@dataclasses.dataclass(frozen=True)
class _LinesOf:
    """Makes the lines of panels. A line whose metric no row has is empty."""

    curves: Curves

    def train(self, name: str, colour: str, label: str = "train", look: str = "train") -> Line:
        """A metric of training."""
        return Line(label, self.curves.get("train", name), look, colour)

    def held(self, name: str, colour: str, label: str = "held-out") -> Line:
        """A metric of held-out rows."""
        return Line(label, self.curves.get("eval", name), "eval", colour)

    def pair(self, name: str, colour: str) -> tuple[Line, Line]:
        """A metric of training and of held-out rows."""
        return self.train(name, colour), self.held(name, colour)

    def level(self, name: str, label: str) -> Line:
        """A metric as a dashed line; over the whole run if it is always the same."""
        series = self.curves.get("eval", name) or self.curves.get("train", name)
        if len(series.steps) == 1 or (series and np.ptp(series.values) == 0):
            return self.constant(float(series.values[-1]), label)
        return Line(label, series, "baseline", "muted")

    def baseline(self, name: str, label: str) -> Line:
        """What a guesser gets in a metric."""
        return self.level(f"baseline of {name}", label)

    def constant(self, value: float, label: str) -> Line:
        """A dashed line over the whole run."""
        whole = np.array([0, max(self.curves.last_step, 1)], float)
        return Line(label, Series(whole, np.full(2, value)), "baseline", "muted")

    @property
    def masked(self) -> bool:
        """Whether training rows have the metrics over masked slots alone, as held-out rows do."""
        return bool(self.curves.get("train", "gen_masked_loss"))


_G, _D = "generator", "discriminator"  # colours


def _losses(of: _LinesOf) -> list[Panel]:
    """What each network is trained for, with the main network's accuracy beside its loss."""
    trained = "gen_masked_loss" if of.masked else "gen_loss"
    return [
        Panel(
            "Generator loss",
            f"{trained}, nats" if of.masked else "train gen_loss, held-out gen_masked_loss, nats",
            (
                of.baseline("gen_masked_loss", "unigram"),
                of.train(trained, _G),
                of.held("gen_masked_loss", _G),
            ),
        ),
        Panel(
            "Main network's loss",
            "mlm_masked_loss, nats",
            (of.baseline("mlm_masked_loss", "unigram"), *of.pair("mlm_masked_loss", _D)),
        ),
        Panel(
            "Main network's accuracy",
            "mlm_masked_accuracy",
            of.pair("mlm_masked_accuracy", _D),
            percent=True,
        ),
        Panel(
            "Discriminator loss",
            "disc_loss, nats",
            (of.baseline("disc_loss", "constant guess"), *of.pair("disc_loss", _D)),
        ),
    ]


def _judgements(of: _LinesOf) -> list[Panel]:
    """How good the answers of both networks are."""
    accuracy = "gen_masked_accuracy" if of.masked else "gen_accuracy"
    subtitle = accuracy if of.masked else "train gen_accuracy, held-out gen_masked_accuracy"
    return [
        Panel(
            "Discriminator AUC",
            "disc_auc",
            (
                of.constant(baselines.CHANCE, "chance"),
                of.train("disc_auc", _D),
                of.held("disc_auc_unigram", "shared", "on unigram"),
                of.held("disc_auc", _D),
            ),
        ),
        Panel(
            "Recall at 2 % false alarms",
            "disc_recall_at_2",
            (
                of.constant(baselines.FALSE_ALARMS, "chance"),
                of.held("disc_recall_at_2", _D),
            ),
            percent=True,
        ),
        Panel(
            "Selection among the tokens offered",
            "selection_accuracy",
            (of.baseline("selection_accuracy", "chance"), *of.pair("selection_accuracy", _D)),
            percent=True,
        ),
        Panel(
            "Generator accuracy",
            subtitle,
            (of.train(accuracy, _G), of.held("gen_masked_accuracy", _G)),
            percent=True,
        ),
        Panel(  # a network that is well calibrated has an entropy as large as its loss
            "Generator entropy",
            "gen_entropy, nats",
            (
                of.baseline("gen_masked_loss", "unigram"),
                of.level("gen_masked_loss", "its loss"),
                *of.pair("gen_entropy", _G),
            ),
        ),
    ]


def _shares(of: _LinesOf) -> list[Panel]:
    """What the discriminator sees, and how often it is right."""
    return [
        Panel(
            "Discriminator accuracy",
            "disc_accuracy",
            (of.baseline("disc_accuracy", "majority"), *of.pair("disc_accuracy", _D)),
            percent=True,
        ),
        Panel(
            "Masked and replaced tokens",
            "masked_rate, replaced_rate",
            (of.train("masked_rate", _G, "masked"), of.train("replaced_rate", _D, "replaced")),
            percent=True,
        ),
    ]


def _training(of: _LinesOf) -> list[Panel]:
    """How training goes: gradients, learning rates, speed."""
    norms = (
        of.train("grad_norm", "muted", "all"),
        of.train("grad_norm_embeddings", "shared", "embeddings"),
        of.train("grad_norm_encoder", "shared", "encoder"),
        of.train("grad_norm_generator", _G, "generator"),
        of.train("grad_norm_discriminator", _D, "discriminator"),
    )
    rates = (
        of.train("learning_rate", "shared", "", look="exact"),
        of.train("gen_learning_rate", _G, "generator", look="exact"),
        of.train("disc_learning_rate", _D, "discriminator", look="exact"),
        of.train("muon_learning_rate", "ink", "matrices", look="exact"),
        of.train("disc_muon_learning_rate", "muted", "disc. matrices", look="exact"),
    )
    speed = (of.train("tokens_per_second", "ink", ""),)
    return [
        Panel("Gradient norms", "grad_norm, before clipping", norms, log=True),
        Panel("Learning rate", "learning_rate", rates),
        Panel("Speed", "tokens_per_second", speed, from_zero=True),
        Panel(
            "Padding",
            "padding_rate, the places that tokens_per_second does not count",
            (of.train("padding_rate", "ink", ""),),
            percent=True,
        ),
    ]


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
        "Recall at 2 % false alarms",
        "Discriminator accuracy",
        "Selection among the tokens offered",
    ),
}
