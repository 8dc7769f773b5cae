# SPDX-License-Identifier: Apache-2.0
"""One writer at a time: a lock that the operating system releases when its owner dies.

The locked file says which process holds it, so that a second run can be told.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from absl import logging

from electra_jax.host import error_causes, lock_owner

# What flock answers on Lustre without `-o flock`, NFS without lockd, and some FUSE mounts.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
# Why a folder can never be made at a path.
_NEVER = (
    errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENAMETOOLONG,
)  # fmt: skip


@contextlib.contextmanager
def hold(path: str, what: str) -> Iterator[None]:
    """Holds the lock file `path` while the block runs.

    Args:
      path: the lock file; its folder is made if it is missing.
      what: names the locked thing in the message.

    Raises error_causes.MayPass, one line, if another process holds the lock, and ValueError if the
    folder can be neither found nor made.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except OSError as error:
        if error.errno not in _NEVER:
            raise
        raise ValueError(f"{what} cannot be made: {error.strerror}; choose another") from error

    # Mode "a+" neither empties the file nor requires it: its content belongs to the present owner.
    with open(path, "a+", encoding="utf-8") as file:
        try:
            locked, busy = take(file, wait=False), None
        except BlockingIOError as error:
            locked, busy = False, error

        file.seek(0)
        owner = file.read()
        if busy or (not locked and _lives_here(owner)):
            raise error_causes.MayPass(
                f"{what} is in use by another run ({_owner(owner)}); stop that one or choose"
                " another folder"
            ) from busy
        if not locked:
            _warn(os.path.dirname(os.path.abspath(path)))

        file.truncate(0)
        file.write(json.dumps({**lock_owner.me(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}))
        file.flush()

        try:
            yield
        finally:
            if not locked:
                file.truncate(0)


def take(file: Any, wait: bool = True) -> bool:
    """Locks an open file until it is closed; False if its file system has no locks.

    Args:
      file: a file object, or its number.
      wait: whether to wait for who holds the lock now. If not, BlockingIOError is raised.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


@functools.cache
def _warn(folder):
    logging.warning(
        "the file system of %s has no locks: see to it that no other run uses this folder", folder
    )


def _lives_here(text):
    """Whether the owner that a lock file names is another process of this machine, and lives.

    Without locks that is all that can be known of it.
    """
    try:
        owner = json.loads(text)
        return lock_owner.is_here(owner) and lock_owner.runs(
            int(owner["pid"]), str(owner["started"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _owner(text):
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "which has not said who it is"
