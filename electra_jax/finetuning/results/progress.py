# SPDX-License-Identifier: Apache-2.0
"""How far a fine-tuning command has got: what its page says while it lasts."""

import dataclasses
from collections.abc import Sequence

from electra_jax.finetuning.results import run_results

STATUSES = ("running", "finished", "stopped")


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of the command. A seed counts once for each point of the grid."""

    status: str = "finished"  # one of STATUSES
    now: str = ""  # 'cola, seed 2: step 120 of 804'
    left: Sequence[str] = ()  # what comes after the present task: 'mrpc: 5 seeds'
    done: int = 0  # seeds that are finished
    whole: int = 0  # seeds of all tasks
    share: float = 0.0  # of the steps of the seeds that are trained now, from 0 to 1 for each
    note: str = ""  # plain words, such as why it stopped
    # The task that is trained, with what its seeds have reported; those that are still trained
    # have a curve and no scores.
    task: run_results.TaskResult | None = None
