# SPDX-License-Identifier: Apache-2.0
"""A folder that is complete or absent: it is written under another name and then renamed."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from electra_jax.host import safe_files


@contextlib.contextmanager
def new(path: str, what: str = "out") -> Iterator[str]:
    """Yields a folder to write into, which becomes `path` if the block ends without an error.

    After an error the folder is removed. Raises ValueError, with a message of one line, before
    anything is written: if `path` exists and is not an empty folder, or if what is written there
    could not be read back (`safe_files.check_path`). `what` names the setting in messages.
    """
    safe_files.check_path(path, what)
    path = os.path.abspath(path)
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
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
