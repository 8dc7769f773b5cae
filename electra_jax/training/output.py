# SPDX-License-Identifier: Apache-2.0
"""What a run writes: metrics to every writer, alarms, and what it is doing.

    sums of the steps                         -> log line
    held-out rows (`heldout_evaluation`)      -> evaluation
    both -> metrics.jsonl, console, TensorBoard, extra writers -> alarms, `report_page`

Metrics are computed on all processes, since that needs all devices; process 0 alone writes.
"""

import contextlib
import operator
import os
from collections.abc import Collection, Sequence

import jax
from absl import logging
from jax import numpy as jnp

from electra_jax.config import stages
from electra_jax.core import counters, metrics
from electra_jax.host import processes, safe_files, signals
from electra_jax.model import accounting
from electra_jax.report import alarms, best_checkpoint, live_line, writers
from electra_jax.step import evaluation
from electra_jax.training import budget as budget_lib
from electra_jax.training import (
    heldout_evaluation,
    report_page,
    run_facts,
    runs,
    speed_clock,
)
from electra_jax.workdir import metadata, starts

_COMPILING = "compiling the step"


class Output:
    """Computes the metrics of a run on all processes, and writes them on process 0."""

    def __init__(
        self,
        run: runs.Run,
        budget: budget_lib.Budget,
        extra_writers: Sequence[writers.Writer],
        stop: signals.Stop,
    ):
        self._run, self._c, self._budget, self._stop = run, run.config, budget, stop
        self._is_first = jax.process_index() == 0
        self._save_noted = False  # whether starts.jsonl says that this start has a checkpoint
        self._writers: list[writers.Writer] = []
        self._live_line: live_line.LiveLine | None = None  # while the run trains, at a terminal
        self._path = os.path.join(run.workdir, writers.METRICS)

        if self._is_first:
            if not run.restored:
                self._check_nothing_is_gone()
            self._json_lines = writers.JsonLines(self._path)
            # An earlier start that left no checkpoint may have evaluated other weights at step 0.
            after = run.step if run.restored else -1
            self._json_lines.drop_after(after)
            console = writers.Console(self._c.schedule.steps, self._written())
            self._writers = [self._json_lines, console, *extra_writers]
            run_facts.note_start(run)
            self._tensorboard = None
            if self._c.logging.tensorboard:
                self._open_tensorboard(after)
        self._watch = self._new_watch()
        # The first step of this start or stage, and the budget's clock when that step was done.
        self._first_step = (-2, 0.0)

        self.page = report_page.ReportPage(run, self.doing)
        self._heldout = heldout_evaluation.HeldOutEvaluation(run, stop, self.doing)
        self._speed = speed_clock.SpeedClock(budget.clock, run.step, self._tokens_seen())

    def __enter__(self):
        # With several processes at one terminal, lines of the others would be written over it.
        if jax.process_count() == 1 and live_line.is_wanted():
            spent = [row["progress"] for row in self._written() if row.get("progress") is not None]
            self._live_line = live_line.LiveLine(
                self._c.schedule.steps,
                step=self._run.step,
                progress=spent[-1] if spent else None,
            )
            self._live_line.doing(_COMPILING)
            self._writers.append(self._live_line)
        return self

    def __exit__(self, *_):
        for writer in self._writers:
            writer.close()

    def stage_begins(self) -> None:
        """Logs which rows come from the next step on, if the run has several stages.

        The time until the first step is measured from here.
        """
        run, all_stages = self._run, self._run.plan.stages
        jax.block_until_ready(run.state.step)  # dispatched steps belong to the old stage's time
        self._speed.stage_begins()
        if len(all_stages) > 1:
            logging.info(
                "stage %d of %d from step %d on: %s per step",
                run.stage_number + 1, len(all_stages), run.step + 1,
                stages.describe(all_stages[run.stage_number]),
            )  # fmt: skip

    def step_done(self) -> None:
        """Advances the line at the bottom of a terminal by one step, which was dispatched."""
        self._stop.doing = f"taking step {self._run.step + 1}"
        if self._live_line is not None:
            self._live_line.step_done(self._run.step)

        # The step before it is done, and it was the second one of this start: its time is typical.
        step, begun = self._first_step
        if self._run.step == step + 2:
            seconds = self._budget.clock.seconds - begun
            if line := run_facts.describe_wait(self._c, step + 1, seconds):
                logging.info(line)

    def doing(self, what: str) -> None:
        """Shows what the run is doing, in that line and in the answer to a request to stop."""
        self._stop.doing = what
        if self._live_line is not None:
            self._live_line.doing(what)

    def compiling(self) -> None:
        """Says that the step of this stage is compiled now."""
        logging.info(_COMPILING)
        self.doing(_COMPILING)
        self._speed.compiling()

    def compiled(self) -> None:
        """Notes that the step was compiled and is running for the first time."""
        self._speed.compiled()

    def first_step_done(self) -> None:
        """Starts measuring speed, once the first step is done and compilation is over."""
        jax.block_until_ready(self._run.state.step)
        seconds, compiling = self._speed.first_step()
        logging.info(
            "first step after %.1f s, %.1f s of them (%.0f%%) compiling",
            seconds, compiling, 100 * compiling / seconds,
        )  # fmt: skip
        self._budget.clock.begin()
        self._speed.restart(self._run.step, self._tokens_seen())
        self._first_step = (self._run.step, self._budget.clock.seconds)

    def goes_back(self) -> None:
        """Drops what was written after the step to which the run went back."""
        step = self._run.step
        if self._is_first:
            self._json_lines.drop_after(step)
            if self._tensorboard is not None:
                self._writers.remove(self._tensorboard)
                self._tensorboard.close()
                self._open_tensorboard(step)

        self._watch = self._new_watch()
        self._speed.restart(step, self._tokens_seen())

    def has_saved(self, step: int) -> None:
        """Notes, once, that this start has a checkpoint on disk, that of this step."""
        if self._is_first and not self._save_noted:
            self._save_noted = True
            with contextlib.suppress(OSError):  # such as a disk that is full now
                starts.note_saved(self._run.workdir, step)

    def log(self) -> None:
        """Writes the means since the last log line and starts new sums."""
        run, step = self._run, self._run.step
        values = evaluation.with_loss(
            metrics.compute(jax.device_get(run.interval)), run.stage.objective
        )
        run.interval = jax.tree.map(jnp.zeros_like, run.interval)

        tokens = self._tokens_seen()
        values |= self._figures(self._speed.lap(step, tokens))
        values |= {
            "tokens_seen": tokens,
            "epoch": self._epochs(),
            "skipped_steps": int(run.state.skipped_steps),
        }
        values |= self._budget.metrics(step, values)

        self._write(step, "train", values)

    def _epochs(self):
        """The epochs of all stages so far; None while the text is not prepared to its end."""
        sizes = [stage.records.rows_per_epoch() for stage in self._run.stages]
        if None in sizes:
            return None
        return sum(map(operator.truediv, self._run.rows_by_stage, sizes))

    def _figures(self, lap: speed_clock.Lap) -> dict[str, float | None]:
        """Speed of the steps since the last log line.

        All values are None if there was only a first step, whose compilation is not timed. `mfu` is
        None on devices whose peak is not known.
        """
        steps, seconds, tokens = lap
        if not steps or not seconds:
            return dict.fromkeys(("tokens_per_second", "step_seconds", "mfu"))

        peak = accounting.peak(jax.devices()[0].device_kind)
        # All these steps are of one stage: this clock starts anew with a stage, and `run.stage`
        # changes only after the log line of its last step.
        stage = self._run.stage
        flops = stage.objective.flops(stage.sequence_length).train * stage.batch_size * steps
        return {
            "tokens_per_second": tokens / seconds,  # padding is not counted, see `padding_rate`
            "step_seconds": seconds / steps,
            "mfu": flops / seconds / (peak * jax.device_count()) if peak else None,
        }

    def evaluate(self, write: bool = True) -> dict[str, float | None]:
        """The held-out metrics of the present state.

        Args:
          write: whether they also go to the writers.

        Raises processes.Stopped if a signal comes before the evaluation of this stage is compiled.
        """
        values = self._heldout.metrics() | {"tokens_seen": self._tokens_seen()}
        if write:
            self._write(self._run.step, "eval", values)
        return values

    def owes_evaluation(self) -> bool:
        """Whether this step is still to be evaluated; the same on all processes.

        The checkpoint says so where a signal came before the evaluation was compiled. A start that
        was killed after it had evaluated has written the row already.
        """
        return self._run.evaluation_due and self.lacks_evaluation()

    def lacks_evaluation(self) -> bool:
        """Whether metrics.jsonl has no evaluation of this step; the same on all processes."""

        def is_missing():
            written = {(row["step"], row["kind"]) for row in self._written()}
            return (self._run.step, "eval") not in written

        return processes.of_first(is_missing)

    def best(self, saved: Collection[int]) -> best_checkpoint.Best | None:
        """The best of the steps that have a checkpoint, by `checkpoint.keep_best`; process 0."""
        metric = self._c.checkpoint.keep_best
        return best_checkpoint.of(self._written(), metric, saved) if metric else None

    def _write(self, step, kind, values):
        """Sends a row to every writer, and logs the alarms that it raises."""
        for writer in self._writers:
            writer.write(step, kind, values)
        if self._is_first:
            for alarm in self._watch.see({"step": step, "kind": kind} | values):
                logging.warning("alarm at step %d: %s", alarm.step, alarm.sentence)

    def _check_nothing_is_gone(self):
        """Logs an error if an earlier run here had saved a checkpoint, and all are gone.

        The metrics are all that is left of that run, so they are moved aside and not overwritten.
        """
        first = self._run.step
        rows = self._written()
        last = max((row["step"] for row in rows), default=0)
        if last <= first or not starts.has_saved(self._run.workdir):
            return  # that run ended before it had a checkpoint

        kept = safe_files.move_aside(self._path, "before")
        logging.error(
            "%s had got to step %d, and its checkpoints are gone: it begins again from step %d; if"
            " they can be brought back to %s, stop this run now and bring them; the metrics so far"
            " are kept as %s",
            self._run.workdir, last, first + 1, metadata.directory(self._run.workdir),
            kept,
        )  # fmt: skip

    def _open_tensorboard(self, drop_after):
        """Adds the TensorBoard writer; with a step, what was written after it is dropped."""
        where = os.path.join(self._run.workdir, "tensorboard")
        self._tensorboard = writers.TensorBoard(where, drop_after)
        self._writers.append(self._tensorboard)

    def _new_watch(self):
        """The watch that raises alarms, with all rows that metrics.jsonl has already."""
        return alarms.Watch(self._written() if self._is_first else ())

    def _written(self):
        """The rows of metrics.jsonl; none if there is no such file."""
        return writers.of_run(self._run.workdir)

    def _tokens_seen(self):
        return counters.to_int(jax.device_get(self._run.state.tokens_seen))
