# SPDX-License-Identifier: Apache-2.0
"""Asking a server about files in a bounded time; a server that does not answer is one line."""

import threading
from collections.abc import Callable
from typing import Any

SECONDS = 15  # in which a server has to say which files it has


class Unreachable(ValueError):
    """A server does not answer, so nothing is known about the text that it has."""


def in_time(work: Callable[[], Any]) -> Any:
    """Returns what `work()` returns, or raises TimeoutError after `SECONDS` in all.

    A time-out of a library is for one attempt to connect and one read, of which there may be many:
    each address of a name and each retry has its own.
    """
    results: list[tuple[Any, BaseException | None]] = []

    def run():
        try:
            results.append((work(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not results:
        raise TimeoutError(f"no answer in {SECONDS} s")

    value, error = results[0]
    if error is not None:
        raise error
    return value
