# SPDX-License-Identifier: Apache-2.0
"""Signs of life: lines that are repeated while something takes long, and the count they tell."""

import contextlib
import threading
import time
from typing import Any

_PROGRESS_SECONDS = 10
_counted: Any = None  # the count of this process and of all that work with it


def count_in(characters):
    global _counted  # noqa: PLW0603 - a shared value reaches a worker only as it starts
    _counted = characters


def count_characters(number):
    if _counted is not None:
        with _counted.get_lock():
            _counted.value += number


@contextlib.contextmanager
def repeated(progress, words):
    """Tells `words(seconds)` every so often while the block runs, whatever the block waits for."""
    done, began = threading.Event(), time.monotonic()

    def tell():
        while not done.wait(_PROGRESS_SECONDS):
            progress(words(time.monotonic() - began))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
