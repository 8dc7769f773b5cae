# SPDX-License-Identifier: Apache-2.0
"""The charts of fine-tuning: curves of every seed, and where the seeds ended.

    TaskResult  ->  curves (dev score, training loss over the steps)
    Results     ->  ends (a dot per seed, a bar at their median, for each task)

Blue is what was fine-tuned, grey is a control (for example the same architecture from random
weights), and red is a seed that a warning names. Thin lines are seeds, the thick line is their
median, and a dashed stroke is what the same answer to every example gets.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.finetuning.results import results_table, run_results
from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.report import charts, drawing

_OURS, _CONTROL, _FAILED = "second", "first", "bad"


@dataclasses.dataclass(frozen=True)
class _SeedCurve:
    """A curve of one seed, or the median of all."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    is_median: bool  # or the only seed, which is drawn like a median
    name: str  # for the pointer
    label: str = ""  # at its end


@dataclasses.dataclass(frozen=True)
class _SeedPanel:
    """The dev score or the training loss of a task, a curve for each seed."""

    title: str
    subtitle: str
    metric: str  # '' for the loss
    curves: Sequence[_SeedCurve]
    guess: float | None = None


def curves(task: run_results.TaskResult) -> list[charts.Chart]:
    """The charts of a task's dev score and training loss; none if no seed has reported them."""
    return [_curve_chart(panel) for panel in _panels(task)]


def ends(results: run_results.Results) -> charts.Chart | None:
    """Where the seeds ended, in one chart for all tasks; None if there is nothing to show."""
    rungs = _rungs(results)
    return _rungs_chart(rungs) if rungs else None


def _panels(task: run_results.TaskResult) -> list[_SeedPanel]:
    """The charts of dev score and training loss, if the seeds have reported them."""
    panels = []

    scored = [
        (seed.seed, [(p.step, p.scores[task.main]) for p in seed.curve if task.main in p.scores])
        for seed in task.seeds
    ]
    curves = _curves(task, scored)
    if curves:
        split = task.splits[0] if task.splits else "dev"
        guess = task.baseline(split, task.main)
        subtitle = f"{task.main} on {split}"
        panels.append(_SeedPanel(f"{task.task}: score", subtitle, task.main, curves, guess))

    losses = [
        (seed.seed, [(p.step, p.loss) for p in seed.curve if p.loss is not None])
        for seed in task.seeds
    ]
    curves = _curves(task, losses)
    if curves:
        panels.append(_SeedPanel(f"{task.task}: training loss", "loss", "", curves))
    return panels


def _curves(task: run_results.TaskResult, runs) -> list[_SeedCurve]:
    """One line per seed, and their median if all of them reported at the same steps.

    Args:
      runs: (seed, points) of each seed; a point is (step, value).
    """
    runs = [(seed, [(x, y) for x, y in points if math.isfinite(y)]) for seed, points in runs]
    runs = [(seed, np.array(points, float).T) for seed, points in runs if points]

    named = {seed for seed, _ in task.warnings}
    curves = []
    for seed, (x, y) in runs:
        alone = len(runs) == 1
        colour = _FAILED if seed in named else _OURS
        label = f"seed {seed}" if seed in named and not alone else ""
        curves.append(_SeedCurve(x, y, colour, alone, f"seed {seed}", label))

    together = len(runs) > 1 and all(np.array_equal(x, runs[0][1][0]) for _, (x, _) in runs)
    if together:
        median = np.median([y for _, (_, y) in runs], axis=0)
        curves.append(_SeedCurve(runs[0][1][0], median, _OURS, True, "median", "median"))
    return curves


def _draw_curves(axes, panel: _SeedPanel, palette: Mapping[str, str], scale: str) -> None:
    """One chart of curves, with the baseline if it is near them."""
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)
    for curve in panel.curves:
        axes.plot(
            curve.x, curve.y, color=palette[curve.colour], linewidth=2 if curve.is_median else 0.9,
            alpha=1 if curve.is_median or curve.colour == _FAILED else 0.5,
            marker="o" if len(curve.x) == 1 else None, markersize=5, clip_on=False,
        )  # fmt: skip

    # A baseline far from all curves would squeeze them, so it is left out.
    values = np.concatenate([curve.y for curve in panel.curves])
    low, high = drawing.room_around(values.min(), values.max())
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    guess = panel.guess
    if guess is not None and low - 0.5 * (high - low) <= guess <= high + 0.5 * (high - low):
        low, high = min(low, guess), max(high, guess)
    axes.set_ylim(low - room, high + room)
    if guess is not None and low <= guess <= high:
        axes.axhline(guess, color=palette["muted"], linewidth=1.1, linestyle=(0, (5, 3)))

    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    drawing.value_ticks(axes.yaxis, _unit(panel.metric))
    first = min(curve.x[0] for curve in panel.curves)
    end = max(curve.x[-1] for curve in panel.curves)
    drawing.along(axes, scale, first, end, "steps", palette)
    _label_ends(axes, panel, palette)

    subtitle = panel.subtitle
    if guess is not None:
        subtitle += f"; a constant guess gets {_short(panel, guess)}"
    drawing.title(axes, panel.title, subtitle, palette)


