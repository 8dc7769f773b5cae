# SPDX-License-Identifier: Apache-2.0
"""What all charts share: SVG in the colours of the page, ticks and labels.

    a figure drawn in STAND_INS  ->  svg          ->  inline SVG whose colours are CSS variables
    a picture or a page          ->  write_whole  ->  the file, never half of it

`run_drawing.py`, `comparison_curves.py`, `comparison_ladders.py` and the `page_charts.py` of
fine-tuning draw with matplotlib and use these functions, which do not know what is drawn.
`charts.py` puts their drawings into pages.
"""

import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib import ticker, transforms

from electra_jax.host import safe_files
from electra_jax.report import style

# A unique colour for each name of the palette. `svg` finds it in the drawing and puts the CSS
# variable of that name in its place.
STAND_INS = {name: f"#fe01{place:02x}" for place, name in enumerate(style.LIGHT)}

SCALES = ("linear", "logarithmic")  # of an axis of steps or tokens


def svg(figure, title: str, axes) -> str:
    """A figure drawn in STAND_INS, as inline SVG in the colours and the font of its page.

    Args:
      figure: what is drawn.
      title: of the SVG; different for all charts of a page.
      axes: those of the figure. Their place and limits become an attribute of the SVG, from which
        `templates/charts.js` computes where a value is drawn.
    """
    file = io.StringIO()
    # Letters stay text. The salt makes the ids of clip paths reproducible, and different between
    # the charts of a page.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(file, format="svg", metadata={"Date": None})

    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r' id="[A-Za-z]+[A-Za-z.]*_\d+"', "", drawn)  # would repeat in every figure
    drawn = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', ' role="img"', drawn, count=1)
    drawn = re.sub(r' transform="rotate\(-0 [^"]*"', "", drawn)
    drawn = re.sub(r"'DejaVu Sans'[^;\"]*", style.FONT, drawn)

    for name, stand_in in STAND_INS.items():
        drawn = drawn.replace(stand_in, f"var(--{name})")
    about = html.escape(json.dumps(_place(figure, axes)))
    return drawn.replace("<svg", f'<svg aria-label="{html.escape(title)}" data-axes="{about}"', 1)


