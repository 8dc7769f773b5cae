# SPDX-License-Identifier: Apache-2.0
"""How much of the text that lies elsewhere has been downloaded to this machine.

    sources  ->  text.files  ->  Downloads  ->  words   '4 of 41 files, 1.2 of 11.6 GB downloaded'

The caches on the disk are asked, so it does not matter which process downloads, and what an earlier
preparation has left there counts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from electra_jax.data import executors, planning, text, text_hub, text_remote

_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


class Downloads:
    """The files of some sources: how many there are, and how many of them are here."""

    def __init__(self, files: Iterable[text_hub.HubFile | text_remote.RemoteFile]):
        """Takes the listed files; one that is named twice counts once."""
        self._missing = dict.fromkeys(files)
        self._count, self._all = len(self._missing), sum(file.bytes for file in self._missing)

    def summary(self) -> str:
        """How many files and bytes are here, of how many; '' if there are none to download."""
        if not self._count:
            return ""

        here = {file: file.bytes_here() for file in self._missing}
        self._missing = {file: None for file, size in here.items() if size < file.bytes}
        left = sum(file.bytes - here[file] for file in self._missing)

        unit, size = _byte_unit(self._all)
        return (
            f"{self._count - len(self._missing)} of {self._count} files,"
            f" {(self._all - left) / size:.1f} of {self._all / size:.1f} {unit} downloaded"
        )

    def is_whole(self) -> bool:
        """Whether all were here when `summary` was called last."""
        return not self._missing


def of_sources(data_source: str) -> list[str]:
    """A line for each source whose files are downloaded: its name, and how much of it is here.

    Asks the servers, see `text.files`.
    """
    listed = [(source.spec, text.files(source)) for source in text.parse(data_source)]
    return [f"{spec}: {Downloads(files).summary()}" for spec, files in listed if files]


def about_to_come(unit: Any) -> str:
    """A message if reading this unit of text first downloads its file; '' if the file is local.

    Without it a single process would be silent during the download.
    """
    return of_file(unit.file) if isinstance(unit, text.FetchedUnit) else ""


def of_file(file: text_hub.HubFile | text_remote.RemoteFile) -> str:
    """Says that a file is downloaded before it is read; '' if it is here."""
    if file.bytes_here() >= file.bytes:
        return ""
    name, size = _byte_unit(file.bytes)
    return f"downloading {file.name}, {file.bytes / size:.1f} {name}"


def _byte_unit(size):
    """(name, bytes) of the unit in which a size is told."""
    return next((pair for pair in _BYTE_UNITS if size >= pair[1]), _BYTE_UNITS[-1])


def so_far(tasks: Sequence[planning.UnitTask], workers: executors.Executor) -> Callable[[], str]:
    """Returns what tells how much of the text of these tasks is here; '' once all of it is.

    It is always '' if the tasks are done on other machines.
    """
    units = [task.unit for task in workers.followed(tasks)] if workers.is_local else []
    found = Downloads(unit.file for unit in units if isinstance(unit, text.FetchedUnit))

    def summary():
        if found.is_whole():
            return ""
        said = found.summary()
        return "" if found.is_whole() else said

    return summary
