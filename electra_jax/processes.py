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

T = TypeVar("T")


def agree(work: Callable[[], T], kind: type[Exception]) -> T:
    """Each process's own `work()`; where one raises an error of this kind, all of them do.

    It raises its own, the others that of the first that failed. `work` must need no other process.
    """
    if jax.process_count() == 1:
        return work()
    result, failure = None, None
    try:
        result = work()
    except kind as error:
        failure = error
    failed = {n: text for n, text in enumerate(_gather(_text_of(failure))) if text}
    if failure is not None:
        raise failure
    if not failed:
        return result
    number, reason = next(iter(failed.items()))
    raise kind(f"{reason} (found by process {number})")


def of_first(work: Callable[[], Any]) -> Any:
    """What `work()` returns on process 0, on all of them; something that JSON can hold.

    An OSError of process 0 is one of all.
    """
    if jax.process_count() == 1:
        return work()
    told: dict[str, Any] = {}
    if jax.process_index() == 0:
        try:
            told = {"value": work()}
        except OSError as error:
            told = {"error": str(error)}
    told = json.loads(_gather(json.dumps(told))[0])
    if "error" in told:
        raise OSError(told["error"])
    return told["value"]


def _text_of(failure):
    return "" if failure is None else str(failure) or type(failure).__name__


def _gather(text):
    """The texts of all processes, in their order."""
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(data.size)).reshape(-1)
    padded = np.zeros(max(1, sizes.max()), np.uint8)
    padded[: data.size] = data
    everyones = multihost_utils.process_allgather(padded)
    return [bytes(row[:size]).decode() for row, size in zip(everyones, sizes, strict=True)]
