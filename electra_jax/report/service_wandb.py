# SPDX-License-Identifier: Apache-2.0
"""A run at Weights & Biases; `services` says when it is opened and what it gets.

Its own variables keep their meaning: WANDB_PROJECT, WANDB_ENTITY, WANDB_NAME, WANDB_MODE, ... A run
without a network is kept in WORKDIR/wandb, for `wandb sync`.
"""

import os
import uuid
from collections.abc import Mapping

from electra_jax.report import services

REMEDY = "log in with `wandb login`, or keep the run in its workdir with WANDB_MODE=offline"
_SECONDS_TO_FINISH = 60.0  # the rest stays on the disk for `wandb sync`


class _Run:
    """See `services.OpenRun`."""

    def __init__(self, run, run_id: str):
        self._run, self.id = run, run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds values to the row of a step; both kinds of one step share a row."""
        self._run.log(dict(values), step=step)

    def finish(self, failed: bool) -> None:
        """Uploads what is left and marks the run."""
        self._run.finish(exit_code=int(failed))


def open(about: services.About) -> services.OpenRun:
    """Opens the run with this id, or a new one."""
    import wandb  # noqa: PLC0415 - takes seconds, and only runs that log there have it

    run_id = about.id or uuid.uuid4().hex[:8]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or services.PROJECT,
        name=os.environ.get("WANDB_NAME") or about.name,
        id=run_id,
        dir=about.workdir,
        config=None if about.id else dict(about.config),
        resume="allow",
        # The console is this program's, which redraws its last line and keeps log.txt. Another run
        # of the same process, as in a notebook, stays open beside this one.
        settings=wandb.Settings(
            console="off", reinit="create_new", finish_timeout=_SECONDS_TO_FINISH
        ),
    )
    return _Run(run, run_id)
