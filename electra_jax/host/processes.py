# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run tell each other, so that none goes on where another cannot.

An error on one process alone would leave the others waiting for it in the next computation of all.
Where one process may fail - a file that only it cannot read - all of them ask here how it went.
With a single process nothing is sent.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from electra_jax.host import peers

T = TypeVar("T")


def agree(work: Callable[[], T], *kinds: type[Exception], doing: str = "") -> T:
    """Each process's own `work()`; where one raises an error of these kinds, all of them do.

    It raises its own, the others one like that of the first that failed. `work` must need no other
    process. `doing` is told to who waits: "to prepare the data".
    """
    if jax.process_count() == 1:
        return work()
    result, failure = None, None
    try:
        result = work()
    except kinds as error:
        failure = error
    texts = gather(json.dumps(_told(failure, kinds)), doing)
    everyones = [json.loads(text) for text in texts]
    if failure is not None:
        raise failure
    for number, told in enumerate(everyones):
        if told is not None:
            raise _like(told, kinds, f" (found by process {number})")
    return result


def of_first(work: Callable[[], Any]) -> Any:
    """What `work()` returns on process 0, on all of them; something that JSON can hold.

    An OSError or ValueError of process 0 is one of all.
    """
    first, kinds = jax.process_index() == 0, (OSError, ValueError)
    found = agree(lambda: work() if first else None, *kinds)
    if jax.process_count() == 1:
        return found
    return json.loads(gather(json.dumps(found) if first else "")[0])


def gather(text: str, doing: str = "") -> list[str]:
    """The texts of all processes, in their order."""
    if jax.process_count() == 1:
        return [text]
    if peers.group() is not None:  # it says for whom it waits, and hears of a death meanwhile
        return peers.group().gather(text, doing)
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(data.size)).reshape(-1)
    padded = np.zeros(max(1, sizes.max()), np.uint8)
    padded[: data.size] = data
    everyones = multihost_utils.process_allgather(padded)
    return [bytes(row[:size]).decode() for row, size in zip(everyones, sizes, strict=True)]


def _told(failure, kinds):
    """Enough of an error to raise one like it elsewhere."""
    if failure is None:
        return None
    number = next(n for n, kind in enumerate(kinds) if isinstance(failure, kind))
    if isinstance(failure, OSError) and failure.errno is not None:
        return [number, failure.errno, failure.strerror, failure.filename]
    return [number, str(failure) or type(failure).__name__]


def _like(told, kinds, where):
    number, *about = told
    if len(about) == 1:
        return kinds[number](about[0] + where)
    code, reason, path = about
    return OSError(code, f"{reason}{where}", path)
