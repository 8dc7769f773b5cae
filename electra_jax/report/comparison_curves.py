# SPDX-License-Identifier: Apache-2.0
"""The curves of a comparison: every run on shared axes, and the mean of each group.

Training curves are running means over a tenth of their length.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import ticker

from electra_jax.report import charts, drawing, style
from electra_jax.report import comparison as comparison_lib

_CURVES = (  # kind of row, metric, title, subtitle
    ("eval", "gen_masked_loss", "Generator loss", "held-out gen_masked_loss, nats"),
    ("eval", "mlm_masked_loss", "Main network's loss", "held-out mlm_masked_loss, nats"),
    ("eval", "disc_auc_unigram", "AUC on unigram replacements", "held-out disc_auc_unigram"),
    ("eval", "disc_auc", "AUC on its own generator", "held-out disc_auc"),
    ("eval", "disc_loss", "Discriminator loss", "held-out disc_loss, nats"),
    ("eval", "selection_accuracy", "Selection accuracy", "held-out selection_accuracy"),
    ("eval", "loss", "Loss", "held-out loss, weighted as each run has it"),
    ("train", "loss", "Training loss", "loss, weighted as each run has it"),
    ("train", "grad_norm", "Gradient norm", "grad_norm, before clipping"),
    ("train", "learning_rate", "Learning rate", "learning_rate"),
    ("train", "muon_learning_rate", "Learning rate of matrices", "muon_learning_rate"),
    ("train", "gen_learning_rate", "Generator's learning rate", "gen_learning_rate"),
    ("train", "disc_learning_rate", "Discriminator's learning rate", "disc_learning_rate"),
    (
        "train",
        "disc_muon_learning_rate",
        "Rate of the discriminator's matrices",
        "disc_muon_learning_rate",
    ),
    ("train", "tokens_per_second", "Speed", "tokens_per_second, padding not counted"),
    ("train", "padding_rate", "Padding", "padding_rate, share of all places"),
)
ALONG = {"step": "steps", "tokens_seen": "tokens seen"}
_POINTS = 300  # per curve; more than a panel can show
_LABELS = 9  # one below the other at the ends of the lines; more have no room


@dataclasses.dataclass(frozen=True)
class _ComparedCurve:
    """A curve of one run, or the mean of a group."""

    x: np.ndarray
    y: np.ndarray
    group: int
    is_mean: bool
    name: str  # of the group, and of the run
    error: np.ndarray | None = None  # of a mean: the standard error at each point


@dataclasses.dataclass(frozen=True)
class _ComparedPanel:
    """One metric of all groups, on shared axes."""

    title: str
    subtitle: str  # the metric and its unit
    name: str  # of the metric
    along: str  # 'step' or 'tokens_seen'
    curves: Sequence[_ComparedCurve]
    baseline: float | None


def panels(comparison: comparison_lib.Comparison, along: str) -> list[_ComparedPanel]:
    """The panels in which at least one run has something to show."""
    found_panels = []
    for kind, name, title, subtitle in _CURVES:
        curves = []
        for place, group in enumerate(comparison.groups):
            found = {run.workdir: run.curve(kind, name, along) for run in group.counted}
            runs = {
                workdir: _thinned(np.array(x, float), np.array(y, float))
                for workdir, (x, y) in found.items()
                if x
            }

            # Training metrics are noisy, so they are smoothed; a learning rate is exact.
            if kind == "train" and not name.endswith("learning_rate"):
                runs = {run: (x, drawing.smoothed(y, 0.1)) for run, (x, y) in runs.items()}
            curves += [
                _ComparedCurve(x, y, place, False, f"{group.letter} {run}")
                for run, (x, y) in runs.items()
            ]

            # A run that has hardly begun would end the mean where it is.
            far = max((x[-1] for x, _ in runs.values()), default=0)
            whole = [run for run in runs.values() if run[0][-1] >= far / 2]
            if len(whole) > 1:
                curves += _mean_curve(whole, place, f"{group.letter} mean")

        if curves:
            baseline = _baseline(comparison, name)
            found_panels.append(_ComparedPanel(title, subtitle, name, along, curves, baseline))
    return found_panels


def chart(panel: _ComparedPanel) -> charts.Chart:
    """The curves of one metric for the page."""
    return charts.chart(
        f"{panel.title} by {ALONG[panel.along]}",
        (4.6, 2.75),
        (0.105, 0.16, 0.67, 0.62),
        lambda axes, scale: draw(axes, panel, drawing.STAND_INS, scale),
        [
            charts.Curve(curve.name, _colour(curve.group), curve.x, curve.y)
            for curve in panel.curves
        ],
        along="step" if panel.along == "step" else "tokens seen",
        unit="percent" if style.is_share(panel.name) else "",
    )


def _colour(group: int) -> str:
    return style.GROUPS[group % len(style.GROUPS)]


def draw(axes, panel: _ComparedPanel, palette: Mapping[str, str], scale: str = "linear") -> None:
    """One chart of curves; the runs of a group are faint where their mean is drawn."""
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)

    with_mean = {curve.group for curve in panel.curves if curve.is_mean}
    counts = collections.Counter(curve.group for curve in panel.curves)
    ends: dict[int, tuple[float, float]] = {}
    for curve in panel.curves:
        colour, dashes = drawing.group_style(curve.group, palette)
        if curve.is_mean:
            axes.plot(curve.x, curve.y, color=colour, linewidth=2, linestyle=dashes)
            low, high = curve.y - curve.error, curve.y + curve.error
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.16, linewidth=0)
        else:
            faint = curve.group in with_mean
            axes.plot(
                curve.x, curve.y, color=colour, linestyle=dashes,
                linewidth=0.8 if faint else 1.8, alpha=0.45 if faint else 1,
            )  # fmt: skip

        # Several runs without a mean have no end that is the group's.
        if curve.is_mean or counts[curve.group] == 1:
            ends[curve.group] = (curve.x[-1], curve.y[-1])
            if len(curve.x) == 1:
                axes.plot(curve.x, curve.y, "o", color=colour, markersize=5, clip_on=False)

    # The limits come before the baseline and the labels, which depend on them.
    _limit_curves(axes, panel)
    # Weights that a run began with are evaluated at step 0, which a logarithmic axis cannot show.
    first = min(curve.x[curve.x > 0].min(initial=np.inf) for curve in panel.curves)
    end = max(curve.x[-1] for curve in panel.curves)
    drawing.along(axes, scale, first, end, ALONG[panel.along], palette)
    low, high = axes.get_ylim()
    if panel.baseline is not None and low <= panel.baseline <= high:
        axes.axhline(panel.baseline, color=palette["muted"], linewidth=1.1, linestyle=(0, (5, 3)))
    _label_ends(axes, ends, palette)

    drawing.value_ticks(axes.yaxis)
    drawing.title(axes, panel.title, panel.subtitle, palette)


def _baseline(comparison: comparison_lib.Comparison, name: str) -> float | None:
    """What a guesser gets in every group. Returns None if groups differ or it is not known."""
    found = [comparison_lib.baseline(group, name) for group in comparison.groups]
    values = [one.value for one in found if one is not None]
    alike = values and max(values) - min(values) <= 0.005 * abs(values[0])
    return values[0] if alike else None


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most _POINTS points, each the mean of equally many neighbours."""
    size = math.ceil(len(x) / _POINTS)
    if size <= 1:
        return x, y

    # The last of these groups of points is filled up with copies of its last point.
    fill = -len(x) % size
    return tuple(np.pad(v, (0, fill), "edge").reshape(-1, size).mean(axis=1) for v in (x, y))


