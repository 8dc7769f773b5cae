# SPDX-License-Identifier: Apache-2.0
"""A chart of a page: drawn once for each scale of its x axis, with the values of its curves.

    a function that draws  ->  SVG with linear steps, SVG with logarithmic steps
    curves                 ->  JSON, where `templates/charts.js` finds the value under the pointer

The page shows one of the drawings and hides the others; a button of the page says which. The macro
`chart` of `templates/macros.html.j2` writes a `Chart` into a page.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import figure as mpl_figure

from electra_jax.report import drawing

UNITS = ("", "percent", "hundredths")  # how a value is written: 0.5, 50.00%, 50.00


@dataclasses.dataclass(frozen=True)
class Curve:
    """The points of one line as they are drawn."""

    name: str
    colour: str  # a name of the palette
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart of a page."""

    drawn: Mapping[str, str]  # scale -> SVG; the only one is called 'only'
    curves: str  # JSON for the pointer


def chart(
    title: str,
    size: tuple[float, float],
    box: tuple[float, float, float, float],
    draw: Callable[[Any, str], None],
    curves: Sequence[Curve],
    along: str,
    unit: str = "",
) -> Chart:
    """Draws a chart with linear and with logarithmic steps.

    Args:
      title: of the SVG, for those who hear the page.
      size: width and height in inches.
      box: left, bottom, width and height of the axes, as shares of the size.
      draw: draws into (axes, scale); scale is one of `drawing.SCALES`.
      curves: what the pointer can read.
      along: what x is: 'step' or 'tokens seen'.
      unit: how values of y are written, one of UNITS.
    """
    drawn = {}
    for scale in drawing.SCALES:
        figure = mpl_figure.Figure(figsize=size, facecolor="none")
        axes = figure.add_axes(box)
        draw(axes, scale)
        named = title if scale == "linear" else f"{title}, {scale} scale"
        drawn[scale] = drawing.svg(figure, named, axes)

    return Chart(drawn, _json(curves, {"along": along, "unit": unit, "read": "y"}))


def alone(figure: mpl_figure.Figure, title: str, curves: Sequence[Curve], unit: str = "") -> Chart:
    """A chart without steps: it has one drawing, and the pointer reads x of its points.

    Args:
      figure: with one pair of axes, drawn in the colours `drawing.STAND_INS`.
      title: as for `chart`; also `curves` and `unit`, here of x.
    """
    (axes,) = figure.axes
    about = {"along": "", "unit": unit, "read": "x"}
    return Chart({"only": drawing.svg(figure, title, axes)}, _json(curves, about))


def _json(curves: Sequence[Curve], about: Mapping[str, str]) -> str:
    """The curves with six digits, which are more than a reader needs."""
    lines = [
        {
            "name": curve.name,
            "colour": curve.colour,
            "x": [float(f"{x:.6g}") for x in curve.x],
            "y": [float(f"{y:.6g}") for y in curve.y],
        }
        for curve in curves
    ]
    return json.dumps({**about, "lines": lines}, separators=(",", ":"))
