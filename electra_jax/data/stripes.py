# SPDX-License-Identifier: Apache-2.0
"""Large compressed files: read once for all their stripes.

A compressed file cannot be read from its middle, so that each stripe would decompress all of it.
Instead the first process that needs a stripe reads the file to its end and writes the documents of
every stripe to a file of its own, while the others that need one wait:

    units/SOURCE-UNIT.stripes/    of the source and the first unit of the file, by their numbers
        lock                      is held by the process that writes
        STRIPE.zst                the documents, each with a NUL after it; then, as JSON, the counts

The files take about a third of the text, and go with the folder `units`. Documents come as from the
file itself, but without their NULs, which nobody keeps.
"""

import collections
import contextlib
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Iterator, Sequence

from electra_jax.data import planning, text, text_files
from electra_jax.host import safe_files

_CHUNK = 1 << 20  # bytes per read


def offer(tasks: Sequence[planning.UnitTask], units: str) -> None:
    """Makes the folders in which files are written of which several stripes are read.

    Only stripes that have such a folder are read from there. So whoever works in a copy of the
    prepared folder that is thrown away after each unit does not write 64 of them to read one.

    Args:
      tasks: all of a preparation, or all that are done in one copy of its folder.
      units: the folder of the units' files.
    """
    found = collections.Counter(_folder(task, units) for task in tasks if _is_shared(task.unit))
    for folder, stripes in found.items():
        if stripes > 1:
            os.makedirs(folder, exist_ok=True)


def withdraw(units: str) -> None:
    """Removes these folders; nobody may be reading."""
    for folder in glob.glob(os.path.join(glob.escape(units), "*.stripes")):
        shutil.rmtree(folder, ignore_errors=True)


def documents(
    task: planning.UnitTask,
    units: str,
    options: text.Options,
    counts: collections.Counter,
    *,
    write: bool = True,
) -> Iterator[str] | None:
    """The documents of a unit; None if they have to be read from its own file.

    Args:
      units: the folder of the units' files.
      write: whether to write the files of all stripes if they are not there yet.

    Raises ValueError, one line, if its file cannot be read.
    """
    if not _is_shared(task.unit) or not os.path.isdir(folder := _folder(task, units)):
        return None

    paths = [os.path.join(folder, f"{number:05d}.zst") for number in range(task.unit.stripes)]
    if not write and not os.path.exists(paths[-1]):
        return None
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(paths[-1]):
            _write(task.unit, paths, options)
    return text.kept(_read(paths[task.unit.stripe], counts), options, counts)


def _is_shared(unit):
    """Whether each stripe would decompress what the others have decompressed."""
    return isinstance(unit, text.FileUnit | text.FetchedUnit) and unit.is_read_whole


def _folder(task, units):
    first = task.unit_index - task.unit.stripe
    return os.path.join(units, f"{task.source_index}-{first}.stripes")


def _write(unit, paths, options):
    """Writes the files of all stripes; the last one is there only when all others are."""
    import pyarrow  # noqa: PLC0415 - takes 0.3 s, and most text has no stripes of this kind

    partial, counts = [safe_files.partial_name(path) for path in paths], collections.Counter()
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(pyarrow.CompressedOutputStream(pyarrow.OSFile(path, "wb"), "zstd"))
            for path in partial
        ]
        for number, document in enumerate(unit.all_documents(options, counts)):
            stripe = text_files.stripe_of(number, len(paths))
            data = document.replace("\0", "").encode("utf-8", "surrogatepass")
            streams[stripe].write(data + b"\0")

        # Of a file that is read stripe by stripe, the first one counts what is wrong with it.
        for stripe, stream in enumerate(streams):
            stream.write(json.dumps(counts if stripe == 0 else {}).encode())

    for before, after in zip(partial, paths):
        with open(before, "rb") as file:
            os.fsync(file.fileno())
        os.replace(before, after)


def _read(path, counts):
    """Yields the documents of one file. Raises ValueError, one line, if it is damaged."""
    import pyarrow  # noqa: PLC0415 - as above

    parts = []  # of a document whose end has not been read yet
    try:
        with pyarrow.CompressedInputStream(pyarrow.OSFile(path), "zstd") as stream:
            while chunk := stream.read(_CHUNK):
                first, *others = chunk.split(b"\0")
                parts.append(first)
                if others:
                    yield b"".join(parts).decode("utf-8", "surrogatepass")
                    yield from (one.decode("utf-8", "surrogatepass") for one in others[:-1])
                    parts = [others[-1]]
        counts.update(json.loads(b"".join(parts)))
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None):
            raise  # of the system: the file may be whole
        raise ValueError(
            f"{path} is damaged ({text_files.one_line(error)}); delete {os.path.dirname(path)} and"
            " run the same command again"
        ) from error
