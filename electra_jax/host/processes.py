# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run tell each other, so that all of them continue or none does.

If only one process fails, the others wait for it forever in the next computation that all take part
in. So wherever a single process may fail, for example on a file that only it cannot read, all of
them exchange the result here. With one process nothing is sent, and no device is opened.

Processes are counted as jax counts them, by `jax.process_index()`. On a TPU slice that follows from
where a host is in the slice, and need not be the number that its launcher has given it, by which
the lines of a `PeerGroup` name it.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from electra_jax.host import background_calls, error_causes, peers

_LOOK_SECONDS = 0.1  # between two looks at signals while a program is compiled

T = TypeVar("T")


class Stopped(Exception):
    """A run was asked to stop before a program was compiled."""


def is_first() -> bool:
    """Returns whether this is process 0. Starts no device if there is only one process."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def is_alone() -> bool:
    """Returns whether this is the only process. Starts no device in that case."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def agree(work: Callable[[], T], *kinds: type[Exception], doing: str = "") -> T:
    """Runs `work()` on each process and returns each one's own result.

    If `work` raises an error of `kinds` on any process, all processes raise: those that failed
    raise their own error, the others an error like that of the first process that failed. Where
    ValueErrors are shared, one that may pass is an `error_causes.MayPass` on the others.

    Args:
      work: must not wait for another process, unless all wait for each other in it, in the same
        order, as in `gather`.
      kinds: the types of errors that are shared.
      doing: what the processes that are waited for do, for the log: "to prepare the data".
    """
    if is_alone():
        return work()

    if ValueError in kinds:
        kinds = (error_causes.MayPass, *kinds)
    result, failure = None, None
    try:
        result = work()
    except kinds as error:
        failure = error

    texts = gather(json.dumps(_told(failure, kinds)), doing)
    everyones = [json.loads(text) for text in texts]

    # Our own error first: it has the traceback.
    if failure is not None:
        raise failure
    for number, told in enumerate(everyones):
        if told is not None:
            raise _like(told, kinds, f" (found by process {number})")
    return result


def of_first(work: Callable[[], Any]) -> Any:
    """Runs `work()` on process 0 alone and returns its result on every process.

    The result must be JSON data. An OSError or ValueError of process 0 is raised on all processes.
    """
    first, kinds = is_first(), (OSError, ValueError)
    found = agree(lambda: work() if first else None, *kinds)
    if is_alone():
        return found
    return json.loads(gather(json.dumps(found) if first else "")[0])


def number_of_first(number: float) -> float:
    """Returns the number of process 0 on every process.

    In a group it goes from host to host, and waits for nothing that the devices do.
    """
    if is_alone():
        return number
    if peers.group() is None:
        return float(multihost_utils.broadcast_one_to_all(np.float32(number)))
    return float(gather(repr(number))[0])


def gather(text: str, doing: str = "") -> list[str]:
    """Returns the texts of all processes in the order of `jax.process_index()`."""
    if is_alone():
        return [text]

    # The group says for whom it waits, and hears of the death of a process meanwhile.
    if peers.group() is not None:
        texts = peers.group().gather(text, doing)
        return [texts[place] for place in _places(peers.group())]

    # jax gathers arrays of one shape only, so the texts are padded to the longest one.
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(data.size)).reshape(-1)
    padded = np.zeros(max(1, sizes.max()), np.uint8)
    padded[: data.size] = data
    everyones = multihost_utils.process_allgather(padded)
    return [bytes(row[:size]).decode() for row, size in zip(everyones, sizes, strict=True)]


@functools.lru_cache(maxsize=1)
def _places(group):
    """Where each process stands in what a group gathers, in the order of `jax.process_index()`.

    All processes call this for the first time together. Raises RuntimeError if jax does not count
    the processes of the group.
    """
    numbers = [int(text) for text in group.gather(str(jax.process_index()))]
    if sorted(numbers) != list(range(len(numbers))):
        raise RuntimeError(
            f"jax numbers the {len(numbers)} processes {', '.join(map(str, numbers))}; start one"
            " process on each host of a slice, and no other"
        )
    return sorted(range(len(numbers)), key=numbers.__getitem__)


def compile_together(
    function: Callable, *arguments: Any, stops: Callable[[], bool] | None = None
) -> None:
    """Compiles a jitted function on all processes before any of them calls it.

    Otherwise the first to have compiled it waits inside its first exchange between devices: nobody
    is told for whom, and on CPUs that ends after 30 seconds with an error of jax. The program is
    kept, so that the call that follows does not compile again.

    Args:
      function: the jitted function.
      arguments: what it will be called with; they are not touched.
      stops: whether this process has heard of a request to stop. If one has before it has compiled,
        all raise Stopped; compiling continues in a thread that nobody needs any longer.
    """
    alone = is_alone()
    if alone and stops is None:
        return  # the call that follows compiles it

    compiled = _compiles(function, arguments, stops)
    if not all(json.loads(text) for text in gather(json.dumps(compiled), doing="to compile")):
        raise Stopped


def _compiles(function, arguments, stops):
    """Compiles; returns False if a request to stop came before that was done."""
    if stops is None:
        function.lower(*arguments).compile()
        return True
    if stops():
        return False

    call = background_calls.begin(lambda: function.lower(*arguments).compile(), "compiling")
    while not call.is_done(_LOOK_SECONDS):
        if stops():
            return False
    call.result()
    return True


def _told(failure, kinds):
    """Returns what is needed to raise a similar error elsewhere, as JSON data; None for None."""
    if failure is None:
        return None
    kind = next(kind for kind in kinds if isinstance(failure, kind))
    if error_causes.MayPass in kinds and error_causes.may_pass(failure):
        kind = error_causes.MayPass
    number = kinds.index(kind)
    if isinstance(failure, OSError) and failure.errno is not None:
        return [number, failure.errno, failure.strerror, failure.filename]
    return [number, str(failure) or type(failure).__name__]


def _like(told, kinds, where):
    """Returns the error that `_told` described, with `where` at the end of its reason."""
    number, *about = told
    if len(about) == 1:
        return kinds[number](about[0] + where)
    code, reason, path = about
    return OSError(code, f"{reason}{where}", path)
