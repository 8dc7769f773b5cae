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


def picture(comparison: comparison_lib.Comparison) -> bytes:
    """The groups in words, then the ladders, then the curves, three charts in a row.

    Heights are inches, measured from the top.
    """
    palette = style.LIGHT
    ladders = comparison_ladders.metrics(comparison)[:6]
    along = "tokens_seen" if comparison_lib.tokens_say_more(comparison) else "step"
    panels = comparison_curves.panels(comparison, along)
    panels = panels or comparison_curves.panels(comparison, "step")
    groups = comparison.groups
    notes = [
        line for note in comparison.notes for line in textwrap.wrap(f"Note: {note}.", _LETTERS)
    ]

    rung = 0.42 * len(groups) + 0.35
    ladder_rows, curve_rows = math.ceil(len(ladders) / 3), math.ceil(len(panels) / 3)
    top = 0.95 + 0.27 * (len(groups) + len(notes)) + 0.6
    height = top + ladder_rows * (rung + 1.0) + curve_rows * 3.0 + 0.2
    figure = mpl_figure.Figure(figsize=(15, height), facecolor=palette["card"])

    def say(text, below, size, colour, weight="normal", left=0.045):
        figure.text(
            left, 1 - below / height, text, fontsize=size, color=palette[colour],
            fontweight=weight, parse_math=False,
        )  # fmt: skip

    say(headline(comparison), 0.45, 16, "ink", "bold")
    at = 0.85  # of the next line of text
    for place, group in enumerate(groups):
        say(caption(group), at, 11, style.GROUPS[place % len(style.GROUPS)], "bold")
        at += 0.27
    for note in notes:
        say(note, at, 10, "muted")
        at += 0.27

    left, wide, gap = 0.045, 0.165, 0.325  # shares of the width
    for place, (name, title) in enumerate(ladders):
        row, column = divmod(place, 3)
        bottom = top + row * (rung + 1.0) + rung
        axes = figure.add_axes((left + gap * column, 1 - bottom / height, wide, rung / height))
        comparison_ladders.draw(axes, comparison, name, title, palette)

    for place, panel in enumerate(panels):
        row, column = divmod(place, 3)
        bottom = top + ladder_rows * (rung + 1.0) + row * 3.0 + 1.95
        axes = figure.add_axes((left + gap * column, 1 - bottom / height, 0.235, 1.95 / height))
        comparison_curves.draw(axes, panel, palette)
    if not ladders and not panels:
        say("Nothing to draw yet.", top, 11, "muted")

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


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
