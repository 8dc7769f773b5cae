# SPDX-License-Identifier: Apache-2.0
"""Files of a copy that come one by one, when they are needed, and may go again (see staging.py).

    have_soon   fetches in the background
    have        waits until it is there
    have_again  fetches a damaged one anew
    drop        removes it from this machine

Paths that are in no copy are those of other folders; nothing is done for them.
"""

import concurrent.futures
import contextlib
import os
import queue
import threading

from electra_jax.host import buckets, staging

_AT_ONCE = 4  # files that are fetched at the same time

_fetches: dict[str, concurrent.futures.Future[None]] = {}  # asked for or done, by their paths
_asked: queue.SimpleQueue[tuple[str, str, concurrent.futures.Future[None]]] = queue.SimpleQueue()
_threads: list[threading.Thread] = []  # that fetch what is asked for
_fetch_lock = threading.Lock()


def have(path: str) -> None:
    """Waits until a file of a copy is on this machine, and fetches it if nobody has begun to.

    It does not wait for files that were asked for before it.
    """
    fetch = _fetches.pop(path, None)
    if not (where := staging.address(path)) or os.path.exists(path):
        return

    not_begun = fetch is None or fetch.cancel()
    if not_begun or (fetch.done() and fetch.exception()):  # the bucket may be back
        buckets.download(where, path)
    else:
        fetch.result()


def have_soon(path: str) -> None:
    """Begins to fetch a file of a copy in the background, unless it is on this machine."""
    if not (where := staging.address(path)) or os.path.exists(path):
        return

    with _fetch_lock:
        begun = _fetches.get(path)
        if begun is None or (begun.done() and begun.exception()):  # the bucket may be back
            if len(_threads) < _AT_ONCE:
                # A daemon: a program that ends does not wait for rows that it will not read.
                thread = threading.Thread(target=_fetch, name="fetch", daemon=True)
                thread.start()
                _threads.append(thread)
            _fetches[path] = result = concurrent.futures.Future()
            _asked.put((where, path, result))


def drop(path: str) -> None:
    """Removes a file of a copy from this machine alone, unless it is just being fetched."""
    if not staging.address(path):
        return

    with _fetch_lock:
        fetch = _fetches.get(path)
        if fetch is None or fetch.cancel() or fetch.done():
            _fetches.pop(path, None)  # who waits for the file must fetch it again
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def have_again(path: str) -> bool:
    """Fetches a file of a copy anew, in place of one that is damaged; returns whether it could."""
    if not (where := staging.address(path)):
        return False
    buckets.download(where, path)
    return True


def _fetch():
    """Fetches one file after the other, in the order in which they were asked for."""
    while True:
        address, path, result = _asked.get()
        if not result.set_running_or_notify_cancel():
            continue
        try:
            buckets.download(address, path)
            result.set_result(None)
        except Exception as error:  # of any kind; who waits for the file raises it
            result.set_exception(error)
