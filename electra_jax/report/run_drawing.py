# SPDX-License-Identifier: Apache-2.0
"""The panels of a run, drawn: one picture of all of them, or each as SVG for the page.

    panels  ->  draw  ->  picture: report.png
                      ->  chart:   the charts of report.html

The same function draws a panel for both. In the page its colours are CSS variables, so that it
follows the reader's light or dark setting.
"""

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker, transforms

from electra_jax.report import charts, drawing, run_panels, style

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


def chart(panel: run_panels.Panel, curves: run_panels.Curves) -> charts.Chart:
    """A panel as inline SVG in the colours and the font of the page around it."""
    readable = []
    for line in panel.lines:
        steps, shown = _drawn(line)
        name = line.label or panel.title
        name += " (running mean)" if line.look == "train" else ""
        readable.append(charts.Curve(name, line.colour, steps, shown))

    return charts.chart(
        panel.title,
        (4.6, 2.9),
        (0.105, 0.14, 0.585, 0.6),
        lambda axes, scale: draw(axes, panel, curves, drawing.STAND_INS, scale),
        readable,
        along="step",
        unit="percent" if panel.percent else "",
    )


def _drawn(line: run_panels.Line) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line as they are drawn: (steps, values)."""
    means, _, _ = run_panels.thinned(line.series)
    values = drawing.smoothed(means.values) if line.look == "train" else means.values
    return means.steps, values


def draw(
    axes,
    panel: run_panels.Panel,
    curves: run_panels.Curves,
    palette: Mapping[str, str],
    scale: str = "linear",
) -> None:
    """One panel: lines, their labels at the right end, steps below and tokens seen above."""
    drawing.frame(axes, palette)
    axes.grid(axis="y", color=palette["grid"], linewidth=0.8)
    if panel.log:
        axes.set_yscale("log")

    for line in panel.lines:
        _draw_line(axes, panel, line, palette)
    for alarm in curves.alarms:
        if panel.title in run_panels.MARKED[alarm.name]:
            axes.axvline(alarm.step, color=palette["bad"], linewidth=1, linestyle=(0, (1, 2)))

    # The limits come before the labels, whose heights depend on them.
    ends = [(line, _drawn(line)[1]) for line in panel.lines]
    _limit(axes, panel, np.concatenate([values for _, values in ends]))
    _label_ends(axes, panel, [(line, values[-1]) for line, values in ends], palette)
    _label_steps(axes, curves, palette, scale)

    axes.set_title(
        panel.title, loc="left", fontsize=11, fontweight="bold", color=palette["ink"], pad=34
    )
    axes.text(
        0, 1, panel.subtitle, transform=drawing.above(axes, 23), fontsize=8.5,
        color=palette["muted"], parse_math=False,
    )  # fmt: skip

    if panel.log:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    else:
        drawing.value_ticks(axes.yaxis, "percent" if panel.percent else "")


def _draw_line(axes, panel: run_panels.Panel, line: run_panels.Line, palette) -> None:
    """One line of a panel, with its band or its dots."""
    colour = palette[line.colour]
    steps, shown = _drawn(line)
    if line.look == "train":
        means, low, high = run_panels.thinned(line.series)
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


def _limit(axes, panel: run_panels.Panel, values: np.ndarray) -> None:
    """Fits the axis to the solid lines; a spike of a single step may leave the picture."""
    low, high = float(values.min()), float(values.max())
    if panel.log:
        low, high = max(low, 1e-6), max(high, 1e-6)
        axes.set_ylim(low / 1.6, high * 1.6)
        return

    # The axis starts at zero if the values come close to it.
    low, high = drawing.room_around(low, high)
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


def _label_steps(axes, curves: run_panels.Curves, palette: Mapping[str, str], scale: str) -> None:
    """Steps below the panel, and above it the tokens seen by then, if they are known."""
    ticks = drawing.along(axes, scale, curves.first_step, curves.last_step, "steps", palette)

    tokens = curves.get("train", "tokens_seen") or curves.get("eval", "tokens_seen")
    if not tokens:
        return
    at = np.interp(ticks, np.append(0, tokens.steps), np.append(0, tokens.values))
    where = transforms.blended_transform_factory(axes.transData, drawing.above(axes, 6))
    for tick, seen in zip(ticks, at):
        if tick:
            label = f"{style.count(seen)} tokens" if tick == ticks[-1] else style.count(seen)
            axes.text(
                tick, 1, label, transform=where, fontsize=7.5, ha="center", color=palette["muted"]
            )
