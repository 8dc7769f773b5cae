# SPDX-License-Identifier: Apache-2.0
"""Runs side by side as one PNG, with what is said above its charts.

Comparison  ->  comparison_ladders  ->  each group's final metrics
            ->  comparison_curves   ->  every run over its steps
            ->  picture             ->  both in one PNG; the page shows each chart by itself
"""

import io
import math
import textwrap

from matplotlib import figure as mpl_figure

from electra_jax.report import comparison as comparison_lib
from electra_jax.report import comparison_curves, comparison_ladders, style

_LETTERS = 160  # in a line of a note, which has the width of the picture
_PALETTE = style.LIGHT


def picture(comparison: comparison_lib.Comparison) -> bytes:
    """The groups in words, then the ladders, then the curves, three charts in a row.

    Heights are inches, measured from the top.
    """
    ladders = comparison_ladders.metrics(comparison)[:6]
    along = "tokens_seen" if comparison_lib.tokens_say_more(comparison) else "step"
    panels = comparison_curves.panels(comparison, along)
    panels = panels or comparison_curves.panels(comparison, "step")
    notes = [
        line for note in comparison.notes for line in textwrap.wrap(f"Note: {note}.", _LETTERS)
    ]

    rung = 0.42 * len(comparison.groups) + 0.35
    top = 0.95 + 0.27 * (len(comparison.groups) + len(notes)) + 0.6
    middle = top + math.ceil(len(ladders) / 3) * (rung + 1.0)  # where the curves begin
    height = middle + math.ceil(len(panels) / 3) * 3.0 + 0.2
    figure = mpl_figure.Figure(figsize=(15, height), facecolor=_PALETTE["card"])

    _write_heading(figure, comparison, notes)
    for place, (name, title) in enumerate(ladders):
        row, column = divmod(place, 3)
        axes = _add_axes(figure, column, top + row * (rung + 1.0), 0.165, rung)
        comparison_ladders.draw(axes, comparison, name, title, _PALETTE)
    for place, panel in enumerate(panels):
        row, column = divmod(place, 3)
        axes = _add_axes(figure, column, middle + row * 3.0, 0.235, 1.95)
        comparison_curves.draw(axes, panel, _PALETTE)
    if not ladders and not panels:
        _write_line(figure, "Nothing to draw yet.", top, 11, "muted")

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _write_heading(figure, comparison, notes) -> None:
    """The headline, the groups in their colours, and the notes."""
    _write_line(figure, headline(comparison), 0.45, 16, "ink", "bold")
    below = 0.85
    for place, group in enumerate(comparison.groups):
        colour = style.GROUPS[place % len(style.GROUPS)]
        _write_line(figure, caption(group), below, 11, colour, "bold")
        below += 0.27
    for note in notes:
        _write_line(figure, note, below, 10, "muted")
        below += 0.27


def _write_line(figure, text, below, size, colour, weight="normal") -> None:
    """A line of text so many inches below the top."""
    figure.text(
        0.045, 1 - below / figure.get_figheight(), text, fontsize=size, color=_PALETTE[colour],
        fontweight=weight, parse_math=False,
    )  # fmt: skip


def _add_axes(figure, column, top, width, height):
    """Axes in one of three columns; `width` is a share of the figure's, the others are inches."""
    whole = figure.get_figheight()
    return figure.add_axes(
        (0.045 + 0.325 * column, 1 - (top + height) / whole, width, height / whole)
    )


def headline(comparison: comparison_lib.Comparison) -> str:
    """`9 runs, 3 configurations: disc_weight`."""
    runs, groups = len(comparison.runs), len(comparison.groups)
    if groups == 1:
        return f"{runs} runs of one configuration"

    names = [comparison_lib.short(path) for path in comparison.differing]
    names = names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]
    return f"{runs} runs, {groups} configurations: {', '.join(names)}"


def caption(group: comparison_lib.Group) -> str:
    """`B  disc_weight 50, 3 seeds  ·  step 2,000, 8.06M tokens`."""
    facts = [group.title]
    step = comparison_lib.progress(group, "step")
    tokens = comparison_lib.progress(group, "tokens_seen")
    if step is not None:
        facts.append(f"step {step:,.0f}" + (f", {style.count(tokens)} tokens" if tokens else ""))
    evaluated = sum(bool(run.last("eval")) for run in group.counted)
    if 0 < evaluated < len(group.counted):
        facts.append(f"{evaluated} of {len(group.counted)} evaluated")
    return "  ·  ".join(facts)
