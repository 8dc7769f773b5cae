# SPDX-License-Identifier: Apache-2.0
"""What a run saves in order to continue: its state in checkpoints, and lost time in a note.

    arrays      the fields of `TrainState` (weights, moments, step, rows and tokens seen, skipped
                steps; averages, norms and seconds if the run has them), and `interval`, the metric
                sums since the last log line
    metadata    settings, stage, rows by stage, rollbacks, digests (`runs.metadata_of`)

Read by `runs.start` and `spikes.go_back` to train on, by `trained_run.open` to show and to
evaluate, by `weights/reading_workdir.py` to export and to load an encoder, and by
`weights/starting_weights.py` for `init.from`.

The note exists for budgets of minutes only: a run that goes back to an earlier checkpoint has spent
more time than that checkpoint says.
"""

import dataclasses
import json
import os
import zlib

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import metrics
from electra_jax.host import processes, safe_files
from electra_jax.step import train_step
from electra_jax.training import budget
from electra_jax.weights import checkpoint, checkpoint_series
from electra_jax.workdir import metadata

SPENT = "spent.json"  # the note, in the workdir; see `note_spent`


def checkpoints_of(settings: config_lib.Checkpoint, workdir: str) -> checkpoint_series.Checkpoints:
    """The series of checkpoints in a workdir; the section `checkpoint` says which are kept."""
    return checkpoint_series.Checkpoints(
        metadata.directory(workdir), settings.keep_last, settings.keep_every
    )


def tree_of(state: train_step.TrainState, interval: metrics.Sums) -> dict:
    """What a checkpoint holds: the fields of the state, and the metric sums since the last log."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    kept = {name: value for name, value in fields.items() if value is not None}
    return kept | {checkpoint.INTERVAL: interval}


def note_spent(workdir: str, step: int, state: train_step.TrainState) -> None:
    """Writes down the time that a run has spent when it ends by going back to a checkpoint.

    The checkpoint of this step holds a smaller time and is not changed. Without the note the next
    start would train for the lost minutes a second time.
    """
    if jax.process_index() == 0 and state.seconds is not None:
        note = {"step": step, "seconds": float(state.seconds)}
        note |= {"check": _check_of(note)}
        safe_files.write(os.path.join(workdir, SPENT), json.dumps(note).encode())


def with_spent(state, step, workdir):
    """The state of this checkpoint, with the time of the note if that is larger."""
    if state.seconds is None:
        return state

    def noted():
        path = os.path.join(workdir, SPENT)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found.pop("check", None) != _check_of(found):
                raise ValueError("a digit of it changed")
            # A later checkpoint includes the lost time already.
            return float(found["seconds"]) if found["step"] == step else 0.0
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            logging.warning("%s cannot be read; minutes that were given up may be trained", path)
            return 0.0

    return budget.with_seconds(state, max(float(state.seconds), processes.of_first(noted)))


def _check_of(note):
    """The digest of a note, which shows whether the file was damaged."""
    return zlib.crc32(json.dumps(note, sort_keys=True).encode())