def _label_ends(axes, panel: _SeedPanel, palette: Mapping[str, str]) -> None:
    """Name and last value of the thick line and of the seeds that have a name."""
    named = [curve for curve in panel.curves if curve.label or curve.is_median]
    if not named:
        return

    ends = [(curve.x[-1], curve.y[-1]) for curve in named]
    heights = axes.transAxes.inverted().transform(axes.transData.transform(ends))[:, 1]
    for curve, height in zip(named, drawing.spread(np.clip(heights, 0, 1), 0.1)):
        words = f"{curve.label} {_short(panel, curve.y[-1])}".strip()
        axes.text(
            1.02, height, words, transform=axes.transAxes, fontsize=8.5, va="center",
            color=palette[curve.colour], fontweight="bold" if curve.is_median else "normal",
            parse_math=False,
        )  # fmt: skip


def _short(panel: _SeedPanel, value: float) -> str:
    """A value in hundredths, or as it is for a loss and for an error."""
    return f"{100 * value:.1f}" if _unit(panel.metric) else drawing.tick(value)


def _unit(metric: str) -> str:
    """How values of a metric are written, as in `charts.UNITS`; '' also for the loss."""
    return "hundredths" if metric and metric not in scores_lib.LOWER_IS_BETTER else ""


@dataclasses.dataclass(frozen=True)
class _Rung:
    """A dev split of a task: one line of the chart."""

    name: str
    metric: str
    task: run_results.TaskResult
    split: str
    control: run_results.TaskResult | None


def _rungs(results: run_results.Results) -> list[_Rung]:
    """One rung per dev split whose main metric is better if higher, so that all share a scale."""
    others = {task.task: task for task in results.control.tasks} if results.control else {}
    return [
        _Rung(
            task.task if len(task.splits) == 1 else f"{task.task} {split.removeprefix('dev_')}",
            task.main,
            task,
            split,
            others.get(task.task),
        )
        for task in results.tasks
        for split in task.splits
        if task.main not in scores_lib.LOWER_IS_BETTER and task.summary(split, task.main).count
    ]


def _draw_rungs(axes, rungs: Sequence[_Rung], palette: Mapping[str, str]) -> None:
    """A dot per seed, a bar at their median, a dashed stroke at the baseline; the first on top."""
    drawing.frame(axes, palette)
    axes.grid(axis="x", color=palette["grid"], linewidth=0.8)
    least = 0.0
    for place, rung in enumerate(rungs):
        for task, colour, off in _sets(rung):
            values = [v for v in task.values(rung.split, rung.metric) if math.isfinite(v)]
            if not values:
                continue

            least, height = min([least, *values]), np.full(len(values), place + off)
            axes.plot(values, height, "o", color=palette[colour], alpha=0.45, markersize=6,
                      markeredgewidth=0, clip_on=False)  # fmt: skip
            median = task.summary(rung.split, rung.metric).median
            axes.plot([median] * 2, [place + off - 0.15, place + off + 0.15], linewidth=2.4,
                      color=palette[colour])  # fmt: skip
            axes.text(1.02, place + off, results_table.shown(rung.metric, median), fontsize=9,
                      transform=axes.get_yaxis_transform(), va="center", fontweight="bold",
                      color=palette[colour], parse_math=False)  # fmt: skip

        guess = rung.task.baseline(rung.split, rung.metric)
        if guess is not None:
            least = min(least, guess)
            axes.plot([guess] * 2, [place - 0.36, place + 0.36], color=palette["muted"],
                      linewidth=1.3, linestyle=(0, (3, 2)), clip_on=False)  # fmt: skip

    axes.set_xlim(least - 0.02 if least < 0 else 0, 1)
    axes.set_ylim(len(rungs) - 0.45, -0.55)
    axes.set_yticks(range(len(rungs)), [f"{rung.name}  {rung.metric}" for rung in rungs])
    for label in axes.get_yticklabels():
        label.set_color(palette["ink"])
        label.set_parse_math(False)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{100 * x:.4g}"))


def _rungs_chart(rungs: Sequence[_Rung]) -> charts.Chart:
    """All rungs as one chart; its height grows with their number."""
    rung = 0.56 if any(one.control is not None for one in rungs) else 0.4
    high = rung * len(rungs) + 0.1
    height = high + 0.4
    figure = mpl_figure.Figure(figsize=(11.6, height), facecolor="none")
    axes = figure.add_axes((0.17, 0.3 / height, 0.76, high / height))
    _draw_rungs(axes, rungs, drawing.STAND_INS)
    return charts.alone(figure, "Where the seeds ended", _readable(rungs), "hundredths")


def _readable(rungs: Sequence[_Rung]) -> list[charts.Curve]:
    """The dots of the seeds, for the pointer."""
    found = []
    for place, rung in enumerate(rungs):
        for task, colour, off in _sets(rung):
            for seed in task.seeds:
                value = seed.scores.get(rung.split, {}).get(rung.metric, math.nan)
                if math.isfinite(value):
                    at = (np.array([value]), np.array([place + off]))
                    found.append(charts.Curve(f"{rung.name}, seed {seed.seed}", colour, *at))
    return found


def _sets(rung: _Rung) -> list[tuple[run_results.TaskResult, str, float]]:
    """(results, colour, distance from the middle): a control takes the lower half of the rung."""
    if rung.control is None:
        return [(rung.task, _OURS, 0.0)]
    return [(rung.task, _OURS, -0.17), (rung.control, _CONTROL, 0.17)]


def _curve_chart(panel: _SeedPanel) -> charts.Chart:
    return charts.chart(
        panel.title,
        (6.2, 2.6),
        (0.085, 0.17, 0.74, 0.59),
        lambda axes, scale: _draw_curves(axes, panel, drawing.STAND_INS, scale),
        [charts.Curve(curve.name, curve.colour, curve.x, curve.y) for curve in panel.curves],
        along="step",
        unit=_unit(panel.metric),
    )