def _mean_curve(
    runs: Sequence[tuple[np.ndarray, np.ndarray]], group: int, name: str
) -> list[_ComparedCurve]:
    """The mean of a group, point by point, up to the end of the shortest run.

    Returns no curve if the runs reported at different steps.
    """
    length = min(len(x) for x, _ in runs)
    xs, ys = (np.stack([run[lane][:length] for run in runs]) for lane in (0, 1))

    # Points are averaged by their number, so they must lie at about the same place.
    if np.ptp(xs, axis=0).max() > 0.02 * xs.max():
        return []

    error = ys.std(axis=0, ddof=1) / math.sqrt(len(runs))
    return [_ComparedCurve(xs.mean(axis=0), ys.mean(axis=0), group, True, name, error)]


def _limit_curves(axes, panel: _ComparedPanel) -> None:
    """The limits that all runs share.

    A steep start may leave the picture, since runs are compared by how they end: the first tenth of
    each run does not count for the upper limit.
    """
    late, whole = [], []
    for curve in panel.curves:
        whole.append(curve.y)
        late.append(curve.y[len(curve.y) // 10 :])
    low, high = np.concatenate(whole).min(), np.quantile(np.concatenate(late), 0.995)
    high = max(high, max(curve.y[-1] for curve in panel.curves))

    low, high = drawing.room_around(low, high)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    zero = panel.name == "tokens_per_second" or (low >= 0 and low < 0.3 * high)
    axes.set_ylim(0 if zero else low - room, high + room)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def _label_ends(axes, ends: Mapping[int, tuple[float, float]], palette) -> None:
    """A group's letter and last value beside the end of its line; labels do not overlap."""
    points = axes.transAxes.inverted().transform(axes.transData.transform(list(ends.values())))

    # Lines that end at about the same place share a column of labels.
    columns = np.round(points[:, 0] * 6)
    for column in np.unique(columns):
        inside = np.flatnonzero(columns == column)
        # Where not all labels have room, the pointer says whose the other lines are.
        by_height = inside[np.argsort(points[inside, 1])]
        inside = by_height[:: math.ceil(len(inside) / _LABELS)]
        heights = drawing.spread(np.clip(points[inside, 1], 0, 1), 0.105)

        for place, height in zip(inside, heights):
            group, (_, value) = list(ends.items())[place]
            number = f"{value:.3f}" if 0.1 <= abs(value) < 100 else drawing.tick(value)
            x = points[inside, 0].max() + 0.02
            # The lines of longer runs pass behind the label of a run that ended early.
            behind = dict(facecolor=palette["card"], alpha=0.75, linewidth=0, pad=0.6)
            axes.text(
                x, height, f"{comparison_lib.letter(group)} {number}",
                transform=axes.transAxes, fontsize=8.5, va="center", fontweight="bold",
                color=drawing.group_style(group, palette)[0], parse_math=False,
                bbox=behind if x < 1 else None,
            )  # fmt: skip
