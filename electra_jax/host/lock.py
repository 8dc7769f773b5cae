# SPDX-License-Identifier: Apache-2.0
"""One writer at a time: a lock that the operating system releases when its owner dies.

The locked file says which process holds it, so that a second run can be told.
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator

from electra_jax.host import causes


@contextlib.contextmanager
def hold(path: str, what: str) -> Iterator[None]:
    """Holds the lock file `path` while the block runs.

    Args:
      path: the lock file; its folder is made if it is missing.
      what: names the locked thing in the message.

    Raises causes.MayPass, one line, if another process holds the lock.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)

    # Mode "a+" neither empties the file nor requires it: its content belongs to the present owner.
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            file.seek(0)
            raise causes.MayPass(
                f"{what} is in use by another run ({_owner(file.read())}); stop that one or"
                " choose another folder"
            ) from busy

        file.truncate(0)
        file.write(
            json.dumps(
                {
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "since": time.strftime("%Y-%m-%d %H:%M:%S"),
                }
            )
        )
        file.flush()

        yield


def _owner(text):
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "which has not said who it is"
