# SPDX-License-Identifier: Apache-2.0
"""Questions to servers about files, with a time limit; no answer is an error of one line."""

import contextlib
import errno
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import text_files
from electra_jax.host import error_causes

SECONDS = 15  # in which a server has to say which files it has, or one thing about one file
AT_ONCE = 8  # questions about single files
OTHER_TEXT = "read your own files, data.source=text:GLOB, or data.source=builtin"

_TELLING = {  # numbers of system errors which say by themselves why there is no file
    *(errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE),
    *(errno.ENOSPC, errno.EDQUOT),
}


class Unreachable(error_causes.MayPass):
    """A server does not answer, so nothing is known about the text that it has."""


def why(error: Exception) -> str:
    """Returns why a file cannot be had, as a part of a line.

    Libraries wrap what the operating system says in the names of their own classes, and quote the
    address of whichever file they asked for last. Where the system says why, its words are enough.
    """
    chain = error_causes.of(error)
    for cause in reversed(chain):
        if isinstance(cause, socket.gaierror):
            return f"name resolution failed: {cause.strerror}"
        if isinstance(cause, ssl.SSLError) and cause.strerror:
            return cause.strerror
        if isinstance(cause, OSError) and cause.errno in _TELLING:
            return os.strerror(cause.errno)
    # fsspec's own error of a time-out is empty; that of the library below says of what.
    return text_files.reason(next((cause for cause in chain if str(cause)), error))


def may_pass(error: Exception) -> bool:
    """Returns whether the network or the disk failed, and not what was asked for."""
    outside = (socket.gaierror, ssl.SSLError, TimeoutError, ConnectionError)
    return any(
        isinstance(cause, outside) or (isinstance(cause, OSError) and cause.errno in _TELLING)
        for cause in error_causes.of(error)
    )


def refused(error: Exception) -> bool:
    """Returns whether a server has answered that the credentials do not allow what was asked for.

    That is its answer 401 or 403, which each library turns into something else: aiohttp into an
    error with a status, huggingface_hub into one with the response, gcsfs into one with a code or,
    for 403, with a first word, s3fs into a PermissionError without the errno of a local one.
    """
    return any(_is_no(cause) for cause in error_causes.of(error))


def _is_no(cause):
    # One after the other: aiohttp's errors have a status and warn of their code.
    answer = next((getattr(cause, name) for name in ("status", "code") if hasattr(cause, name)), "")
    response = getattr(cause, "response", None)
    if {str(answer), str(getattr(response, "status_code", ""))} & {"401", "403"}:
        return True
    if isinstance(cause, PermissionError):
        return cause.errno is None
    return isinstance(cause, OSError) and str(cause).startswith("Forbidden: ")


def in_time(work: Callable[[], Any]) -> Any:
    """Returns what `work()` returns, or raises TimeoutError after `SECONDS` in all.

    A time-out of a library is for one attempt to connect and one read, of which there may be many:
    each address of a name and each retry has its own.
    """
    return first_in_time([work])


def each_in_time(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Returns `[work(item) for item in items]`, with up to `AT_ONCE` calls at the same time.

    Raises the first error of a call, or TimeoutError when for `SECONDS` no call has returned: there
    is no limit for all of them, of which there may be thousands.
    """
    left = queue.SimpleQueue()
    for place in enumerate(items):
        left.put(place)
    results: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
    given_up = threading.Event()

    def run():
        with contextlib.suppress(queue.Empty):
            while not given_up.is_set():
                number, item = left.get_nowait()
                try:
                    results.put((number, work(item), None))
                except BaseException as error:
                    results.put((number, None, error))

    for _ in range(min(AT_ONCE, len(items))):
        threading.Thread(target=run, daemon=True).start()

    values = [None] * len(items)
    try:
        for _ in items:
            number, values[number], error = _next(results, SECONDS)
            if error is not None:
                raise error
    finally:
        given_up.set()
    return values


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
        value, error = _next(results, max(0.0, end - time.monotonic()))
        if error is None:
            return value
    raise error


def _next(results, seconds):
    try:
        return results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {SECONDS} s") from None
