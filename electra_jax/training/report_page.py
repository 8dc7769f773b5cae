# SPDX-License-Identifier: Apache-2.0
"""The report of a run, report.html and report.png, drawn again as the run continues.

    metrics.jsonl, facts of the run, held-out rows as the networks see them -> the two files

Process 0 alone draws. An error there is logged and never ends a run.
"""

from collections.abc import Callable

import jax
from absl import logging

from electra_jax.report import drawing_pace, ranking, run_page, view_html, writers
from electra_jax.training import run_facts, runs, shown_rows

BEST, WORST = 5, 3  # how many of the rows that were judged the report shows
LIVE_SECONDS = 30.0  # the least time between two drawings of the page while the run trains
LIVE_SHARE = 0.01  # the largest share of the time that these drawings may take


class ReportPage:
    """Draws the report of a run, on process 0 and only if a report is wanted."""

    def __init__(self, run: runs.Run, doing: Callable[[str], None]):
        self._run, self._doing = run, doing
        self._wanted = jax.process_index() == 0 and run.config.logging.report_every > 0
        self._pace = drawing_pace.Pace(LIVE_SECONDS, LIVE_SHARE)
        self._samples: run_page.Summary = {}  # those of the last whole report

    @property
    def may_refresh(self) -> bool:
        """Whether the page can be drawn again without taking a noticeable share of the time."""
        return self._wanted and self._pace.is_due

    def report(self, status: str) -> None:
        """Draws both files, with samples of what the networks do now.

        `status` is 'running', 'stopped' or 'finished'.
        """
        self._draw(status, whole=True)

    def refresh(self, status: str = "running", note: str = "") -> None:
        """Draws report.html alone, with the samples of the last whole report.

        Args:
          status: as `report`.
          note: plain words, such as why the run stopped.
        """
        self._draw(status, whole=False, note=note)

    def _draw(self, status, whole, note=""):
        if not self._wanted:
            return

        self._doing("drawing the report")
        with self._pace.drawing():
            try:
                rows = writers.of_run(self._run.workdir)
                if whole:
                    self._samples = _samples(self._run)
                said = run_facts.summary(self._run, status, rows) | self._samples
                run_page.write(self._run.workdir, rows, said | {"note": note}, picture=whole)
            except Exception as error:  # a file that cannot be written, memory, a font, ...
                # A failed rename has its destination in `filename2`.
                place = getattr(error, "filename2", None) or getattr(error, "filename", None)
                logging.warning(
                    "the report was not written: %s; training is not affected; %sthe next start"
                    " draws it again",
                    " ".join(f"{type(error).__name__}: {error}".split()),
                    f"move {place} away or make it writable, and " if place else "",
                )


def _samples(run: runs.Run) -> run_page.Summary:
    """Held-out rows with the outputs of the networks: the best and the worst that were judged."""
    if jax.process_count() > 1:
        return {}  # process 0 cannot run the networks without the others

    judged = shown_rows.judged(
        run.stage.intermediates,
        run.state.evaluated,
        run.vocabulary,
        run.stage.records,
        shown_rows.JUDGED,
    )
    sentence = ranking.sentence(judged)
    best, worst = ranking.extremes(judged, BEST, WORST)
    about = f"At step {run.step:,}: {sentence}. {ranking.IN_WORDS}" if sentence else ""
    return run_page.Summary(
        samples=[view_html.to_html(example) for example in best],
        worst_samples=[view_html.to_html(example) for example in worst],
        about_samples=about,
        samples_key=view_html.html_key([*best, *worst]),
    )
