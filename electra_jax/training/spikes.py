# SPDX-License-Identifier: Apache-2.0
"""Steps that were not applied, and going back to the checkpoint before a spike.

    a step that was not finite    is not applied and is logged; three in a row end the run
    a spike (`averages.limit`)    on_spike='go_on' (the default): spikes are ignored
                                  'skip': the step is not applied and is logged
                                  'roll_back': also, the run takes the state of the newest good
                                  checkpoint and continues with the rows after the spike

After going back, parameters, moments, averages, the running mean of gradient norms, and the counts
of steps and tokens are those of the checkpoint. `rows_seen` is not turned back, so the rows between
the checkpoint and the spike are skipped, as PaLM skips the batches around a spike (Chowdhery et al.
2022, arXiv:2204.02311, section 5.1). All of this follows from the checkpoint alone, so a run that
is killed after going back meets the same spike again and goes back again. Only time is never turned
back: with a budget of minutes `saved_state.note_spent` writes it down.
"""

import dataclasses

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import counters, trees
from electra_jax.step import train_step
from electra_jax.training import errors, runs, saved_state
from electra_jax.weights import checkpoint, checkpoint_series

NON_FINITE_IN_A_ROW = 3  # non-finite steps in a row that end a run
ROLLBACKS = 3  # how often a run goes back to the same checkpoint; the next spike ends it


@dataclasses.dataclass(frozen=True)
class Dispatched:
    """A step that was dispatched, with the numbers of its first and last row."""

    step: int
    first_row: int
    last_row: int
    measured: train_step.Measured


class StepChecks:
    """Reads the checks of each step after the next one was dispatched: the device never waits."""

    def __init__(self, schedule: config_lib.Schedule):
        self._rolls_back = schedule.on_spike == "roll_back"
        self._unread: Dispatched | None = None
        self._bad = 0  # steps in a row that were not finite

    def keep(self, step: int, first_row: int, size: int, measured: train_step.Measured) -> None:
        """Keeps a step that was dispatched, for `read` to look at later."""
        self._unread = Dispatched(step, first_row, first_row + size - 1, measured)

    def forget(self) -> None:
        """Drops the unread step and the count of bad steps, when the run goes back."""
        self._unread, self._bad = None, 0

    def read(self) -> Dispatched | None:
        """Logs the last step if it was bad; returns it if the run has to go back because of it.

        Returns None if it was good, if there is none to read, or if on_spike is not 'roll_back'.
        Raises TrainingError after `NON_FINITE_IN_A_ROW` steps in a row that were not finite.
        """
        last, self._unread = self._unread, None
        if last is None:
            return None

        checks, limits = jax.device_get((last.measured.checks, last.measured.limits))
        rows = f"rows {last.first_row} to {last.last_row}"
        bad = {name: float(x) for name, x in checks.items() if not np.isfinite(x)}
        if bad:
            self._count(last.step, rows, *next(iter(bad.items())))
            return None

        self._bad = 0
        spikes = [name for name, limit in limits.items() if checks[name] > limit]
        for name in spikes:
            logging.warning(
                "step %d skipped: %s is %.4g, a spike above %.4g (%s)",
                last.step, name, checks[name], limits[name], rows,
            )  # fmt: skip
        return last if spikes and self._rolls_back else None

    def _count(self, step, rows, name, value):
        """Counts a step that was not finite. Raises TrainingError if it is one too many."""
        logging.warning("step %d skipped: %s is %s (%s)", step, name, value, rows)
        self._bad += 1
        if self._bad >= NON_FINITE_IN_A_ROW:
            raise errors.TrainingError(
                f"{NON_FINITE_IN_A_ROW} steps in a row were not finite, the last at step {step}:"
                f" {name} is {value}, {rows}; the checkpoints before are good; lower"
                " optimizer.learning_rate or lengthen schedule.warmup_steps in a new workdir"
            )


def go_back(run: runs.Run, checkpoints: checkpoint_series.Checkpoints, spike: Dispatched) -> None:
    """Sets the run to step and state of the newest good checkpoint; keeps its position in the rows.

    Raises TrainingError if the run has gone back to this checkpoint `ROLLBACKS` times already.
    """
    like = saved_state.tree_of(run.abstract_state, trees.shapes_like(run.interval))
    restored = checkpoints.reread(like)

    again = sum(rollback["to"] == restored.step for rollback in run.rollbacks)
    if again >= ROLLBACKS:
        raise errors.TrainingError(
            f"step {spike.step} is a spike, and the run has gone back {again} times to step"
            f" {restored.step} already; the checkpoints are good; lower optimizer.learning_rate or"
            " raise schedule.spike_factor in a new workdir with init.from"
        )

    tree = dict(restored.tree)
    run.interval = tree.pop(checkpoint.INTERVAL)
    state = train_step.TrainState(**tree)
    first_skipped = counters.to_int(jax.device_get(state.rows_seen))
    next_row = spike.last_row + 1
    if state.seconds is not None:  # lost time stays spent
        state = dataclasses.replace(state, seconds=run.state.seconds)

    rows_seen = trees.placed_like(state.rows_seen, counters.from_int(next_row))
    run.state = dataclasses.replace(state, rows_seen=rows_seen)
    run.step, run.rows_seen = restored.step, next_row

    rollback = {
        "from": spike.step,
        "to": restored.step,
        "first_row": first_skipped,
        "last_row": spike.last_row,
    }
    run.rollbacks = [*run.rollbacks, rollback]
    logging.warning("%s", describe(rollback))


def describe(rollback: dict) -> str:
    """What happened, as a sentence for the log and the report."""
    return (
        f"a spike at step {rollback['from']:,}: back to the state of step {rollback['to']:,}; rows"
        f" {rollback['first_row']:,} to {rollback['last_row']:,} are skipped"
    )
