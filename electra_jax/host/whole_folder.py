# SPDX-License-Identifier: Apache-2.0
"""A folder that is there as a whole or not at all: written beside its place, then renamed."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from electra_jax.host import safe_files


@contextlib.contextmanager
def new(path: str) -> Iterator[str]:
    """Gives a folder to write into, which becomes `path` if the block ends well, else is removed.

    Raises ValueError, one line, before anything is written: something is there already, or it
    could not be read back from there.
    """
    safe_files.check_path(path, "the folder to write")
    path = os.path.abspath(path)
    if os.path.exists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ValueError(f"{path} is there already; choose another folder, or move it away")
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