def _place(figure, axes) -> dict:
    """Where axes are in the SVG of their figure, in points, and their limits."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    box = axes.get_position()
    return {
        "left": round(box.x0 * width, 2),
        "right": round(box.x1 * width, 2),
        "top": round((1 - box.y1) * height, 2),
        "bottom": round((1 - box.y0) * height, 2),
        "x": [float(limit) for limit in axes.get_xlim()],
        "y": [float(limit) for limit in axes.get_ylim()],
        "xlog": axes.get_xscale() == "log",
        "ylog": axes.get_yscale() == "log",
    }


def smoothed(values: np.ndarray, share: float = 0.04) -> np.ndarray:
    """A running mean over a share of the points.

    The window gets narrower towards the start, so that a steep beginning keeps its shape. At the
    end it covers earlier points only, so that the last number is a mean too.
    """
    count = len(values)
    place, half = np.arange(count), int(count * share / 2)
    back = np.minimum(place, half)
    ahead = np.minimum(back, count - 1 - place)
    total = np.concatenate([[0.0], np.cumsum(values)])
    return (total[place + ahead + 1] - total[place - back]) / (ahead + back + 1)


def frame(axes, palette: Mapping[str, str]) -> None:
    """Axes with a line below instead of a box, and small numbers in a muted colour."""
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette["line"])
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=palette["muted"], pad=4)


def title(axes, text: str, subtitle: str, palette: Mapping[str, str]) -> None:
    """The title of a chart in bold, and small letters between it and the axes."""
    axes.set_title(
        text, loc="left", fontsize=11, fontweight="bold", color=palette["ink"], pad=24
    )  # fmt: skip
    axes.text(
        0, 1, subtitle, transform=above(axes, 11), fontsize=8.5, color=palette["muted"],
        parse_math=False,
    )  # fmt: skip


def group_style(group: int, palette: Mapping[str, str]) -> tuple[str, tuple]:
    """Colour and dashes of a group; groups beyond the number of colours are dashed."""
    rounds, place = divmod(group, len(style.GROUPS))
    return palette[style.GROUPS[place]], (0, ()) if not rounds else (0, (4, 1 + rounds))


def above(axes, points: float):
    """Axes coordinates, moved up by a number of points."""
    return axes.transAxes + transforms.ScaledTranslation(
        0, points / 72, axes.figure.dpi_scale_trans
    )


def along(axes, scale: str, first: float, end: float, name: str, palette) -> list[float]:
    """Limits, ticks and name of an axis of steps or tokens; returns the places of the ticks.

    Args:
      axes: whose x axis it is.
      scale: one of SCALES.
      first: the first point of the curves; a logarithmic axis begins there.
      end: the last point.
      name: of the axis.
      palette: the colours.
    """
    end = max(end, 1)
    if scale == "logarithmic":
        first = first if 0 < first < end else end / 10
        axes.set_xscale("log")
        # A little room, so that the number of the first step is clear of those of the y axis.
        axes.set_xlim(first * (first / end) ** 0.06, end)
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        places = _powers(first, end)
        axes.set_xticks(places, [rounded(place, place) for place in places])
    else:
        axes.set_xlim(0, end)
        places = ticker.MaxNLocator(nbins=4, integer=True).tick_values(0, end)
        places = [place for place in places if 0 <= place <= end]
        axes.set_xticks(places, [rounded(place, end) for place in places])

    axes.set_xlabel(name, fontsize=8.5, color=palette["muted"], loc="right", labelpad=1)
    return places


def _powers(first: float, end: float) -> list[float]:
    """At most six ticks of a logarithmic axis: 1, 2, 5, 10 ..., or powers of ten, or some."""
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(end)) + 1)
    for steps in ((1, 2, 5), (1,)):
        places = [step * 10.0**power for power in powers for step in steps]
        places = [place for place in places if first <= place <= end]
        if 2 <= len(places) <= 6:
            return places
    return places[:: math.ceil(len(places) / 6)] if len(places) > 6 else [first, end]


def value_ticks(axis, unit: str = "") -> None:
    """Labels the ticks of an axis of values with as many digits as tell them apart.

    Args:
      axis: `axes.xaxis` or `axes.yaxis`; its limits and its locator are set.
      unit: 'percent', 'hundredths' or ''.
    """
    low, high = sorted(axis.get_view_interval())
    places = [place for place in axis.get_majorticklocs() if low <= place <= high]
    axis.set_ticks(places, distinct(places, unit))


def distinct(values: Sequence[float], unit: str = "") -> list[str]:
    """Numbers with at least three digits, and more if two different ones looked the same."""
    for digits in range(3, 12):
        if unit:
            sign = "%" if unit == "percent" else ""
            labels = [f"{100 * value:.{digits}g}{sign}" for value in values]
        else:
            labels = [tick(value, digits=digits) for value in values]
        if len(set(labels)) == len(set(values)):
            break
    return labels


def room_around(low: float, high: float) -> tuple[float, float]:
    """Widens the range of curves that hardly change: their ticks would need too many digits.

    The range becomes a five-hundredth of the values. Curves that do not change at all have no
    range, and it stays so.
    """
    lacking = 0.002 * max(abs(low), abs(high)) - (high - low)
    return (low - lacking / 2, high + lacking / 2) if lacking > 0 and high > low else (low, high)


def spread(places: np.ndarray, gap: float, low: float = 0.02, high: float = 0.97) -> np.ndarray:
    """Moves heights apart until labels of the height `gap` do not overlap.

    They stay between `low` and `high`, where they are clear of the numbers below and above a
    chart, unless there are too many.
    """
    places, order = np.array(places, float), np.argsort(places, kind="stable")
    for _ in range(60):
        for lower, upper in zip(order[:-1], order[1:]):
            overlap = max(0.0, gap - (places[upper] - places[lower]))
            places[lower] -= overlap / 2
            places[upper] += overlap / 2

    for limit, neighbour in zip(order[::-1], [None, *order[:0:-1]]):
        at_most = high if neighbour is None else places[neighbour] - gap
        places[limit] = min(places[limit], at_most)
    for limit, neighbour in zip(order, [None, *order[:-1]]):
        at_least = low if neighbour is None else places[neighbour] + gap
        places[limit] = max(places[limit], at_least)
    return places


def tick(value: float, _=None, digits: int = 3) -> str:
    """A number beside an axis or at the end of a line."""
    if value and abs(value) < 0.01:
        return f"{value:.{digits - 2}e}".replace("e-0", "e-")
    if digits == 3 and abs(value) >= 1000:
        return rounded(value, value)
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


def rounded(number: float, largest: float) -> str:
    """A tick in the unit of the largest one: 500k on an axis up to 1000k, 0.5M on one up to 2M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if number and abs(largest) >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}"


def write_whole(path: str, content: bytes) -> None:
    """Replaces a file at once: a reader sees the old content or the new one, never half of it."""
    safe_files.write(path, content)
