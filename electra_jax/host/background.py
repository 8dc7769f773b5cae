# SPDX-License-Identifier: Apache-2.0
"""A call in a thread of its own, so that the main thread hears signals and looks at the clock.

Compiling a program and waiting for a checkpoint take minutes and cannot be interrupted. What is
left behind of them ends with the process: a command does not wait for it (`ending.leave`), and
other programs, at their own end, do.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any


class Call(threading.Thread):
    """A call that begins at once."""

    def __init__(self, work: Callable[[], Any], name: str):
        """Begins.

        Args:
          work: what to call.
          name: of the thread.
        """
        super().__init__(name=name)
        self._context, self._work = contextvars.copy_context(), work
        self._done = threading.Event()
        self._returned: Any = None
        self._raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Runs in the thread."""
        try:
            self._returned = self._context.run(self._work)
        except BaseException as error:
            self._raised = error
        self._done.set()

    def is_done(self, seconds: float = 0.0) -> bool:
        """Whether it has come to its end, for which this waits so many seconds at most."""
        return self._done.wait(seconds)

    def result(self) -> Any:
        """Waits for the end; returns what the call returned or raises what it raised."""
        self._done.wait()
        if self._raised is not None:
            raise self._raised
        return self._returned
