# SPDX-License-Identifier: Apache-2.0
"""What all charts share: SVG in the colours of the page, ticks and labels.

    a figure drawn in STAND_INS  ->  svg          ->  inline SVG whose colours are CSS variables
    a picture or a page          ->  write_whole  ->  the file, never half of it

`run_drawing.py`, `comparison_curves.py`, `comparison_ladders.py` and `finetuning/results/page.py`
draw with matplotlib and use these functions, which do not know what is drawn.
"""

import html
import io
import re
from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib import transforms

from electra_jax.host import safe_files
from electra_jax.report import style

# A unique colour for each name of the palette. `svg` finds it in the drawing and puts the CSS
# variable of that name in its place.
STAND_INS = {name: f"#fe01{place:02x}" for place, name in enumerate(style.LIGHT)}


def svg(figure, title: str) -> str:
    """A figure drawn in STAND_INS, as inline SVG in the colours and the font of its page."""
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
    return drawn.replace("<svg", f'<svg aria-label="{html.escape(title)}"', 1)


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


def title(axes, words: str, unit: str, palette: Mapping[str, str]) -> None:
    """The title of a chart in bold, and its unit between the title and the axes."""
    axes.set_title(
        words, loc="left", fontsize=11, fontweight="bold", color=palette["ink"], pad=24
    )  # fmt: skip
    axes.text(
        0, 1, unit, transform=above(axes, 11), fontsize=8.5, color=palette["muted"],
        parse_math=False,
    )  # fmt: skip


def look(group: int, palette: Mapping[str, str]) -> tuple[str, tuple]:
    """Colour and dashes of a group; where there are more groups than colours, they are dashed."""
    rounds, place = divmod(group, len(style.GROUPS))
    return palette[style.GROUPS[place]], (0, ()) if not rounds else (0, (4, 1 + rounds))


def above(axes, points: float):
    """Axes coordinates, moved up by a number of points."""
    return axes.transAxes + transforms.ScaledTranslation(
        0, points / 72, axes.figure.dpi_scale_trans
    )


def spread(places: np.ndarray, gap: float) -> np.ndarray:
    """Moves heights apart until labels of the height `gap` do not overlap, all near 0 or above."""
    places, order = np.array(places, float), np.argsort(places)
    for _ in range(60):
        for lower, upper in zip(order[:-1], order[1:]):
            overlap = max(0.0, gap - (places[upper] - places[lower]))
            places[lower] -= overlap / 2
            places[upper] += overlap / 2

    return places + max(0.0, -0.03 - places.min())


def tick(value: float, _=None) -> str:
    """A number beside an axis or at the end of a line."""
    if value and abs(value) < 0.01:
        return f"{value:.1e}".replace("e-0", "e-")
    return rounded(value, value) if abs(value) >= 1000 else f"{value:.3g}"


def rounded(number: float, largest: float) -> str:
    """A tick in the unit of the largest one: 500k on an axis up to 1000k, 0.5M on one up to 2M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if number and abs(largest) >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}"


def write_whole(path: str, content: bytes) -> None:
    """Replaces a file at once: a reader sees the old content or the new one, never half of it."""
    safe_files.write(path, content)
