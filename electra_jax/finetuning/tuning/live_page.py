# SPDX-License-Identifier: Apache-2.0
"""results.html while the command lasts: there from the start, following tasks and seeds.

    which task is read -> its point of the grid -> its seeds, their evaluations -> their records
        ->  Progress, beside the results of earlier tasks  ->  results.html

An error in a drawing is logged and never ends the work.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from electra_jax.finetuning.results import page, progress, run_results
from electra_jax.finetuning.tuning import choices, datasets, loop, summary
from electra_jax.report import drawing_pace

SECONDS = 30.0  # at least, between two drawings while a task is trained
SHARE = 0.01  # of the time goes into these drawings at most


class LivePage:
    """The page of one command, and what is known of it so far."""

    def __init__(
        self,
        session: choices.Session,
        names: Sequence[str],
        earlier: Sequence[run_results.TaskResult],
        begun: float,
    ):
        """Draws the page for the first time, with what earlier commands have finished.

        Args:
          names: the tasks, in the order in which they are trained.
          earlier: what earlier commands have finished, of these tasks and of others.
          begun: when the command began, on the clock `time.perf_counter`.
        """
        self._session, self._begun = session, begun
        self._seeds = {name: _seeds(session, name) for name in names}
        self._tasks = {task.task: task for task in earlier}
        self._order = [task.task for task in earlier if task.task not in names] + list(names)
        self._waiting = list(names)
        self._done = 0  # seeds
        self._at_other_points: list[Mapping[str, Any]] = []  # the records of the task's seeds there
        self._now, self._share = "reading the tasks", 0.0
        self._task: run_results.TaskResult | None = None  # that is trained
        self._pace = drawing_pace.Pace(SECONDS, SHARE)
        self._draw()

    @property
    def minutes(self) -> float:
        """Since the command began."""
        return (time.perf_counter() - self._begun) / 60

    @property
    def now(self) -> str:
        """What is done, such as `rte, seed 0: step 100 of 500`."""
        return self._now

    def reads(self, name: str) -> None:
        """A task begins: its files are read."""
        self._waiting.remove(name)
        self._at_other_points = []
        self._now, self._share = f"{name}: reading its files", 0.0
        self._draw_if_due()

    def trains(
        self,
        prepared: datasets.PreparedTask,
        point: choices.GridPoint,
        finished: Sequence[Mapping[str, Any]],
        seeds: Sequence[int],
    ) -> None:
        """Some seeds of a task begin.

        Args:
          finished: the records of those seeds of this point that are finished.
          seeds: those that are trained now, in one program.
        """
        self._task = summary.unfinished(
            self._session, prepared, point, finished, seeds, self._at_other_points
        )
        self._say(prepared, point, seeds, "compiling")
        self._draw_if_due()

    def reported(
        self,
        prepared: datasets.PreparedTask,
        point: choices.GridPoint,
        seeds: Sequence[int],
        step: int,
        steps: int,
        latest: Sequence[loop.SeedEvaluation],
    ) -> None:
        """The seeds that are trained were evaluated at a step."""
        if self._task is not None:
            found = dict(zip(seeds, latest))
            self._task = summary.with_points(self._task, prepared.first_dev, found)
        self._share = len(seeds) * step / steps
        self._say(prepared, point, seeds, f"step {step:,} of {steps:,}")
        self._draw_if_due()

    def seeds_done(self, count: int) -> None:
        """So many more seeds are finished, or were finished before this command."""
        self._done, self._share = self._done + count, 0.0

    def point_done(self, records: Sequence[Mapping[str, Any]]) -> None:
        """All seeds of a point of the grid are finished."""
        self._at_other_points += records

    def task_done(self, result: run_results.TaskResult | None) -> None:
        """A task is finished; None if it has no result of its own."""
        if result is not None:
            self._tasks[result.task] = result
        self._task = None
        self._now = "writing the results"
        if self._waiting:  # after the last task `ended` draws the page
            self._draw()

    def ended(self, note: str = "") -> None:
        """All tasks are finished, or an error, of which `note` speaks, ends the command."""
        self._draw("stopped" if note else "finished", note)

    def _say(self, prepared, point, seeds, what):
        grid = self._session.config.grid
        where = f", {point.name}" if grid.learning_rates or grid.epochs else ""
        numbers = ", ".join(map(str, seeds))
        plural = "s" if len(seeds) > 1 else ""
        self._now = f"{prepared.task.name}{where}, seed{plural} {numbers}: {what}"

    def _draw_if_due(self):
        if self._pace.is_due:
            self._draw()

    def _draw(self, status="running", note=""):
        with self._pace.drawing():
            try:
                path = os.path.join(self._session.folder, "results.html")
                page.write(path, self._results(), progress=self._progress(status, note))
            except Exception as error:  # a file that cannot be written, memory, a font, ...
                logging.warning(
                    "no results.html: %s; results.json and results.md say the same",
                    " ".join(f"{type(error).__name__}: {error}".split()),
                )

    def _results(self):
        """The finished tasks, and of the one that is trained the seeds that are finished."""
        tasks = dict(self._tasks)
        if self._task is not None:
            scored = summary.only_scored(self._task)
            if scored.seeds:
                tasks[scored.task] = scored
        order = [tasks[name] for name in self._order if name in tasks]
        return summary.results(self._session, order, self.minutes)

    def _progress(self, status, note):
        going_on = status == "running"
        return progress.Progress(
            status=status,
            now=self._now if status != "finished" else "",
            left=[_left(name, self._seeds[name]) for name in self._waiting],
            done=self._done,
            whole=sum(self._seeds.values()),
            share=self._share if going_on else 0.0,
            note=note,
            task=self._task,
        )


def _left(name: str, seeds: int) -> str:
    """`mrpc: 5 seeds`; a task without seeds is answered by another task's model."""
    return f"{name}: {seeds} seed{'s' * (seeds != 1)}" if seeds else f"{name}: answered only"


def _seeds(session: choices.Session, name: str) -> int:
    """How many seeds a task trains at all points of the grid."""
    task = datasets.task_named(session.config, name)
    points = choices.points(session.config, session.encoder, task.epochs)
    return 0 if task.model_of else len(points) * session.config.seeds
