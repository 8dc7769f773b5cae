# SPDX-License-Identifier: Apache-2.0
"""The training loop: one step after another, and at intervals a log line, an evaluation, a
checkpoint, a report.

    config, workdir -> checks -> runs.start -> _Loop: feed -> update -> budget, spikes -> output

`train` is the public function. This subpackage decides when something is written, and `weights/`
and `report/` write it; the mathematics is in `step/`.
"""

import contextlib
import os
from collections.abc import Iterable

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import metrics
from electra_jax.data import streaming
from electra_jax.host import (
    cluster,
    compile_cache,
    logs,
    peers,
    process_exit,
    processes,
    profiler,
    signals,
    staging,
)
from electra_jax.report import closing, services, writers
from electra_jax.training import before_the_run, output, run_facts, runs, saved_state, spikes
from electra_jax.training import budget as budget_lib
from electra_jax.training import feed as feed_lib
from electra_jax.training.errors import TrainingError
from electra_jax.weights import checkpoint_series
from electra_jax.workdir import metadata

_LOOK_SECONDS = 0.2  # between two checks for a signal while the loop waits for rows


def train(
    config, workdir: str | os.PathLike, extra_writers: Iterable[writers.Writer] = ()
) -> dict[str, float | None]:
    """Pre-trains and returns the last held-out metrics; see `electra_jax.train`."""
    if not isinstance(config, config_lib.Config):
        config = config_lib.parse(config)
    logs.show()
    cluster.check_chips_are_free()
    cluster.check_processes_are_joined()
    before_the_run.check_names(config.data)
    before_the_run.check_address(workdir)
    extra_writers = before_the_run.checked_writers(extra_writers)

    with contextlib.ExitStack() as stack:
        workdir = stack.enter_context(staging.open_workdir(workdir, processes.is_first()))
        before_the_run.check_places(workdir)
        before_the_run.check_starting_weights(config, workdir)
        stack.enter_context(before_the_run.explained_full_disk(workdir))
        # Nothing is written before the lock is held, since another run may use this workdir.
        stack.enter_context(before_the_run.alone_in(workdir))
        if processes.is_first():
            stack.enter_context(logs.file(os.path.join(workdir, "log.txt")))

        compile_cache.keep()
        before_the_run.check_same_everywhere(config)
        config = before_the_run.compare_and_write_settings(config, workdir)

        # Before text is prepared for hours and a step is compiled, since a service may refuse.
        continues = bool(metadata.steps(metadata.directory(workdir)))
        about = services.About.of(config, workdir)
        senders = stack.enter_context(
            services.open_senders(config.logging.writers, about, continues)
        )

        run = runs.start(config, workdir)
        for stage in run.stages:
            stack.callback(stage.records.close)
        stop = stack.enter_context(signals.stop_on_signals())
        return _train(run, stop, (*extra_writers, *senders))


def _train(run: runs.Run, stop: signals.Stop, extra_writers) -> dict[str, float | None]:
    """Opens everything that the loop works with, runs the loop, and closes everything again."""
    c = run.config
    budget = budget_lib.Budget(c.schedule, c.data.batch_size * c.data.sequence_length, run.state)
    out = output.Output(run, budget, extra_writers, stop)
    profile = profiler.Profile(c.logging.profile, run.workdir)

    # The feed's thread begins to place rows at once, so it is made last.
    series = saved_state.checkpoints_of(c.checkpoint, run.workdir)
    feed = feed_lib.Feed(mesh=run.mesh, **_next_rows(run))
    with feed, series as checkpoints, out, profile, peers.telling():
        loop = _Loop(run, stop, feed, budget, checkpoints, out, profile)
        with _error_on_the_page(out):
            final = loop.to_the_end()

    if not budget.over or run.evaluation_due:
        logging.info("stopped and saved at step %d; the same command continues", run.step)
    elif jax.process_index() == 0:
        reported = c.logging.report_every > 0
        with contextlib.suppress(OSError):  # the terminal was closed, and nobody reads it
            best = out.best(metadata.steps(metadata.directory(run.workdir)))
            text = closing.text(final, run.workdir, reported, best)
            print("\n" + staging.named(text), flush=True)
    return final


@contextlib.contextmanager
def _error_on_the_page(out: output.Output):
    """If an error ends the run, the page says so and no longer reloads itself."""
    try:
        yield
    except Exception as error:
        out.page.refresh("stopped", note=" ".join(f"{error}".split()) or type(error).__name__)
        raise


