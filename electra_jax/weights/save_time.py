# SPDX-License-Identifier: Apache-2.0
"""The time in which a save must be complete.

Libraries retry a server that only answers with errors for a quarter of an hour per file, and wait
for a silent one for ever. A run does not wait for that: a save that takes longer
than any disk or server that works has failed.
"""

import errno
import time
from collections.abc import Callable
from typing import Any

import jax
from absl import logging

from electra_jax.host import background_calls, waiting

SECONDS = 600.0  # from the start of a save, ...
BYTES_PER_SECOND = 10_000_000  # ... and one more for so many bytes that each process saves
_LOOK_SECONDS = 0.5
AT_LEAST = 30.0  # seconds that a call has long after the save, which is then mostly complete


class NotInTime(TimeoutError):
    """A save was not complete in its time."""


class SaveTime:
    """Makes the calls of one series of saves, each in the time of the save that was begun last."""

    def __init__(self, directory: str):
        self._directory = directory  # for messages
        self._caller = background_calls.Caller("checkpoint")
        self._call: background_calls.Call | None = None
        self._step, self._what, self._seconds, self._ends_at = 0, "", 0.0, 0.0
        self.complete: int | None = None  # step of the newest checkpoint known to be complete

    def begins(self, step: int, tree: Any, what: str = "saved") -> None:
        """The time in which this tree must be saved, or read back, begins now."""
        size = sum(x.nbytes for x in jax.tree.leaves(tree)) / jax.process_count()
        self._step, self._what, self._seconds = step, what, SECONDS + size / BYTES_PER_SECOND
        self._ends_at = time.monotonic() + self._seconds

    def is_complete(self) -> None:
        """Notes that the save that was begun last is on disk."""
        self.complete = self._step

    def run(self, work: Callable[[], Any]) -> Any:
        """Returns `work()` or raises what it raises, or NotInTime if the time is over before.

        A call that did not come back in its time is waited for again, in place of `work`.
        """
        if not self.hangs():
            self._call = self._caller.begin(work)
        assert self._call is not None

        since = time.monotonic()
        ends_at = max(self._ends_at, since + AT_LEAST)
        patience = waiting.Patience(since)
        while not self._call.is_done(_LOOK_SECONDS):
            now = time.monotonic()
            if now > ends_at:
                within = f"step {self._step} was not {self._what} within {self._seconds:.0f} s"
                raise NotInTime(errno.ETIMEDOUT, within, self._directory)
            if patience.is_over(now):
                logging.info(
                    "waiting for checkpoint %d for %.0f s, and for %.0f s more at most",
                    self._step, now - since, ends_at - now,
                )  # fmt: skip
        return self._call.result()

    def end(self) -> None:
        """Ends the thread of the calls; one that hangs is not waited for.

        Only when orbax is closed: another thread would be told again of the error of a save.
        """
        self._caller.end()

    def hangs(self) -> bool:
        """Whether a call has not come back in its time, and still has not."""
        return self._call is not None and not self._call.is_done()

    def last_words(self, error: NotInTime) -> str:
        """What failed and where the next start continues, in one line."""
        newest = "no checkpoint is known to be complete"
        if self.complete is not None:
            newest = f"the newest known to be complete is that of step {self.complete}"
        return f"{error.strerror} in {self._directory}; {newest}; the same command continues"
