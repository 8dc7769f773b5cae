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
import threading

from electra_jax.host import buckets, staging

_AT_ONCE = 4  # files that are fetched at the same time

_fetches: dict[str, concurrent.futures.Future[None]] = {}  # under way or done, by their paths
_beginning, _room = threading.Lock(), threading.Semaphore(_AT_ONCE)


def have(path: str) -> None:
    """Waits until a file of a copy is on this machine, and fetches it if nobody has begun to."""
    have_soon(path)
    if (fetch := _fetches.pop(path, None)) is not None:
        fetch.result()


def have_soon(path: str) -> None:
    """Begins to fetch a file of a copy in the background, unless it is on this machine."""
    if not (where := staging.address(path)) or os.path.exists(path):
        return

    with _beginning:
        begun = _fetches.get(path)
        if begun is None or (begun.done() and begun.exception()):  # the bucket may be back
            _fetches[path] = result = concurrent.futures.Future()
            # A daemon: a program that ends does not wait for rows that it will not read.
            threading.Thread(target=_download, args=(where, path, result), daemon=True).start()


def drop(path: str) -> None:
    """Removes a file of a copy from this machine alone, unless it is just being fetched."""
    if not staging.address(path):
        return

    with _beginning:
        fetch = _fetches.get(path)
        if fetch is None or fetch.done():
            _fetches.pop(path, None)  # who waits for the file must fetch it again
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def have_again(path: str) -> bool:
    """Fetches a file of a copy anew, in place of one that is damaged; returns whether it could."""
    if not (where := staging.address(path)):
        return False
    buckets.download(where, path)
    return True


def _download(address, path, result):
    try:
        with _room:
            buckets.download(address, path)
        result.set_result(None)
    except Exception as error:  # of any kind; who waits for the file raises it
        result.set_exception(error)
