# SPDX-License-Identifier: Apache-2.0
"""Large files: read once for all their stripes.

By itself each stripe would read the whole file for every K-th block of documents. So the first
process that needs a stripe reads the file to its end, while the others that need one wait. Of a
file that is not compressed it notes where each block begins, and each stripe then reads its own
blocks alone. A compressed file cannot be read from its middle: there it writes the documents of
every stripe to a file of its own.

    units/SOURCE-UNIT.stripes/    of the source and the first unit of the file, by their numbers
        lock                      is held by the process that reads the file
        blocks-CHANGED.npz        the blocks, and what the file counts; or, of a compressed file:
        STRIPE.zst                the documents, each with a NUL after it; then, as JSON, the counts

The .zst take about a third of the text's size. Both are removed with the folder `units`. Documents
are those of the file itself, except that those of a .zst lack their NULs, which are dropped later
in any case.
"""

import collections
import contextlib
import glob
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence

import numpy as np

from electra_jax.data import planning, text, text_files
from electra_jax.data.text_options import TextOptions
from electra_jax.host import lock as lock_lib
from electra_jax.host import safe_files

_CHUNK = 1 << 20  # bytes per read


def offer(tasks: Sequence[planning.UnitTask], units: str) -> None:
    """Makes the folders for files of which several stripes are read.

    Stripes without such a folder read the whole file by themselves. A worker whose copy of the
    prepared folder is thrown away after each unit has none: it would write 64 stripes to use one.

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
    options: TextOptions,
    counts: collections.Counter,
    *,
    write: bool = True,
) -> Iterator[str] | None:
    """The documents of a unit; None if it has to read the whole file by itself.

    Args:
      units: the folder of the units' files.
      write: whether to read the file for all of its stripes if nobody has yet.

    Raises ValueError, one line, if its file cannot be read.
    """
    if not _is_shared(task.unit) or not os.path.isdir(folder := _folder(task, units)):
        return None

    if text_files.is_compressed(task.unit.name):
        return _decompressed(task.unit, folder, options, counts, write)
    return _of_blocks(task.unit, folder, options, counts, write)


def _is_shared(unit):
    """Whether each stripe would read what the others have read."""
    return isinstance(unit, text.FileUnit | text.FetchedUnit) and unit.is_shared


def _of_blocks(unit, folder, options, counts, write):
    """The documents of one stripe of a file that is not compressed; None as `documents`."""
    path = os.path.join(folder, f"blocks-{_changed(unit)}.npz")
    if not write and not os.path.exists(path):
        return None

    file = unit.here().path
    with _locked(folder):
        if not os.path.exists(path):
            _note(file, path, options)
    noted = _noted(path)

    # Of a file that is read stripe by stripe, the first one counts what is wrong with it.
    if unit.stripe == 0:
        counts.update(json.loads(str(noted["counts"])))
    mine = noted["blocks"][unit.stripe :: unit.stripes]
    parts = [text_files.FilePart(*block) for block in mine.tolist()]
    found = text_files.documents(file, options, collections.Counter(), parts)
    return text.kept(found, options, counts)


def _note(file, path, options):
    """Writes where the blocks of a file begin, and what is wrong with it."""
    counts, data = collections.Counter(), io.BytesIO()
    blocks = text_files.blocks(file, options, counts)
    np.savez(data, blocks=blocks, counts=json.dumps(counts))
    safe_files.write(path, data.getvalue())


def _noted(path):
    """What `_note` has written. Raises ValueError, one line, if it is damaged."""
    try:
        with open(path, "rb") as file, np.load(file) as noted:
            return {name: noted[name] for name in ("blocks", "counts")}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error


def _changed(unit):
    """When its file was last changed, in nanoseconds; 0 of a file from elsewhere.

    An interruption may have left notes of an older one, and each machine may have a copy of its own
    with a time of its own.
    """
    return os.stat(unit.path).st_mtime_ns if isinstance(unit, text.FileUnit) else 0


def _decompressed(unit, folder, options, counts, write):
    """The documents of one stripe of a compressed file; None as `documents`."""
    paths = [os.path.join(folder, f"{number:05d}.zst") for number in range(unit.stripes)]
    if not write and not os.path.exists(paths[-1]):
        return None
    with _locked(folder):
        if not os.path.exists(paths[-1]):
            _write(unit, paths, options)
    return text.kept(_read(paths[unit.stripe], counts), options, counts)


@contextlib.contextmanager
def _locked(folder):
    """Waits until no other process reads the file of this folder."""
    with open(os.path.join(folder, "lock"), "w") as lock:
        lock_lib.take(lock)  # without file locks several processes may read it, needlessly
        yield


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
        whole = text_files.documents(unit.here().path, options, counts)
        for number, document in enumerate(whole):
            stripe = text_files.stripe_of(number, len(paths))
            data = document.replace("\0", "").encode("utf-8", "surrogatepass")
            streams[stripe].write(data + b"\0")

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
        raise _damaged(path, error) from error


def _damaged(path, error):
    """The error to raise for a file of ours."""
    return ValueError(
        f"{path} is damaged ({text_files.one_line(error)}); delete {os.path.dirname(path)} and run"
        " the same command again"
    )
