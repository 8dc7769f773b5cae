# SPDX-License-Identifier: Apache-2.0
"""The run: build the parts, restore, loop, evaluate, save, report. Side effects, no maths.

Reading order from here: `step/build.py` (what is chosen), `step/train_step.py` (one step),
`objectives/replaced_token_detection.py` (the method), `objectives/corrupt.py`, `model/`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Sequence

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import metrics
from electra_jax.data import pipeline
from electra_jax.host import (
    compile_cache,
    lock,
    logs,
    peers,
    processes,
    profiler,
    safe_files,
    signals,
)
from electra_jax.report import writers
from electra_jax.step import train_step
from electra_jax.training import budget as budget_lib
from electra_jax.training import feed as feed_lib
from electra_jax.training import output, runs, spikes
from electra_jax.weights import checkpoint_series
from electra_jax.workdir import saved_config

TrainingError = spikes.TrainingError


def train(
    config, workdir: str | os.PathLike, extra_writers: Sequence[writers.Writer] = ()
) -> dict[str, float | None]:
    """Pre-trains until the budget is spent and returns the final held-out metrics.

    What `python -m electra_jax.main` does, for a notebook.

    Args:
      config: an ml_collections tree such as `configs/tiny.py` returns, or a parsed Config.
      workdir: where checkpoints, metrics and the report go; a second call goes on from there.
      extra_writers: anything with `write(step, kind, metrics)` and `close()`; it gets every row
        that goes to metrics.jsonl, and steps again that the run goes back behind.

    Raises:
      ConfigError, CheckpointError, TrainingError: one line each, with the remedy.
    """
    if not isinstance(config, config_lib.Config):
        config = config_lib.parse(config)
    workdir = os.fspath(workdir)
    logs.show()
    _check_places(workdir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_full_disk_in_words(workdir))
        if jax.process_index() == 0:
            stack.enter_context(
                lock.hold(
                    os.path.join(workdir, "run.lock"), f"workdir {workdir}", config_lib.ConfigError
                )
            )
            stack.enter_context(logs.file(os.path.join(workdir, "log.txt")))
        compile_cache.keep()
        _same_everywhere(config)
        _continue_or_begin(config, workdir)
        run = runs.start(config, workdir)
        stop = stack.enter_context(signals.stop_on_signals())
        return _loop(run, stop, extra_writers)


@contextlib.contextmanager
def _full_disk_in_words(workdir):
    """Turns an error of a full disk into one line with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TrainingError(
            f"no space left for {error.filename or workdir}; free some and run the same command"
            " again: it goes on from the newest checkpoint"
        ) from error


def _loop(run: runs.Run, stop: signals.Stop, extra_writers) -> dict[str, float | None]:
    """Steps, and now and then a log line, an evaluation, a checkpoint, a report - in this order,
    so that what a checkpoint follows has been written, and a resumed run writes nothing twice."""
    c = run.config
    step, fed = int(run.state.step), run.number
    rows_seen = train_step.words_to_int(jax.device_get(run.state.rows_seen))
    feed = feed_lib.Feed(mesh=run.mesh, **_rows(run, rows_seen))
    budget = budget_lib.Budget(c.schedule, c.data.batch_size * c.data.sequence_length, run.state)
    out = output.Output(run, step, budget, extra_writers)
    add = jax.jit(metrics.add)
    watch, compiled = spikes.Watch(c.schedule), set()
    final, stopping = {}, False
    profile = profiler.Profile(c.logging.profile, run.workdir)
    with feed, runs.checkpoints_of(c, run.workdir) as saved, out, profile, peers.telling():
        if budget.over:
            spent = budget_lib.in_words(c.schedule)
            logging.info("nothing to do: step %d, and %s are done", step, spent)
            final = out.evaluate(step, write=False)
        else:
            out.stage_begins(step + 1)
        if c.schedule.on_spike == "roll_back" and not run.restored:
            _save(run, saved, step)  # so that there is something to go back to
        while not (budget.over or stopping):
            step += 1
            if fed != run.number:
                fed = run.number
                feed.turn_to(**_rows(run, rows_seen))
                out.stage_begins(step)
            lanes = next(feed)
            compiles = run.number not in compiled
            profile.before(step, run.state)
            with out.off_the_clock() if compiles else contextlib.nullcontext():
                run.state, measured = run.update(run.state, lanes)
                if compiles:
                    jax.block_until_ready(run.state.step)
            profile.after(step, run.state)
            run.interval = add(run.interval, measured.sums)
            spike = watch.read()  # the step before this one is read while this one runs
            if spike is None:
                size = run.stage.config.data.batch_size
                watch.sent(step, rows_seen, size, measured)
                rows_seen += size
                run.rows_by_stage[run.number] += size
                run.state = budget.after(step, run.state, measured)
                stopping = not budget.over and stop.requested(step)
                if compiles:
                    compiled.add(run.number)
                    out.first_step_done(step)
                logs = step % c.logging.every == 0 or budget.over
                evaluates = step % c.evaluation.every == 0 or budget.over
                saves = step % c.checkpoint.every == 0 or budget.over or stopping
                if logs or evaluates or saves:
                    spike = watch.read()
            if spike is not None:
                with out.off_the_clock():
                    step = spikes.go_back(run, saved, spike)
                watch.forget()
                budget.turn_to(run.state)
                out.goes_back(step)
                run.number, fed = budget.stage, None  # the feed is ahead of the rows that are next
                if budget.over:  # the minutes are spent, whatever came of them
                    runs.note_spent(run.workdir, step, run.state)
                    final = out.evaluate(step)
                continue
            if logs:
                out.log(step)
            run.number = budget.stage  # what follows sees the state as a resumed run would
            if evaluates:
                with out.off_the_clock():
                    final = out.evaluate(step)
            if saves:
                with out.off_the_clock():
                    _save(run, saved, step)
            every = c.logging.report_every
            if every and step % every == 0 and not (budget.over or stopping):
                with out.off_the_clock():
                    out.report("running")
        stop.no_more_steps()
        saved.wait()
        stop.saved = True
        out.report("finished" if budget.over else "stopped")
    if not budget.over:
        logging.info("stopped and saved at step %d; the same command goes on", int(run.state.step))
    return final


