# SPDX-License-Identifier: Apache-2.0
"""Runs commands within a slice of time, and stops them before it ends.

    Slice(540).run("electra_jax.main", ...)  ->  whether the command came to its end

A command that is still at work when the slice is nearly over gets SIGTERM, upon which a training
saves and ends. It has GRACE for that and is killed afterwards; what was saved before is whole.
"""

import signal
import sys
import time

from benchmarks import bounded

STOP = 30  # --stop_timeout of a training: seconds from SIGTERM to the end of its step
GRACE = STOP + 15  # seconds of a slice in which a command saves and ends: a save takes some, too


class Slice:
    """The seconds of one call, all of which may be infinite."""

    def __init__(self, seconds: float):
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self.fresh = True  # no command has begun in it

    @property
    def whole(self) -> float:
        """The seconds that a command has which begins with the slice."""
        return self._seconds - GRACE

    @property
    def left(self) -> float:
        """The seconds that a command has which begins now."""
        return self._end - GRACE - time.monotonic()

    def run(self, *command: str) -> bool:
        """Runs a command of the package; returns whether it came to its end.

        Raises SystemExit if it failed.
        """
        if self.left <= 0:
            return False

        self.fresh = False
        process = bounded.start([sys.executable, "-m", *command])
        code = bounded.wait(process, self.left, GRACE, signal.SIGTERM)
        if code in (bounded.OVERDUE, bounded.STOPPED):
            return False
        if code:
            raise SystemExit(f"{command[0]} ended with {code}")
        return True
