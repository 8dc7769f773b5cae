# SPDX-License-Identifier: Apache-2.0
"""The end of a process from any thread, with one line."""

import contextlib
import os
import sys

GOES_ON = "the same command goes on from the newest checkpoint"


def exit_now(text: str, code: int) -> None:
    """Ends this process from any thread, with one line if there is one; nothing else is undone.

    What a run keeps is whole at every moment, so nothing is lost.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    if text:
        # Not through a file object, whose lock the main thread may hold.
        with contextlib.suppress(OSError):
            os.write(2, f"error: {' '.join(text.split())}\n".encode())
    os._exit(code)
