# SPDX-License-Identifier: Apache-2.0
"""How a process ends: once its work is done, or at once from any thread."""

import contextlib
import os
import sys
import threading

from electra_jax.host import logs

CONTINUES = "the same command continues from the newest checkpoint"
BEGINS_AGAIN = "there is no checkpoint yet, so the same command begins again"
# Modules whose threads nobody waits for.
_LEFT_BEHIND = ("orbax.", "electra_jax.host.background_calls")


def leave(code: int) -> None:
    """Ends this process; called in the main thread when its work is done and its result is told.

    Python waits for all threads. After a save that failed there may be threads of orbax that wait
    up to five minutes for a folder that nobody will make, and after a signal a program may still be
    compiled. They are left behind.
    """
    threads = threading.enumerate()
    if any(type(thread).__module__.startswith(_LEFT_BEHIND) for thread in threads):
        exit_now("", code)
    sys.exit(code)


def exit_now(text: str, code: int) -> None:
    """Ends this process from any thread, after one line on the console and in open log files.

    An empty `text` writes none. Nothing else is cleaned up. No work is lost by that, because the
    files of a run are complete at every moment.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()

    if text:
        # Not through sys.stderr: the main thread may hold the lock of that file object.
        with contextlib.suppress(OSError):
            os.write(2, f"error: {' '.join(text.split())}\n".encode())
        logs.append(" ".join(text.split()))

    os._exit(code)