class _Loop:
    """The steps of one run. What a later start continues from is in `run`."""

    def __init__(
        self,
        run: runs.Run,
        stop: signals.Stop,
        feed: feed_lib.Feed,
        budget: budget_lib.Budget,
        checkpoints: checkpoint_series.Checkpoints,
        out: output.Output,
        profile: profiler.Profile,
    ):
        self._run, self._c, self._stop = run, run.config, stop
        self._feed, self._budget = feed, budget
        self._checkpoints, self._out, self._profile = checkpoints, out, profile
        self._checks = spikes.StepChecks(run.config.schedule)
        self._add = jax.jit(metrics.add)
        self._fed = run.stage_number  # the stage whose rows the feed loads; None after going back
        self._compiled: set[int] = set()  # the stages whose step was compiled
        self._stopping = False  # whether a signal asked to stop: the run saves and ends
        self._saved_step = run.step if run.restored else -1  # of the newest checkpoint
        self._final: dict[str, float | None] = {}
        if run.restored:
            checkpoints.time.complete = run.step
        else:
            stop.goes_on = process_exit.BEGINS_AGAIN

    def to_the_end(self) -> dict[str, float | None]:
        """Trains until the budget is spent or a signal arrives; returns the last evaluation."""
        self._begin()
        # So that there is a state to go back to; a signal may have had it saved already.
        if self._c.schedule.on_spike == "roll_back" and self._run.step > self._saved_step:
            self._save()

        while not (self._budget.over or self._stopping):
            lanes = self._next_lanes()
            if lanes is None or not self._is_compiled_for(lanes):
                break
            measured, compiled_now = self._step(lanes)

            # The checks of the previous step are read only now, while this step runs, so that the
            # device never waits. If they make the run go back, the step that was just dispatched
            # began from parameters that are discarded, and it is discarded too.
            spike = self._checks.read()
            if spike is None:
                self._account_for_step(measured, compiled_now)
                self._stopping = not self._budget.over and self._stop.requested(self._run.step)
                # A log line or a checkpoint must not contain an unread spike.
                if self._anything_due():
                    spike = self._checks.read()

            if spike is None:
                self._do_what_is_due()
            else:
                self._go_back(spike)

        return self._finish()

    def _begin(self):
        """Announces the first stage, or evaluates a run that has nothing left to do.

        What a signal has left to be evaluated is evaluated now, and so are the weights that a run
        begins with.
        """
        run = self._run
        due = run.evaluation_due = self._out.owes_evaluation()
        if self._budget.over:
            spent = budget_lib.describe(self._c.schedule)
            logging.info("nothing to do: at step %d the budget, %s, is spent", run.step, spent)
            self._evaluate(write=due)
        else:
            logging.info(run_facts.describe_start(run))
            for line in run_facts.attention_notes(run):
                logging.info(line)
            self._out.page.refresh()
            if due:
                self._evaluate()
                if self._stopping and run.step > self._saved_step:
                    self._save()
            self._out.stage_begins()

    def _next_lanes(self):
        """The next batch; None if a signal came while its rows were not prepared yet.

        Raises TrainingError, with the state saved, if the rows cannot be prepared.
        """
        run = self._run
        if self._fed != run.stage_number:
            self._fed = run.stage_number
            self._feed.turn_to(**_next_rows(run))
            run.unmap_other_rows()
            self._out.stage_begins()
        if self._c.data.streaming == "off":
            return next(self._feed)

        try:
            if not self._feed.is_ready(0):
                with self._budget.clock.paused():
                    self._wait_for_rows()
            return None if self._stopping else next(self._feed)
        except streaming.PreparationError as error:
            self._save_before_the_end()
            self._finish()
            raise TrainingError(
                f"the rows of step {run.step + 1} cannot be prepared: {error}; the run is saved at"
                f" step {run.step}, and the same command continues"
            ) from error

    def _wait_for_rows(self):
        """Waits until rows are prepared, or until a signal asks to stop; then it saves."""
        self._out.doing("waiting for rows")
        while not self._feed.is_ready(_LOOK_SECONDS):
            if self._stop.requested(self._run.step):
                self._save_before_the_end()
                return

    def _save_before_the_end(self):
        """Saves the last step, whose checks have not been read yet, unless it was a spike."""
        self._stop.no_more_steps()
        self._stopping = True
        spike = self._checks.read()
        if spike is not None:
            self._go_back(spike)
        elif self._run.step > self._saved_step:
            self._save()

    def _is_compiled_for(self, lanes):
        """Compiles the step if its stage is new; False, with the state saved, if a signal came."""
        run = self._run
        if run.stage_number in self._compiled:
            return True

        with self._budget.clock.paused():
            self._out.compiling()
            try:
                processes.compile_together(
                    run.stage.update, run.state, lanes, stops=self._stop.is_asked
                )
            except processes.Stopped:
                logging.info("stopping while the step compiles: saving step %d", run.step)
                self._stop.ends_early()
                self._save_before_the_end()
                return False
        return True

    def _step(self, lanes):
        """Dispatches one step; returns what it measures and whether it is the first of a stage."""
        run = self._run
        compiles = run.stage_number not in self._compiled
        run.step += 1
        self._profile.before(run.step, run.state)
        with self._budget.clock.paused() if compiles else contextlib.nullcontext():
            run.state, measured = run.stage.update(run.state, lanes)
            if compiles:
                self._out.compiled()  # a call returns while its step still runs
                jax.block_until_ready(run.state.step)
        self._profile.after(run.step, run.state)

        run.interval = self._add(run.interval, measured.metric_sums)
        return measured, compiles

    def _account_for_step(self, measured, compiled_now):
        """Counts a dispatched step: its rows, and what it spends."""
        run = self._run
        size = run.stage.batch_size
        self._checks.keep(run.step, run.rows_seen, size, measured)
        run.rows_seen += size
        run.rows_by_stage[run.stage_number] += size
        run.state = self._budget.after(run.step, run.state, measured)
        self._out.step_done()
        if compiled_now:
            self._compiled.add(run.stage_number)
            self._out.first_step_done()

    def _do_what_is_due(self):
        """Writes a log line, an evaluation, a checkpoint and a report, each if it is due.

        The order matters: a checkpoint is saved after the metrics of its step were written, so that
        a run that is restored from it writes nothing twice.
        """
        run, out = self._run, self._out
        if self._log_due():
            out.log()

        # The log line above was about the old stage. Evaluation and checkpoint belong to the stage
        # of the next step, in which a run that is restored here would begin.
        run.stage_number = self._budget.stage
        if self._evaluation_due():
            with self._budget.clock.paused():
                self._evaluate()
        if self._save_due():
            with self._budget.clock.paused():
                self._save()
        if self._report_due():
            with self._budget.clock.paused():
                out.page.report("running")
        elif self._log_due() and not (self._budget.over or self._stopping) and out.page.may_refresh:
            with self._budget.clock.paused():
                out.page.refresh()

    def _evaluate(self, write=True):
        """Evaluates. If a signal comes before the program is compiled, the next start evaluates."""
        try:
            self._final = self._out.evaluate(write)
            self._run.evaluation_due = False
        except processes.Stopped:
            logging.info("not evaluating at step %d: the next start does it", self._run.step)
            self._run.evaluation_due = True
            self._stop.ends_early()
            self._stopping = True

    def _go_back(self, spike):
        """Restores the state of the newest checkpoint and continues with the rows after the spike.

        A budget of minutes may be over then, since lost minutes stay spent. The checkpoint does not
        know of them, so they are noted beside it.
        """
        run = self._run
        with self._budget.clock.paused():
            spikes.go_back(run, self._checkpoints, spike)
        self._stop.goes_back(run.step)
        # A newer one may have been damaged: it is set aside then, and its step is not saved.
        self._saved_step = self._checkpoints.time.complete = run.step
        self._checks.forget()
        self._budget.turn_to(run.state)
        self._out.goes_back()
        run.stage_number = self._budget.stage
        self._fed = None  # the feed has loaded other rows ahead

        if self._budget.over:
            saved_state.note_spent(run.workdir, run.step, run.state)
            self._evaluate(write=self._out.lacks_evaluation())

    def _finish(self):
        """Waits for the last checkpoint, draws the last report and returns the last evaluation.

        Raises NotSaved if the last save failed; the page then says that the run stopped.
        """
        self._stop.no_more_steps()
        self._out.doing(f"saving step {self._saved_step}")
        self._checkpoints.close()
        self._stop.saved = True
        whole = self._budget.over and not self._run.evaluation_due
        self._out.page.report("finished" if whole else "stopped")
        return self._final

    def _save(self):
        run = self._run
        self._out.doing(f"saving step {run.step}")
        # In a bucket the metrics of all steps up to this one are there before the checkpoint is.
        if not processes.of_first(lambda: staging.push(run.workdir)):
            if self._budget.over or self._stopping:
                raise TrainingError(f"step {run.step} is not saved; {process_exit.CONTINUES}")
            logging.error("no checkpoint of step %d; the next one is tried at its step", run.step)
            return
        tree = saved_state.tree_of(run.state, run.interval)
        with self._stop.during_a_save():
            self._checkpoints.save(run.step, tree, runs.metadata_of(run), self._best_step)
        self._saved_step = run.step
        if self._checkpoints.time.complete is not None:
            self._stop.goes_on = process_exit.CONTINUES
            self._out.has_saved(self._checkpoints.time.complete)

    def _best_step(self):
        """The step whose checkpoint stays, among those on the disk and the one to be saved now."""
        if not self._c.checkpoint.keep_best:
            return None

        def find():
            saved = metadata.steps(metadata.directory(self._run.workdir))
            best = self._out.best({*saved, self._run.step})
            return None if best is None else best.step

        return processes.of_first(find)

    def _log_due(self):
        # Also with the last step of a stage: means and costs of a line are those of one stage.
        ends = self._budget.stage != self._run.stage_number
        return self._every(self._c.logging.every) or ends or self._budget.over

    def _evaluation_due(self):
        return self._every(self._c.evaluation.every) or self._budget.over

    def _save_due(self):
        return self._every(self._c.checkpoint.every) or self._budget.over or self._stopping

    def _report_due(self):
        return self._every(self._c.logging.report_every) and not (
            self._budget.over or self._stopping
        )

    def _anything_due(self):
        return self._log_due() or self._evaluation_due() or self._save_due()

    def _every(self, steps):
        """Whether this step is a multiple of `steps`; 0 means never."""
        return bool(steps) and self._run.step % steps == 0


def _next_rows(run: runs.Run) -> dict:
    """The arguments with which the feed loads the rows that come next."""
    return {
        "order": run.order,
        "rows_seen": run.rows_seen,
        "batch_size": run.stage.batch_size,
        "length": run.stage.sequence_length,
    }
