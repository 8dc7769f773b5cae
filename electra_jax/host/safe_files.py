# SPDX-License-Identifier: Apache-2.0
"""Files that are there as a whole or not at all, and the names that folders may have.

write               data under another name, flushed, renamed, and the folder flushed
move_aside          what is damaged or not continued, to a name that is free
check_path          refuses a folder that a run could not be read back from
check_no_address    refuses an address in place of a folder
"""

import os
import re

_BUCKETS = ("gs", "s3", "az", "hf")  # orbax reads /gs/NAME as gs://NAME


def write(path: str | os.PathLike, data: bytes) -> None:
    """Writes a file: after a crash at any moment a reader finds the old one or the new one.

    The folder is written to the disk as well, since a name that is not on it is lost with the
    power, however safe the data behind it.
    """
    path = os.fspath(path)
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.remove(partial)
        raise
    _sync_folder(os.path.dirname(path) or ".")


def move_aside(path: str, word: str) -> str:
    """Renames PATH to PATH.WORD, or PATH.WORD.1 where that is taken; returns the new name."""
    target, number = f"{path}.{word}", 1
    while os.path.lexists(target):
        target, number = f"{path}.{word}.{number}", number + 1
    os.rename(path, target)
    return target


def check_no_address(
    path: str | os.PathLike, what: str, error: type[ValueError] = ValueError
) -> None:
    """Raises `error`, one line, for gs://bucket/run, of which a folder `gs:` would be made here.

    Args:
      what: says whose it is, as '--workdir'.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", os.fspath(path)):
        raise error(
            f"{what}={os.fspath(path)!r} is an address, and only folders of this machine can be"
            " written; give a folder, and copy it from there"
        )


def check_path(path: str | os.PathLike, what: str, error: type[ValueError] = ValueError) -> None:
    """Raises `error`, one line, for a folder in which checkpoints would be lost or not be found."""
    path = os.fspath(path)
    check_no_address(path, what, error)
    whole = os.path.abspath(path)
    parts = whole.split(os.sep)
    if "\\" in whole:
        raise error(
            f"{what}={path} has a backslash in it or above it, which tensorstore takes for a slash:"
            " checkpoints would be written elsewhere; choose a path without"
        )
    if len(parts) > 2 and parts[1] in _BUCKETS:
        raise error(
            f"{what}={path!r} lies under /{parts[1]}, which orbax takes for the bucket"
            f" {parts[1]}://{parts[2]}; mount it under another name"
        )
    try:
        whole.encode()
    except UnicodeEncodeError as unreadable:
        raise error(
            f"{what}={path!r} is not UTF-8, in which tensorstore names files; rename the folder"
        ) from unreadable
    if "\0" in whole:
        raise error(f"{what}={path!r} holds a NUL byte, which no path may; give another")


def _sync_folder(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems cannot; the file itself is safe
        pass
    finally:
        os.close(handle)