def _rows(run: runs.Run, rows_seen: int) -> dict:
    """Which rows come next, as the feed wants to be told."""
    data = run.stage.config.data
    return {
        "order": pipeline.Order(run.records, run.config.seed),
        "rows_seen": rows_seen,
        "batch_size": data.batch_size,
        "length": data.sequence_length,
    }


def _save(run: runs.Run, saved: checkpoint_series.Checkpoints, step: int) -> None:
    saved.save(step, runs.saved_tree(run.state, run.interval), runs.metadata_of(run))


def _continue_or_begin(config: config_lib.Config, workdir: str) -> None:
    """Compares with the workdir's run, and writes config.json; refuses another run's settings."""

    def compare_and_write():
        changed = saved_config.check_continuation(config, workdir)
        saved_config.write(workdir, config)
        return changed

    for text in processes.of_first(compare_and_write):
        logging.info("changed since this run began: %s", text)


def _check_places(workdir: str) -> None:
    """Refuses a workdir that cannot be written, before anything is. Raises ConfigError."""
    safe_files.check_path(workdir, "--workdir", config_lib.ConfigError)
    for name in ("", "checkpoints", "tensorboard"):
        path = os.path.join(workdir, name) if name else workdir
        if os.path.lexists(path) and not os.path.isdir(path):
            raise config_lib.ConfigError(
                f"{path} is not a folder, and the run keeps one there; move it away, or choose"
                " another --workdir"
            )
        _check_right(path)
    for name in ("run.lock", "log.txt", "metrics.jsonl"):
        path = os.path.join(workdir, name)
        if os.path.isdir(path):
            raise config_lib.ConfigError(
                f"{path} is a folder, and the run keeps a file there; move it away, or choose"
                " another --workdir"
            )
        _check_right(path)


def _check_right(path: str) -> None:
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise config_lib.ConfigError(
            f"{path} may not be written by this user, or its disk not at all; make it writable, or"
            " choose another --workdir"
        )


def _same_everywhere(config: config_lib.Config) -> None:
    """Processes with different settings would each train something else: refused on all."""
    trees = [json.loads(text) for text in processes.gather(config_lib.to_json(config))]
    first, *others = (config_lib.parse(tree) for tree in trees)
    for number, other in enumerate(others, 1):
        before, after = config_lib.flatten(first), config_lib.flatten(other)
        unlike = [
            f"{path} is {before[path]!r} on process 0 and {after[path]!r} on process {number}"
            for path in before
            if before[path] != after[path]
        ]
        if unlike:
            raise config_lib.ConfigError(
                f"the processes were started with different settings: {'; '.join(unlike)}; start"
                " all with the same command but for --process_id"
            )
