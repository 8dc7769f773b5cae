# SPDX-License-Identifier: Apache-2.0
"""How a process ends at once, from any thread."""

import contextlib
import os
import sys

GOES_ON = "the same command goes on from the newest checkpoint"


def exit_now(text: str, code: int) -> None:
    """Ends this process from any thread, after printing one line if `text` is not empty.

    Nothing else is cleaned up. No work is lost by that, because the files of a run are complete at
    every moment.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()

    if text:
        # Not through sys.stderr: the main thread may hold the lock of that file object.
        with contextlib.suppress(OSError):
            os.write(2, f"error: {' '.join(text.split())}\n".encode())

    os._exit(code)
