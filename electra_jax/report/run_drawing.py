# SPDX-License-Identifier: Apache-2.0
"""The panels of a run, drawn: one picture of all of them, or each as SVG for the page.

    panels  ->  draw  ->  picture: report.png
                      ->  svg:     the charts of report.html

The same function draws a panel for both. In the page its colours are CSS variables, so that it
follows the reader's light or dark setting.
"""

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.report import drawing, run_panels, style

NOTHING_YET = "Nothing to draw yet: the first metrics are on their way."


def picture(
    curves: run_panels.Curves, panels: Sequence[run_panels.Panel], name: str, verdict: str
) -> bytes:
    """All panels in one PNG, three in a row, under the run's name and its verdict."""
    palette = style.LIGHT
    rows = max(1, math.ceil(len(panels) / 3))
    height = 1.0 + 3.0 * rows  # inches

    figure = mpl_figure.Figure(figsize=(15, height), facecolor=palette["card"])
    title = f"{name}  ·  step {curves.last_step:,}"
    for text, below, size, colour, weight in (
        (title, 0.38, 16, "ink", "bold"),
        (verdict, 0.66, 11, "muted", "normal"),
    ):
        figure.text(
            0.045, 1 - below / height, text, fontsize=size, color=palette[colour],
            fontweight=weight, parse_math=False,
        )  # fmt: skip
    if not panels:
        figure.text(0.045, 0.5, NOTHING_YET, fontsize=11, color=palette["muted"])

    # The room between the panels is for labels: of line ends at the right, of tokens above.
    grid = figure.add_gridspec(
        rows, 3, left=0.045, right=0.905, bottom=0.5 / height, top=1 - 1.65 / height,
        wspace=0.55, hspace=0.72,
    )  # fmt: skip
    for place, panel in enumerate(panels):
        draw(figure.add_subplot(grid[place // 3, place % 3]), panel, curves, palette)

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def svg(panel: run_panels.Panel, curves: run_panels.Curves) -> str:
    """A panel as inline SVG in the colours and the font of the page around it."""
    figure = mpl_figure.Figure(figsize=(4.6, 2.9), facecolor="none")
    axes = figure.add_axes((0.105, 0.14, 0.63, 0.6))
    draw(axes, panel, curves, drawing.STAND_INS)
    return drawing.svg(figure, panel.title)


def draw(
    axes, panel: run_panels.Panel, curves: run_panels.Curves, palette: Mapping[str, str]
) -> None:
    """One panel: lines, their labels at the right end, steps below and tokens seen above."""
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)
    if panel.log:
        axes.set_yscale("log")

    ends, extent = [], []
    for line in panel.lines:
        colour = palette[line.colour]
        means, low, high = run_panels.thinned(line.series)
        steps, shown = means.steps, means.values
        if line.look == "train":
            shown = drawing.smoothed(means.values)
            if len(panel.lines) < 4:  # more bands than that would hide the lines
                axes.fill_between(steps, low, high, color=colour, alpha=0.14, linewidth=0)
                axes.plot(steps, means.values, color=colour, alpha=0.2, linewidth=0.7)
            faint = 0.5 if any(other.look == "eval" for other in panel.lines) else 1.0
            axes.plot(steps, shown, color=colour, linewidth=1.5, alpha=faint)
        elif line.look in ("eval", "exact"):
            axes.plot(steps, shown, color=colour, linewidth=1.8 if line.look == "eval" else 1.5)
        else:
            axes.plot(steps, shown, color=colour, linewidth=1.1, linestyle=(0, (5, 3)))

        # A single point is no line, and few evaluations deserve to be seen one by one.
        if len(steps) == 1 or (line.look == "eval" and len(steps) <= 40):
            size = 6 if len(steps) == 1 else 3.6
            axes.plot(steps, shown, "o", color=colour, markersize=size, clip_on=False)
        extent.append(shown)
        ends.append((line, shown[-1]))

    for alarm in curves.alarms:
        if panel.title in run_panels.MARKED[alarm.name]:
            axes.axvline(alarm.step, color=palette["bad"], linewidth=1, linestyle=(0, (1, 2)))

    # The limits come before the labels, whose heights depend on them.
    _limit(axes, panel, np.concatenate(extent))
    _label_ends(axes, panel, ends, palette)
    _label_steps(axes, curves, palette)

    axes.set_title(
        panel.title, loc="left", fontsize=11, fontweight="bold", color=palette["ink"], pad=34
    )
    axes.text(
        0, 1, panel.unit, transform=drawing.above(axes, 23), fontsize=8.5, color=palette["muted"],
        parse_math=False,
    )  # fmt: skip

    if panel.percent:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{100 * y:.4g}%"))
    elif panel.log:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    else:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(drawing.tick))


def _limit(axes, panel: run_panels.Panel, values: np.ndarray) -> None:
    """Fits the axis to the solid lines; a spike of a single step may leave the picture."""
    low, high = float(values.min()), float(values.max())
    if panel.log:
        low, high = max(low, 1e-6), max(high, 1e-6)
        axes.set_ylim(low / 1.6, high * 1.6)
        return

    # The axis starts at zero if the values come close to it.
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    zero = panel.from_zero or (low >= 0 and (low < room or low < 0.3 * high))
    bottom, room = (0.0, max(room, 0.08 * high)) if zero else (low - room, room)
    axes.set_ylim(bottom, min(high + room, 1.0) if panel.percent and high <= 1 else high + room)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def _label_ends(axes, panel: run_panels.Panel, ends: list, palette: Mapping[str, str]) -> None:
    """Writes each line's name and last value beside its end; labels that overlap move apart."""
    heights = axes.transData.transform([(0, value) for _, value in ends])
    places = np.clip(axes.transAxes.inverted().transform(heights)[:, 1], 0, 1)
    places = drawing.spread(places, 0.105)  # a label's height, as a share of the panel's

    for (line, value), place in zip(ends, places):
        number = f"{100 * value:.1f}%" if panel.percent else drawing.tick(value)
        axes.text(
            1.02, place, f"{line.label} {number}".strip(), transform=axes.transAxes, fontsize=8.5,
            va="center", color=palette[line.colour], parse_math=False,
            fontweight="bold" if line.look == "eval" else "normal",
        )  # fmt: skip


def _label_steps(axes, curves: run_panels.Curves, palette: Mapping[str, str]) -> None:
    """Steps below the panel, and above it the tokens seen by then, if they are known."""
    end = max(curves.last_step, 1)
    ticks = [
        t for t in ticker.MaxNLocator(nbins=4, integer=True).tick_values(0, end) if 0 <= t <= end
    ]
    axes.set_xlim(0, end)
    axes.set_xticks(ticks, [drawing.rounded(t, end) for t in ticks])
    axes.set_xlabel("steps", fontsize=8.5, color=palette["muted"], loc="right", labelpad=1)

    tokens = curves.get("train", "tokens_seen") or curves.get("eval", "tokens_seen")
    if not tokens:
        return
    at = np.interp(ticks, np.append(0, tokens.steps), np.append(0, tokens.values))
    for tick, seen in zip(ticks, at):
        if tick:
            label = f"{style.count(seen)} tokens" if tick == ticks[-1] else style.count(seen)
            axes.text(
                tick / end, 1, label, transform=drawing.above(axes, 6), fontsize=7.5, ha="center",
                color=palette["muted"],
            )  # fmt: skip
