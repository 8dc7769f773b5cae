# SPDX-License-Identifier: Apache-2.0
"""What a run writes: metrics to every writer, evaluations, alarms, the report.

    sums of the steps -> log line
    held-out rows -> evaluation
    both -> metrics.jsonl, console, TensorBoard, extra writers -> alarms, report.html

Metrics are computed on all processes, since that needs all devices; process 0 alone writes.
"""

import contextlib
import operator
import os
import time
from collections.abc import Mapping, Sequence

import jax
from absl import logging
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import counters, metrics
from electra_jax.data import pipeline, records
from electra_jax.host import safe_files
from electra_jax.model import accounting
from electra_jax.report import alarms, samples, view, writers
from electra_jax.report import run_page as report
from electra_jax.step import evaluation
from electra_jax.training import budget as budget_lib
from electra_jax.training import run_data, runs, spikes

SAMPLES = 8  # rows shown in the report


class Output:
    """Computes the metrics of a run on all processes, and writes them on process 0."""

    def __init__(
        self,
        run: runs.Run,
        budget: budget_lib.Budget,
        extra_writers: Sequence[writers.Writer],
    ):
        self._run, self._c, self._budget = run, run.config, budget
        self._speaks = jax.process_index() == 0
        self._writers: list[writers.Writer] = []
        self._path = os.path.join(run.workdir, "metrics.jsonl")

        if self._speaks:
            if not run.restored:
                self._check_nothing_is_gone()
            self._lines = writers.JsonLines(self._path)
            self._lines.drop_after(run.step)
            self._writers = [self._lines, writers.Console(self._c.schedule.steps), *extra_writers]
            self._tensorboard = None
            if self._c.logging.tensorboard:
                self._open_tensorboard(run.step if run.restored else None)
        self._watch = self._told()

        self._heldout = {}  # stage -> held-out rows, of the stage that was evaluated last
        self._epoch_rows = [
            pipeline.Order(stage.records, self._c.seed).rows_per_epoch for stage in run.stages
        ]
        self._begun, self._clock = time.monotonic(), budget.clock.seconds
        self._clock_step, self._tokens = run.step, self._tokens_seen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for writer in self._writers:
            writer.close()

    def stage_begins(self) -> None:
        """Logs which rows come from the next step on, if the run has several stages."""
        run, all_stages = self._run, stages.of(self._c)
        if len(all_stages) > 1:
            jax.block_until_ready(run.state.step)  # dispatched steps belong to the old stage's time
            self._begun = time.monotonic()
            logging.info(
                "stage %d of %d from step %d on: %s a step",
                run.stage_number + 1, len(all_stages), run.step + 1,
                stages.in_words(all_stages[run.stage_number]),
            )  # fmt: skip

    def first_step_done(self) -> None:
        """Starts measuring speed, once the first step is done and compilation is over."""
        jax.block_until_ready(self._run.state.step)
        logging.info("first step after %.1f s", time.monotonic() - self._begun)
        self._budget.clock.begin()
        self._restart_clock()

    def goes_back(self) -> None:
        """Drops what was written after the step to which the run went back."""
        step = self._run.step
        if self._speaks:
            self._lines.drop_after(step)
            if self._tensorboard is not None:
                self._writers.remove(self._tensorboard)
                self._tensorboard.close()
                self._open_tensorboard(step)

        self._watch = self._told()
        self._restart_clock()

    def off_the_clock(self) -> contextlib.AbstractContextManager[None]:
        """A context whose duration counts neither for the speed nor for a budget of minutes."""
        return self._budget.clock.paused()

    def log(self) -> None:
        """Writes the means since the last log line and starts new sums."""
        run, step = self._run, self._run.step
        values = evaluation.with_loss(metrics.compute(jax.device_get(run.interval)), run.objective)
        run.interval = jax.tree.map(jnp.zeros_like, run.interval)

        now, tokens = self._budget.clock.seconds, self._tokens_seen()
        values |= self._speed(step - self._clock_step, now - self._clock, tokens - self._tokens)
        values |= {
            "tokens_seen": tokens,
            "epoch": sum(map(operator.truediv, run.rows_by_stage, self._epoch_rows)),
            "skipped_steps": int(run.state.skipped_steps),
        }
        values |= self._budget.metrics(step, values)

        self._write(step, "train", values)
        self._clock, self._clock_step, self._tokens = now, step, tokens

    def _speed(self, steps: int, seconds: float, tokens: int) -> dict[str, float | None]:
        """Speed of the steps since the last log line.

        All values are None if there was only a first step, whose compilation is not timed. `mfu` is
        None on devices whose peak is not known.
        """
        if not steps or not seconds:
            return dict.fromkeys(("tokens_per_second", "step_seconds", "mfu"))

        peak = accounting.peak(jax.devices()[0].device_kind)
        # All these steps are of one stage: this clock starts anew with a stage, and `run.stage`
        # changes only after the log line of its last step.
        rows = self._run.stage.config.data
        flops = self._run.objective.flops(rows.sequence_length).train * rows.batch_size * steps
        return {
            "tokens_per_second": tokens / seconds,  # padding is not counted, see `padding_rate`
            "step_seconds": seconds / steps,
            "mfu": flops / seconds / (peak * jax.device_count()) if peak else None,
        }

    def evaluate(self, write: bool = True) -> dict[str, float | None]:
        """The held-out metrics of the present state; `write` also sends them to the writers."""
        run, c = self._run, self._c
        if run.stage_number not in self._heldout:
            self._heldout = {run.stage_number: run_data.heldout(run.records, c.evaluation.rows)}

        values = evaluation.run(
            run.evaluate,
            run.objective,
            run.state.evaluated,
            self._heldout[run.stage_number],
            c.evaluation.batch_size or run.stage.config.data.batch_size,
            run.vocabulary.pad_id,
            run.mesh,
        )
        values["tokens_seen"] = self._tokens_seen()
        if run.state.ema is not None:
            values["ema_decay"] = c.optimizer.ema_decay  # shows that averages were evaluated

        if write:
            self._write(run.step, "eval", values)
        return values

    def report(self, status: str) -> None:
        """Draws report.html and report.png again. An error there is logged and never ends a run."""
        wanted = self._speaks and self._c.logging.report_every
        if not wanted or not os.path.exists(self._path):
            return

        try:
            rows = writers.read(self._path)
            report.write(self._run.workdir, rows, summary(self._run, status, rows))
        except Exception as error:  # a file that cannot be written, memory, a font, ...
            # Of a file that could not be renamed into place, the second name is that place.
            place = getattr(error, "filename2", None) or getattr(error, "filename", None)
            logging.warning(
                "no report: %s; nothing else is lost by that; %sthe next start draws it again",
                " ".join(f"{type(error).__name__}: {error}".split()),
                f"move {place} away or make it writable, and " if place else "",
            )

    def _write(self, step, kind, values):
        """Sends a row to every writer, and logs the alarms that it raises."""
        for writer in self._writers:
            writer.write(step, kind, values)
        if self._speaks:
            for alarm in self._watch.see({"step": step, "kind": kind} | values):
                logging.warning("alarm at step %d: %s", alarm.step, alarm.sentence)

    def _check_nothing_is_gone(self):
        """Logs an error if an earlier run here got beyond its first checkpoint, and all are gone.

        The metrics are all that is left of that run, so they are moved aside and not overwritten.
        """
        first = self._run.step
        rows = writers.read(self._path) if os.path.exists(self._path) else []
        last = max((row["step"] for row in rows), default=0)
        if last < max(self._c.checkpoint.every, first + 1):
            return  # that run ended before its first checkpoint

        kept = safe_files.move_aside(self._path, "before")
        logging.error(
            "%s had got to step %d, and its checkpoints are gone: it begins again from step %d; if"
            " they can be brought back to %s, stop this run now and bring them; the metrics so far"
            " are kept as %s",
            self._run.workdir, last, first + 1, os.path.join(self._run.workdir, "checkpoints"),
            kept,
        )  # fmt: skip

    def _open_tensorboard(self, drop_after):
        """Adds the TensorBoard writer; with a step, what was written after it is dropped."""
        where = os.path.join(self._run.workdir, "tensorboard")
        self._tensorboard = writers.TensorBoard(where, drop_after)
        self._writers.append(self._tensorboard)

    def _told(self):
        """The watch that raises alarms, with all rows that metrics.jsonl has already."""
        begun = self._speaks and os.path.exists(self._path)
        return alarms.Watch(writers.read(self._path) if begun else ())

    def _restart_clock(self):
        """Measures speed from now on."""
        self._clock, self._clock_step = self._budget.clock.seconds, self._run.step
        self._tokens = self._tokens_seen()

    def _tokens_seen(self):
        return counters.to_int(jax.device_get(self._run.state.tokens_seen))


