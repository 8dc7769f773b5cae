# SPDX-License-Identifier: Apache-2.0
"""The run: build the parts, restore, loop, evaluate, save, report. Side effects, no maths.

Reading order from here: `build.py` (what is chosen), `train_step.py` (one step),
`objectives/replaced_token_detection.py` (the method), `corrupt.py`, `model/`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Sequence

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils

from electra_jax import budget as budget_lib
from electra_jax import (
    compilations,
    lock,
    logs,
    metrics,
    output,
    profiling,
    runs,
    signals,
    train_step,
    writers,
)
from electra_jax import config as config_lib
from electra_jax import feed as feed_lib
from electra_jax.data import pipeline

SKIPS = 3  # non-finite steps in a row that end a run


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line."""


def train(
    config, workdir: str | os.PathLike, extra_writers: Sequence[writers.Writer] = ()
) -> dict[str, float | None]:
    """Pre-trains until the budget is spent and returns the final held-out metrics.

    What `python -m electra_jax.main` does, for a notebook.

    Args:
      config: an ml_collections tree such as `configs/tiny.py` returns, or a parsed Config.
      workdir: where checkpoints, metrics and the report go; a second call goes on from there.
      extra_writers: anything with `write(step, kind, metrics)` and `close()`; it gets every row
        that goes to metrics.jsonl.

    Raises:
      ConfigError, CheckpointError, TrainingError: one line each, with the remedy.
    """
    if not isinstance(config, config_lib.Config):
        config = config_lib.parse(config)
    workdir = os.fspath(workdir)
    logs.show()
    with contextlib.ExitStack() as stack:
        if jax.process_index() == 0:
            stack.enter_context(
                lock.hold(
                    os.path.join(workdir, "run.lock"), f"workdir {workdir}", config_lib.ConfigError
                )
            )
            stack.enter_context(logs.file(os.path.join(workdir, "log.txt")))
        compilations.keep()
        _same_everywhere(config)
        _continue_or_begin(config, workdir)
        run = runs.start(config, workdir)
        stop = stack.enter_context(signals.stop_on_signals())
        try:
            return _loop(run, stop, extra_writers)
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
    first = int(run.state.step)
    rows_seen = train_step.words_to_int(jax.device_get(run.state.rows_seen))
    feed = feed_lib.Feed(
        pipeline.Order(run.records, c.seed),
        run.mesh,
        rows_seen,
        c.data.batch_size,
        c.data.sequence_length,
    )
    budget = budget_lib.Budget(c.schedule, c.data.batch_size * c.data.sequence_length, run.state)
    out = output.Output(run, first, budget, extra_writers)
    add = jax.jit(metrics.add)
    unread, skipped, final = None, 0, {}
    profile = profiling.Profile(c.logging.profile, run.workdir)
    with feed, runs.checkpoints_of(c, run.workdir) as saved, out, profile:
        if budget.over:
            spent = budget_lib.in_words(c.schedule)
            logging.info("nothing to do: step %d, and %s are done", first, spent)
            final = out.evaluate(first, write=False)
        for step in range(first + 1, first + 1 if budget.over else c.schedule.steps + 1):
            lanes = next(feed)
            profile.before(step, run.state)
            run.state, measured = run.update(run.state, lanes)
            profile.after(step, run.state)
            run.interval = add(run.interval, measured.sums)
            # The step before this one is read while this one runs: the device never waits.
            skipped = _count_skips(skipped, unread, step - 1, c)
            unread = measured
            run.state = budget.after(step, run.state, measured)
            last = budget.over or stop.requested(step)
            if step == first + 1:
                out.first_step_done(step)
            if step % c.logging.every == 0 or budget.over:
                skipped = _count_skips(skipped, unread, step, c)
                unread = None
                out.log(step)
            if step % c.evaluation.every == 0 or budget.over:
                with out.off_the_clock():
                    final = out.evaluate(step)
            if step % c.checkpoint.every == 0 or last:
                with out.off_the_clock():
                    saved.save(
                        step, runs.saved_tree(run.state, run.interval), runs.metadata_of(run)
                    )
            if step % c.logging.report_every == 0 and not last:
                with out.off_the_clock():
                    out.report("running")
            if last:
                break
        saved.wait()
        out.report("finished" if budget.over else "stopped")
    if not budget.over:
        logging.info("stopped and saved at step %d; the same command goes on", int(run.state.step))
    return final


def _continue_or_begin(config: config_lib.Config, workdir: str) -> None:
    """Compares with the workdir's config.json, or writes it; refuses another run's settings."""
    path = os.path.join(workdir, "config.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = config_lib.parse(json.load(file))
        changed, refused = config_lib.differences(old, config)
        if refused:
            raise config_lib.ConfigError(
                f"workdir {workdir} holds a run with other settings: {'; '.join(refused)}; choose"
                f" another --workdir, and --config.init.from={workdir} to start from its weights"
            )
        for text in changed:
            logging.info("changed since this run began: %s", text)
    if jax.process_index() == 0:
        temporary = path + ".partial"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(config_lib.to_json(config))
        os.replace(temporary, path)


def _same_everywhere(config: config_lib.Config) -> None:
    """Processes with different settings would each train something else: refused on all."""
    if jax.process_count() > 1:
        text = config_lib.to_json(config).encode()
        words = np.frombuffer(text[: len(text) // 4 * 4], np.uint32)
        sums = np.array([len(text), words.sum(dtype=np.uint32)], np.uint32)
        multihost_utils.assert_equal(sums, "processes were started with different settings")


def _count_skips(skipped, measured: train_step.Measured | None, step, config) -> int:
    """How many steps in a row were not finite; TrainingError where that is enough."""
    if measured is None:
        return skipped
    checks, limits = jax.device_get((measured.checks, measured.limits))
    size = config.data.batch_size
    first = (step - 1) * size
    bad = {name: float(x) for name, x in checks.items() if not np.isfinite(x)}
    if not bad:
        for name, limit in limits.items():
            if checks[name] > limit:
                logging.warning(
                    "step %d skipped: %s is %.4g, a spike above %.4g (rows %d to %d)",
                    step, name, checks[name], limit, first, first + size - 1,
                )  # fmt: skip
        return 0
    name, value = next(iter(bad.items()))
    logging.warning(
        "step %d skipped: %s is %s (rows %d to %d)", step, name, value, first, first + size - 1
    )
    if skipped + 1 >= SKIPS:
        raise TrainingError(
            f"{SKIPS} steps in a row were not finite, the last at step {step}: {name} is {value},"
            f" rows {first} to {first + size - 1}; the checkpoints before are good; lower"
            " optimizer.learning_rate or lengthen schedule.warmup_steps in a new workdir"
        )
    return skipped + 1
