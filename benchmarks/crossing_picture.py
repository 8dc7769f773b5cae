# SPDX-License-Identifier: Apache-2.0
"""The picture of `crossing.py`: a panel a measure with a line an arm, and one of generator sizes.

Lines join means over seeds, bands are two standard errors to either side; an arm at half the rate
has the colour of that at the whole one, and a broken line. The last panel has what ELECTRA's score
gains or loses with another width of its generator, as figure 3 of the paper.
"""

import io

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from benchmarks import crossing_runs as runs
from benchmarks import pages
from electra_jax.report import style

COLOURS = {
    runs.BERT: "second",
    runs.REFERENCE: "third",
    "one_trunk": "fourth",
    "electra_demo": "fifth",
}
COLUMNS = 4
# The width of the generator as a share of the discriminator's, of kinds of one rate.
SIZES = {"electra_eighth": 1 / 8, "electra_quarter": 1 / 4, runs.REFERENCE: 1 / 2,
         "electra_whole": 1}  # fmt: skip
SIZES_HALF = {f"{kind}_half": share for kind, share in SIZES.items()}


def draw(found: runs.FinishedBudgets) -> bytes:
    """The picture; PNG."""
    names = [*found.averages, *found.measures]
    lines = -(-(len(names) + 2) // COLUMNS)
    size = (3.7 * COLUMNS, 3.6 * lines)
    figure = mpl_figure.Figure(figsize=size, facecolor=style.LIGHT["card"])
    panels = figure.subplots(lines, COLUMNS, squeeze=False).flat
    for axes in panels[len(names) :]:
        axes.set_visible(False)

    for axes, name in zip(panels, names):
        _scores(axes, found, name)
    if any(kind in SIZES | SIZES_HALF for kind in found.variants):
        panels[len(names)].set_visible(True)
        _sizes(panels[len(names)], found)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="lower right", frameon=False, fontsize=8.5,
        labelcolor=style.LIGHT["ink"], bbox_to_anchor=(0.99, 0.04),
    )  # fmt: skip
    figure.tight_layout(w_pad=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _scores(axes, found, name):
    """One measure of all arms that are held against BERT, by compute."""
    for kind in found.curves:
        _line(axes, found, kind, name)
    floor = found.untrained(name)
    if floor is not None:
        axes.axhline(100 * floor.value, color=style.LIGHT["muted"], linewidth=1.1,
                     linestyle=(0, (4, 3)))  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks([found.flops(budget) for budget in found.budgets],
                    [f"{budget} x" for budget in found.budgets])  # fmt: skip
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("training FLOPs", color=style.LIGHT["muted"], fontsize=9)
    pages.plain_axes(axes, f"{title(name)}, %")


def _line(axes, found, kind, name):
    """The curve of one arm with its band."""
    palette = style.LIGHT
    points = {budget: found.mean(kind, budget, name) for budget in found.budgets}
    points = {budget: mean for budget, mean in points.items() if mean is not None}
    if not points:
        return
    at = [found.flops(budget) for budget in points]
    middles = [100 * mean.value for mean in points.values()]
    spreads = [200 * (mean.error or 0) for mean in points.values()]

    colour, half = palette[COLOURS[kind.removesuffix("_half")]], kind.endswith("_half")
    axes.plot(at, middles, color=colour, linestyle="--" if half else "-", linewidth=1.6,
              marker="o", markersize=4.5, markerfacecolor=palette["card"] if half else colour,
              label=runs.TITLES[kind])  # fmt: skip
    low, high = (
        [middle + sign * spread for middle, spread in zip(middles, spreads)] for sign in (-1, 1)
    )
    axes.fill_between(at, low, high, color=colour, alpha=0.08 if half else 0.16, linewidth=0)


def _sizes(axes, found):
    """What another width of the generator gains or loses in the mean of all measures."""
    palette = style.LIGHT
    budget = found.budgets[0]
    for sizes, colour in ((SIZES, palette["third"]), (SIZES_HALF, palette["second"])):
        apart = {kind: found.apart(kind, budget, runs.MEAN, runs.origin(kind)) for kind in sizes}
        shown = {kind: one for kind, one in apart.items() if one and kind in runs.VARIANTS}
        if not shown:
            continue
        widths = [sizes[kind] for kind in shown]
        amounts = [100 * one.amount for one in shown.values()]
        bars = [200 * (one.error or 0) for one in shown.values()]
        axes.errorbar(
            widths, amounts, bars, color=colour, fmt="o",
            markersize=4, linewidth=1.4, capsize=3,
            label="half the rate" if sizes is SIZES_HALF else "the whole rate",
        )  # fmt: skip
    axes.axhline(0, color=palette["muted"], linewidth=1.1, linestyle=(0, (4, 3)))
    axes.set_xscale("log", base=2)
    axes.set_xticks([*SIZES.values()], ["1/8", "1/4", "1/2", "1/1"])
    axes.set_xlabel("width of the generator", color=palette["muted"], fontsize=9)
    axes.legend(frameon=False, fontsize=8, labelcolor=palette["ink"])
    pages.plain_axes(axes, "Mean, less a generator of 1/2, points")


def title(name: str) -> str:
    """What a measure is called at the beginning of a line."""
    words = (runs.MEANS | runs.NAMES)[name]
    return words[0].upper() + words[1:]
