# SPDX-License-Identifier: Apache-2.0
"""A folder that is complete or absent: it is written under another name and then renamed."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

from electra_jax.host import error_causes, safe_files


@contextlib.contextmanager
def new(path: str, what: str = "out") -> Iterator[str]:
    """Yields a folder to write into, which becomes `path` if the block ends without an error.

    After an error the folder is removed. Raises ValueError, with a message of one line, before
    anything is written: if `path` exists and is not an empty folder, if it is a mount point, or if
    what is written there could not be read back (`safe_files.check_path`). `what` names the setting
    in messages. Raises OSError if the disk is full, whatever library met that.
    """
    safe_files.check_path(path, what)
    path = os.path.realpath(path)  # a link could not be replaced by a folder
    if os.path.ismount(path):
        raise ValueError(
            f"{path} is a mount point, which cannot be written as a whole; choose a folder in it,"
            f" such as {os.path.join(path, 'export')}"
        )
    if os.path.exists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ValueError(f"{path} is there already; choose another folder, or move it away")

    # In the same parent, since a rename must stay within one file system.
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    temporary = f"{path}.partial.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    os.mkdir(temporary)

    try:
        yield temporary
        if os.path.isdir(path):
            os.rmdir(path)  # it was empty
        os.rename(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, Exception) and error_causes.disk_full(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        raise
