# SPDX-License-Identifier: Apache-2.0
"""Asking servers about files in a bounded time; a server that does not answer is one line."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 15  # in which a server has to say which files it has


class Unreachable(ValueError):
    """A server does not answer, so nothing is known about the text that it has."""


def in_time(work: Callable[[], Any]) -> Any:
    """Returns what `work()` returns, or raises TimeoutError after `SECONDS` in all.

    A time-out of a library is for one attempt to connect and one read, of which there may be many:
    each address of a name and each retry has its own.
    """
    return first_in_time([work])


def first_in_time(works: Sequence[Callable[[], Any]]) -> Any:
    """Calls all at the same time; returns what the first of them returns that does not fail.

    Raises the last error if all fail, or TimeoutError after `SECONDS` in all.
    """
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run(work):
        try:
            results.put((work(), None))
        except BaseException as error:
            results.put((None, error))

    for work in works:
        threading.Thread(target=run, args=(work,), daemon=True).start()

    end = time.monotonic() + SECONDS
    for _ in works:
        try:
            value, error = results.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"no answer in {SECONDS} s") from None
        if error is None:
            return value
    raise error
