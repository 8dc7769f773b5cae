# SPDX-License-Identifier: Apache-2.0
"""What a run saves to go on from: its state in checkpoints, and time that these do not know of."""

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
from electra_jax.weights import checkpoint_series

SPENT = "spent.json"  # in the workdir of a run that went back, see `note_spent`


def checkpoints_of(config: config_lib.Config, workdir: str) -> checkpoint_series.Checkpoints:
    """The checkpoints of a workdir, kept as the configuration says."""
    c = config.checkpoint
    return checkpoint_series.Checkpoints(
        os.path.join(workdir, "checkpoints"), c.keep_last, c.keep_every
    )


def tree_of(state: train_step.TrainState, interval: metrics.Sums) -> dict:
    """What a checkpoint holds: the state's fields, and the sums since the last log."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    kept = {name: value for name, value in fields.items() if value is not None}
    return kept | {"interval": interval}


def note_spent(workdir: str, step: int, state: train_step.TrainState) -> None:
    """Keeps the time of a run that ends by going back to a checkpoint, which knows less of it.

    The checkpoint stays as it is; without the note the next start would train those minutes again.
    """
    if jax.process_index() == 0 and state.seconds is not None:
        note = {"step": step, "seconds": float(state.seconds)}
        note |= {"check": _check_of(note)}
        safe_files.write(os.path.join(workdir, SPENT), json.dumps(note).encode())


def with_spent(state, step, workdir):
    """The state of this checkpoint, with the time that was spent behind it in vain."""
    if state.seconds is None:
        return state

    def noted():
        path = os.path.join(workdir, SPENT)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found.pop("check", None) not in (None, _check_of(found)):  # None: an older version
                raise ValueError("a digit of it changed")
            return float(found["seconds"]) if found["step"] == step else 0.0  # later ones know it
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            logging.warning("%s cannot be read; minutes that were given up may be trained", path)
            return 0.0

    return budget.with_seconds(state, max(float(state.seconds), processes.of_first(noted)))


def _check_of(note):
    return zlib.crc32(json.dumps(note, sort_keys=True).encode())
