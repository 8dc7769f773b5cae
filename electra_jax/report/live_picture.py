# SPDX-License-Identifier: Apache-2.0
"""The curves of a run in the cell of a notebook that trains it, drawn again while it trains.

    step, kind, {name: value}  ->  all rows so far  ->  one picture, in place of the one before

It is the picture of `report.png`. A run that continues begins with the curves of its earlier
starts.
"""

import os
import time
from collections.abc import Callable, Mapping

from absl import logging

from electra_jax.host import staging
from electra_jax.report import baselines, drawing_pace, run_drawing, run_panels, writers

SECONDS = 2.0  # at least, between two pictures
SHARE = 0.05  # of the time goes into drawing at most


class LivePicture:
    """A writer of metrics that shows a picture of all curves; see `electra_jax.live_picture`."""

    def __init__(
        self,
        workdir: str | os.PathLike,
        show: Callable[[bytes], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        """Reads the rows that the run in `workdir` has written, and shows nothing yet.

        Args:
          workdir: that of the run; it may be missing, or in a bucket.
          show: takes a PNG and shows it in place of the one before; by default below the cell.
          now: a clock in seconds.

        Raises:
          ValueError: `show` is left out and there is no IPython, or the workdir is an address that
            cannot be read; one line.
        """
        self._show = show or _below_the_cell()
        self._pace = drawing_pace.Pace(SECONDS, SHARE, now)
        self._name = os.path.basename(os.path.abspath(workdir))
        self._rows = writers.of_run(staging.copied(workdir, "workdir"))
        self._is_old = bool(self._rows)

    def write(self, step: int, kind: str, metrics: Mapping[str, writers.Number]) -> None:
        """Takes a row, and draws unless it has just drawn."""
        # A run that continues from a checkpoint writes the steps behind it again.
        if self._rows and self._rows[-1]["step"] >= step:
            self._rows = [
                row
                for row in self._rows
                if row["step"] < step or (row["step"] == step and row["kind"] != kind)
            ]
        self._rows.append({"step": step, "kind": kind} | dict(metrics))
        self._is_old = True
        if self._pace.is_due:
            self._draw()

    def close(self) -> None:
        """Draws what is not drawn yet."""
        if self._is_old:
            self._draw()

    def _draw(self):
        """Draws and shows all rows. An error there is logged and never ends a run."""
        with self._pace.drawing():
            try:
                self._show(self._picture())
            except Exception as error:  # memory, a font, a notebook that was closed
                words = " ".join(f"{type(error).__name__}: {error}".split())
                logging.warning("no live picture: %s; the run continues", words)
        self._is_old = False

    def _picture(self):
        curves = run_panels.Curves.of(self._rows)
        verdict = baselines.verdict(curves.last.get("eval", {}))
        return run_drawing.picture(curves, run_panels.panels(curves), self._name, verdict)


def _below_the_cell() -> Callable[[bytes], None]:
    """A function that shows a PNG below the cell that runs, each in place of the one before."""
    try:
        from IPython import display  # noqa: PLC0415 - wherever a notebook runs, and else not needed
    except ImportError:
        raise ValueError(
            "a live picture is shown by IPython, which is not installed; call this in a notebook"
        ) from None

    shown: list[display.DisplayHandle] = []

    def show(picture):
        image = display.Image(data=picture, format="png")
        if shown:
            shown[0].update(image)
        else:
            shown.append(display.display(image, display_id=True))

    return show
