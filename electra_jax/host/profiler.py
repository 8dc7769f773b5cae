# SPDX-License-Identifier: Apache-2.0
"""A trace of a few training steps, set by `logging.profile`; XProf and Perfetto can open it."""

import os
from collections.abc import Sequence

import jax
from absl import logging


class Profile:
    """Traces steps `steps[0]` to `steps[1]` of a run into WORKDIR/profile, on process 0 only."""

    def __init__(self, steps: Sequence[int], workdir: str):
        # The range (1, 0) holds no step.
        self._first, self._last = steps if steps and jax.process_index() == 0 else (1, 0)
        self._folder = os.path.join(workdir, "profile")
        self._running = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()

    def before(self, step: int, state) -> None:
        """Starts the trace if `step` is in it, once the step before has finished on the device."""
        if self._first <= step <= self._last and not self._running:
            jax.block_until_ready(state)
            jax.profiler.start_trace(self._folder)
            self._running = True

    def after(self, step: int, state) -> None:
        """Ends the trace after its last step, once that step has finished on the device."""
        if step == self._last and self._running:
            jax.block_until_ready(state)
            self._stop()

    def _stop(self):
        if self._running:
            jax.profiler.stop_trace()
            self._running = False
            logging.info("trace of steps %d to %d in %s", self._first, self._last, self._folder)