def summary(run: runs.Run, status: str, rows: Sequence[Mapping]) -> report.Summary:
    """What the report shows in addition to the curves."""
    c, manifest = run.config, run.records.manifest

    fragments = []
    if jax.process_count() == 1:  # process 0 cannot run the networks without the others
        name, ids, marks = run_data.heldout(run.records, SAMPLES)[0]
        shown = samples.examples(
            run.objective.placed(),
            run.state.evaluated,
            run.vocabulary,
            ids,
            marks,
            jax.random.key(evaluation.KEY),
        )
        fragments = [view.to_html(example) for example in shown]

    return report.Summary(
        name=c.name,
        status=status,
        steps=c.schedule.steps if c.schedule.budget == "steps" else 0,
        budget=budget_lib.in_words(c.schedule),
        device=f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        elapsed_seconds=sum(
            row["step_seconds"] * gap for row, gap in _gaps(rows) if row.get("step_seconds")
        ),
        parameters=accounting.parameters(run.state.params),
        config=config_lib.flatten(c),
        corpus=_corpus(manifest),
        samples=fragments,
        rollbacks=[spikes.in_words(rollback) for rollback in run.rollbacks],
    )


def _corpus(manifest: records.Manifest) -> dict:
    """The facts of the manifest that the report shows."""
    return {
        "sources": ", ".join(source.spec for source in manifest.sources),
        "vocabulary": f"{manifest.vocabulary['kind']}, {manifest.vocabulary['size']:,} pieces",
        **manifest.totals,
        "padding": f"{manifest.wasted_fraction:.2%} of all places",
        "unknown tokens": f"{manifest.unk_rate:.4%}",
        "unigram entropy": f"{manifest.unigram_entropy:.3f} nats, of all held-out text",
        "hash": manifest.hash[:16],
    }


def _gaps(rows):
    """Yields each training row with the number of steps that it covers."""
    before = 0
    for row in rows:
        if row["kind"] == "train":
            yield row, row["step"] - before
            before = row["step"]
