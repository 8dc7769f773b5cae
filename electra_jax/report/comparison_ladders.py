# SPDX-License-Identifier: Apache-2.0
"""The ladders of a comparison: each group's final metric with its runs, error and baseline.

A dot is a run, a line reaches two standard errors of the mean to either side, and a dashed stroke
is the baseline: the score of a guesser that has learnt nothing.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.report import charts, drawing, metric_values, style
from electra_jax.report import comparison as comparison_lib

_LADDERS = (  # metric, title
    ("gen_masked_loss", "Generator loss"),
    ("mlm_masked_loss", "Main network's loss"),
    ("disc_auc_unigram", "AUC on unigram replacements"),
    ("disc_auc", "AUC on its own generator"),
    ("disc_loss", "Discriminator loss"),
    ("gen_masked_accuracy", "Generator accuracy"),
    ("disc_accuracy", "Discriminator accuracy"),
    ("selection_accuracy", "Selection accuracy"),
    ("mlm_masked_accuracy", "Main network's accuracy"),
)
MARKS = {"better": "good", "worse": "bad"}  # verdict -> colour of the palette


def metrics(comparison: comparison_lib.Comparison) -> list[tuple[str, str]]:
    """(metric, title) of each ladder that has something to show."""
    return [(name, title) for name, title in _LADDERS if name in comparison.metrics]


def chart(comparison: comparison_lib.Comparison, name: str, title: str) -> charts.Chart:
    """The ladder of one metric for the page."""
    rung = 0.42 * len(comparison.groups) + 0.35
    height = rung + 1.0
    figure = mpl_figure.Figure(figsize=(4.6, height), facecolor="none")
    axes = figure.add_axes((0.05, 0.3 / height, 0.55, rung / height))
    draw(axes, comparison, name, title, drawing.STAND_INS)
    return charts.alone(
        figure, title, _readable(comparison, name), "percent" if style.is_share(name) else ""
    )


def _readable(comparison: comparison_lib.Comparison, name: str) -> list[charts.Curve]:
    """The dots of the runs and the means of the groups, for the pointer."""
    found = []
    for place, group in enumerate(comparison.groups):
        colour = style.GROUPS[place % len(style.GROUPS)]
        for run in group.runs:
            value = metric_values.value(run.last("eval"), name)
            if value is not None:
                at = (np.array([value]), np.array([float(place)]))
                found.append(charts.Curve(f"{group.letter} {run.workdir}", colour, *at))
        mean = comparison_lib.final(group, name)
        if mean is not None and mean.error is not None:
            at = (np.array([mean.value]), np.array([float(place)]))
            found.append(charts.Curve(f"{group.letter} mean", colour, *at))
    return found


def draw(
    axes, comparison: comparison_lib.Comparison, name: str, title: str, palette: Mapping[str, str]
) -> None:
    """The final values of one metric: one line per group, the first at the top."""
    drawing.frame(axes, palette)
    axes.grid(axis="x", color=palette["grid"], linewidth=0.8)

    groups = comparison.groups
    first = comparison_lib.final(groups[0], name)
    shown, baselines = [], []  # values that the axis covers; (place, baseline) of each group
    for place, group in enumerate(groups):
        mean = comparison_lib.final(group, name)
        if mean is None:
            continue

        shown += _draw_group(axes, place, comparison_lib.finals(group, name), mean, palette)
        difference = comparison_lib.difference(name, mean, first) if place and first else None
        _label_group(axes, place, name, mean, difference, palette)
        baseline = comparison_lib.baseline(group, name)
        if baseline is not None:
            baselines.append((place, baseline))

    # A baseline far from all runs is left out, so it is drawn once the limits are known.
    _limit_ladder(axes, name, shown, baselines, len(groups), palette)
    low, high = axes.get_xlim()
    for place, baseline in baselines:
        if low <= baseline.value <= high:
            axes.plot([baseline.value] * 2, [place - 0.36, place + 0.36], color=palette["muted"],
                      linewidth=1.3, linestyle=(0, (3, 2)))  # fmt: skip
    drawing.title(axes, title, _subtitle(name, baselines, low, high), palette)


def _draw_group(axes, place, values, mean, palette) -> list[float]:
    """The dots of a group's runs and its mean with two standard errors.

    Returns the values that the axis has to cover.
    """
    colour, _ = drawing.group_style(place, palette)
    axes.plot(values, np.full(len(values), place), "o", color=colour, alpha=0.35, markersize=5,
              markeredgewidth=0)  # fmt: skip

    spread = 2 * (mean.error or 0)
    ends = [mean.value - spread, mean.value + spread]
    if mean.error is not None:
        axes.plot(ends, [place, place], color=colour, linewidth=2)
    axes.plot(mean.value, place, "D" if mean.error is not None else "o", color=colour,
              markersize=7)  # fmt: skip
    return [*values, *ends]


def _subtitle(name, baselines, low, high) -> str:
    """The metric and the values of its baselines; says if they are outside the axis."""
    if not baselines:
        return name
    values = [baseline.value for _, baseline in baselines]
    words = baselines[0][1].name.replace("_", " ")
    text = style.metric(name, min(values))
    if style.metric(name, max(values)) != text:
        text += f" to {style.metric(name, max(values))}"
    return f"{name}; {words} {text}" + ("" if low <= min(values) <= high else ", beyond the axis")


def _label_group(axes, place, name, mean, difference, palette) -> None:
    """A group's value at the right, and below it the distance from the first group."""
    where, (colour, _) = axes.get_yaxis_transform(), drawing.group_style(place, palette)
    axes.text(1.03, place - (0.18 if difference else 0), comparison_lib.with_error(name, mean),
              transform=where, fontsize=9, va="center", color=colour, fontweight="bold",
              parse_math=False)  # fmt: skip
    if difference:
        words = f"{comparison_lib.signed(name, difference)}, {difference.verdict}"
        mark = MARKS.get(difference.verdict, "muted")
        axes.text(1.03, place + 0.2, words, transform=where, fontsize=7.8, va="center",
                  color=palette[mark], parse_math=False)  # fmt: skip


def _limit_ladder(axes, name, shown, baselines, count, palette) -> None:
    """Fits the axis to the runs, and to the baselines that lie near enough not to squeeze them."""
    low, high = min(shown), max(shown)
    low, high = drawing.room_around(low, high)
    room = (high - low) or 0.02 * abs(high) or 0.01
    for _, baseline in baselines:
        if low - 2 * room <= baseline.value <= high + 2 * room:
            low, high = min(low, baseline.value), max(high, baseline.value)
    room = 0.12 * ((high - low) or room)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(count - 0.5, -0.5)

    letters = [comparison_lib.letter(place) for place in range(count)]
    axes.set_yticks(range(count), letters, fontweight="bold")
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_color(drawing.group_style(place, palette)[0])

    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    drawing.value_ticks(axes.xaxis, "percent" if style.is_share(name) else "")
