# SPDX-License-Identifier: Apache-2.0
"""Files that are complete or absent, and checks of the names of folders.

write, write_parts  write under another name, flush, rename, and flush the folder
partial_name        that other name
move_aside          renames a file or folder that is damaged or not continued
check_path          refuses a folder that a run could not be read back from
check_no_address    refuses an address such as gs://bucket/run
is_address          tells one from a path of this machine
"""

import os
import re
import secrets
from collections.abc import Iterable

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKETS = ("gs", "s3", "az", "hf")  # orbax reads /gs/NAME as gs://NAME


def write(path: str | os.PathLike, data: bytes) -> None:
    """Writes a file; after a crash at any moment a reader finds the old file or the new one.

    The folder is flushed to the disk as well: data on the disk is lost after a power failure if the
    file's name is not there too.
    """
    write_parts(path, [data])


def write_parts(path: str | os.PathLike, parts: Iterable[bytes]) -> None:
    """As `write`, of parts that need not be in memory together."""
    path = os.fspath(path)
    partial = partial_name(path)

    try:
        with open(partial, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:  # the parts may raise anything
        if os.path.exists(partial):
            os.remove(partial)
        raise

    _sync_folder(os.path.dirname(path) or ".")


def partial_name(path: str) -> str:
    """Returns a new name beside PATH, for what is not complete yet; it ends in .partial.

    No other writer has it, on this machine or on another one that sees the folder.
    """
    return f"{path}.{secrets.token_hex(4)}.partial"


def move_aside(path: str, word: str) -> str:
    """Renames PATH to PATH.WORD, or PATH.WORD.1 if that name is taken; returns the new name."""
    target, number = f"{path}.{word}", 1
    while os.path.lexists(target):
        target, number = f"{path}.{word}.{number}", number + 1
    os.rename(path, target)
    return target


def is_address(path: str | os.PathLike) -> bool:
    """Returns whether a path is an address of any kind: gs://..., s3://..., https://..."""
    return _ADDRESS.match(os.fspath(path)) is not None


def check_no_address(
    path: str | os.PathLike, what: str, error: type[ValueError] = ValueError
) -> None:
    """Refuses an address: s3://bucket/run would become a local folder named `s3:`.

    So would gs:/bucket/run, which is what pathlib.Path makes of gs://bucket/run.

    Args:
      path: the folder or file to check.
      what: the flag or setting that named it, for the message: '--workdir'.
      error: raised with a message of one line.
    """
    path = os.fspath(path)
    if re.match(r"gs:/(?!/)", path):
        raise error(
            f"{what}={path!r} lacks a slash: gs://BUCKET/FOLDER; pathlib.Path takes it away, so"
            " give addresses as text"
        )
    if is_address(path):
        raise error(
            f"{what}={path!r} is an address of a kind that cannot be used here; give a path of this"
            " machine; workdirs, data.dir and init.from may be gs://BUCKET/FOLDER, data.vocab and"
            " --input gs://BUCKET/FILE"
        )


def check_path(path: str | os.PathLike, what: str, error: type[ValueError] = ValueError) -> None:
    """Refuses a folder whose checkpoints would be written elsewhere or not be found.

    The arguments are those of `check_no_address`.
    """
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
    except OSError:
        pass  # some network file systems cannot flush a folder; the data of the file is safe
    finally:
        os.close(handle)
