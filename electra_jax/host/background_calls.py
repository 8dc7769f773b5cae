# SPDX-License-Identifier: Apache-2.0
"""Calls in another thread, so that the main thread hears signals and looks at the clock.

Compiling a program and waiting for a checkpoint take minutes and cannot be interrupted. Calls that
still run when the command ends are abandoned: it does not wait for them (`process_exit.leave`).

    begin(work, name)        a thread for this call alone
    Caller(name).begin(work) one thread for all calls, one after the other, until Caller.end
"""

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Call:
    """A call that another thread makes."""

    def __init__(self, work: Callable[[], Any]):
        """Takes what to call; `make` calls it."""
        self._context, self._work = contextvars.copy_context(), work
        self._done = threading.Event()
        self._returned: Any = None
        self._raised: BaseException | None = None

    def make(self) -> None:
        """Makes the call, in the thread that runs this."""
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


def begin(work: Callable[[], Any], name: str) -> Call:
    """Makes a call in a thread of this name, which the interpreter waits for at its own end."""
    call = Call(work)
    _OfOneCall(target=call.make, name=name).start()
    return call


class _OfOneCall(threading.Thread):
    """A thread that `process_exit.leave` knows by the module of its class."""


class Caller:
    """A thread that makes one call after the other.

    Some libraries note by thread what has happened: orbax raises the error of a save once in each
    thread that waits for it.
    """

    def __init__(self, name: str):
        """Takes the name of the thread, which begins with the first call."""
        self._name = name
        self._waiting: queue.SimpleQueue[Call | None] | None = None  # None at its end: no more come

    def begin(self, work: Callable[[], Any]) -> Call:
        """Makes a call as soon as those before it have come to their ends."""
        if self._waiting is None:
            self._waiting = queue.SimpleQueue()
            # A daemon, since a call may hang, and nobody may ever call `end`.
            threading.Thread(
                target=_serve, args=(self._waiting,), name=self._name, daemon=True
            ).start()
        call = Call(work)
        self._waiting.put(call)
        return call

    def end(self) -> None:
        """Lets the thread end after the calls that were begun, and does not wait for that.

        A later call begins another thread, which knows nothing of what was raised in this one.
        """
        if self._waiting is not None:
            self._waiting.put(None)
            self._waiting = None


def _serve(waiting):
    while (call := waiting.get()) is not None:
        call.make()
