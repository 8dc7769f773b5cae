# SPDX-License-Identifier: Apache-2.0
"""Pages as the value of a notebook's cell.

workdir   ->  its report.html, as the run wrote it last  ->  Page
workdirs  ->  their comparison                           ->  Page
"""

import dataclasses
import os

from electra_jax.host import staging
from electra_jax.report import compared_run, comparison, comparison_page, rendering


@dataclasses.dataclass(frozen=True)
class Page:
    """A page that notebooks show: they call `_repr_html_` of a cell's value."""

    # A whole page. Notebooks keep the text of a value beside its HTML, which would double its size.
    html: str = dataclasses.field(repr=False)
    height: int = 900  # pixels

    def _repr_html_(self) -> str:
        # In a frame, so that the style sheets of the page and the notebook do not meet.
        return rendering.render("notebook.html.j2", page=self.html, height=self.height)


def report_page(workdir: str | os.PathLike) -> Page:
    """The report of a run as it was written last; see `electra_jax.report_page`."""
    path = os.path.join(staging.copied(workdir, "workdir"), "report.html")
    try:
        with open(path, encoding="utf-8") as file:
            return Page(file.read())
    except FileNotFoundError:
        raise ValueError(
            f"there is no {path}; give the workdir of a run whose logging.report_every is not 0"
        ) from None


def compare_page(workdirs: tuple[str | os.PathLike, ...]) -> Page:
    """Runs side by side as they are now; see `electra_jax.compare_page`."""
    runs = [compared_run.load(staging.copied(workdir, "workdir")) for workdir in workdirs]
    return Page(comparison_page.html(comparison.compare(runs)))
