# SPDX-License-Identifier: Apache-2.0
"""Progress lines that are repeated during long work, and the count of tokenised characters.

The count is a value in shared memory. Each process of a preparation adds the characters that it
has sent through the tokenizer, and the parent prints the sum. This shows progress even while one
unit takes minutes.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_PROGRESS_SECONDS = 10
_counted: Any = None  # multiprocessing.Value shared by all processes of a preparation, or None


def count_in(characters: Any) -> None:
    """Sets the shared value to which this process adds the characters that it tokenises."""
    global _counted  # noqa: PLW0603 - a shared value reaches a worker only as it starts
    _counted = characters


def count_characters(number: int) -> None:
    """Adds to the shared count; does nothing outside of a preparation."""
    if _counted is not None:
        with _counted.get_lock():
            _counted.value += number


@contextlib.contextmanager
def repeated(progress: Callable[[str], Any], make_line: Callable[[float], str]) -> Iterator[None]:
    """Calls `progress(make_line(seconds))` every 10 seconds while the block runs.

    A thread does it, so the lines come even if the block only waits. `make_line` gets the seconds
    since the beginning of the block and returns the line.
    """
    done, began = threading.Event(), time.monotonic()

    def tell():
        while not done.wait(_PROGRESS_SECONDS):
            progress(make_line(time.monotonic() - began))

    # A daemon: it must not keep the process alive.
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()

    try:
        yield
    finally:
        done.set()
        thread.join()
