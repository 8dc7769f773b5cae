# SPDX-License-Identifier: Apache-2.0
"""A run in Trackio; `services` says when it is opened and what it gets.

Without settings it is in a database of this machine, which `trackio show` draws. TRACKIO_SPACE_ID
names a Space of the Hugging Face Hub instead, TRACKIO_SERVER_URL a server, TRACKIO_PROJECT the
project.
"""

import os
import uuid
from collections.abc import Mapping

from electra_jax.report import services

REMEDY = "look at TRACKIO_SPACE_ID, TRACKIO_SERVER_URL and HF_TOKEN"


class _Run:
    """See `services.OpenRun`."""

    def __init__(self, run, run_id: str):
        self._run, self.id = run, run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queues values, which a thread of Trackio writes."""
        self._run.log(dict(values), step=step)

    def finish(self, failed: bool) -> None:
        """Waits half a minute at most for that thread. Trackio does not mark runs that failed."""
        self._run.finish()


def open(about: services.About) -> services.OpenRun:
    """Opens the run with this id, or a new one."""
    import trackio  # noqa: PLC0415 - takes seconds, and only runs that log there have it

    # A run is found by its name, so the name has to be its own in the project.
    name = about.id or f"{about.name}-{uuid.uuid4().hex[:6]}"
    run = trackio.init(
        project=os.environ.get("TRACKIO_PROJECT") or services.PROJECT,
        name=name,
        config=dict(about.config),  # replaces the same
        resume="allow" if about.id else "never",
        embed=False,
    )
    return _Run(run, name)
