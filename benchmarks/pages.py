# SPDX-License-Identifier: Apache-2.0
"""The parts of the pages that benchmarks write: text in Markdown, tables, cells, and the picture.

Means, errors and what counts as resolved are those of `electra_jax.compare`.
"""

import os
import textwrap
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from electra_jax.report import comparison, drawing, means, style


def write_with_picture(page: str, drawn: bytes, blocks: Callable[[str], Sequence[str]]) -> None:
    """Writes a page and, beside it, its picture, each at once or not at all.

    Args:
      page: the path.
      drawn: the picture, PNG.
      blocks: from the name of the picture to the blocks of the page.
    """
    os.makedirs(os.path.dirname(page) or ".", exist_ok=True)
    picture = os.path.splitext(page)[0] + ".png"
    drawing.write_whole(picture, drawn)
    drawing.write_whole(page, text(blocks(os.path.basename(picture))).encode())


def text(blocks: Sequence[str]) -> str:
    """The page of these blocks, with lines of at most 100 characters."""
    return "\n\n".join(map(_wrapped, blocks)) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def mean_cell(mean: means.Mean | None, name: str) -> str:
    """A mean with its error; '-' without any."""
    return "-" if mean is None else comparison.with_error(name, mean)


def apart_cell(apart: means.Difference | None, name: str) -> str:
    """A difference with its error and verdict; '-' without any."""
    return "-" if apart is None else f"{comparison.signed(name, apart)}, {verdict(apart)}"


def percent_cell(mean: means.Mean | None) -> str:
    """A share with its error in percent, `93.3 ± 0.1`; '-' without any."""
    if mean is None:
        return "-"
    error = "" if mean.error is None else f" ± {100 * mean.error:.1f}"
    return f"{100 * mean.value:.1f}{error}"


def points_cell(apart: means.Difference | None) -> str:
    """A difference of shares in percentage points, `+1.2 ± 0.3, **higher**`; '-' without any."""
    if apart is None:
        return "-"
    error = "" if apart.error is None else f" ± {100 * apart.error:.1f}"
    return f"{100 * apart.amount:+.1f}{error}, {verdict(apart)}"


def verdict(apart: means.Difference) -> str:
    """`higher` or `lower` from two standard errors on, in bold where it is `beyond_luck`."""
    if apart.amount == 0:
        return "equal"
    if apart.resolved is None:
        return "one seed"
    if not apart.resolved:
        return "not resolved"
    side = "higher" if apart.amount > 0 else "lower"
    return f"**{side}**" if apart.beyond_luck else side


def plain_axes(axes: Axes, title: str, grid: str = "both") -> None:
    """Gives axes a title and a grid behind the data, and takes away their frame."""
    palette = style.LIGHT
    axes.set_facecolor(palette["card"])
    axes.set_title(title, fontsize=10, loc="left", color=palette["ink"])
    axes.grid(axis=grid, color=palette["grid"], linewidth=0.8)
    axes.tick_params(colors=palette["muted"], labelsize=8.5, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_axisbelow(True)


def _wrapped(block):
    """Lines of prose cut at 100 characters; tables, headings and pictures as they are."""
    lines = []
    for line in block.splitlines():
        if line.startswith(("|", "#", "!")):
            lines.append(line)
            continue
        inside = "  " if line.startswith("- ") else ""
        lines += textwrap.wrap(
            line, 100, subsequent_indent=inside, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)
