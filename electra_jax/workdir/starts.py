# SPDX-License-Identifier: Apache-2.0
"""The starts of a run: one line of `starts.jsonl` each, with versions, devices and processes.

A run may continue with another library, another commit or on other devices. What it has cost can be
told only if each start has said what it ran on.

A line `{"saved": STEP}` behind a start says that this start has a checkpoint on disk. Where there
is none later, it is gone: neither the settings, which may change, nor the metrics tell that.

A line `{"imported_from": NAME}` names the weights that lay in a new workdir before any start.
"""

import bisect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NAME = "starts.jsonl"


def note(workdir: str, start: Mapping[str, Any]) -> None:
    """Adds a start. It needs `step`, the step from which it continues, and `device_count`."""
    _add(workdir, start)


def note_saved(workdir: str, step: int) -> None:
    """Adds that the present start has a checkpoint on disk, that of this step."""
    _add(workdir, {"saved": step})


def note_imported(workdir: str, name: str) -> None:
    """Adds the name of the weights that were imported into a new workdir."""
    _add(workdir, {"imported_from": name})


def imported_from(workdir: str) -> str | None:
    """The name of the weights that were imported into the workdir; None if none were."""
    names = (line.get("imported_from") for line in _lines(workdir))
    return next((name for name in names if isinstance(name, str)), None)


def read(workdir: str) -> list[dict[str, Any]]:
    """The starts in their order. Lines that hold no start are left out."""
    return [line for line in _lines(workdir) if _is_start(line)]


def has_saved(workdir: str) -> bool:
    """Whether the last start had a checkpoint on disk: it continued from one, or it saved one.

    Earlier starts do not count: if the last began anew, what they had saved was gone already.
    """
    saved = False
    for line in _lines(workdir):
        saved = line["step"] > 0 if _is_start(line) else saved or "saved" in line
    return saved


def device_seconds(
    intervals: Sequence[tuple[int, float]], starts: Sequence[Mapping]
) -> float | None:
    """Seconds of training times the number of devices of the start that trained.

    Args:
      intervals: (last step, seconds) of each training row of metrics.jsonl.
      starts: as `read` returns them.

    Returns None if there are no intervals, or if the start of one of them is not known.
    """
    # Rows after the step of a later start were dropped when it began, so these steps only grow.
    begins: list[int] = []
    devices: list[int] = []
    for start in starts:
        while begins and begins[-1] >= start["step"]:
            begins.pop()
            devices.pop()
        begins.append(start["step"])
        devices.append(start["device_count"])

    total = 0.0
    for step, seconds in intervals:
        place = bisect.bisect_left(begins, step)
        if not place:
            return None
        total += seconds * devices[place - 1]
    return total if intervals else None


def _lines(workdir) -> Iterator[dict[str, Any]]:
    """The lines that hold an object of JSON."""
    path = os.path.join(workdir, NAME)
    if not os.path.exists(path):
        return

    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def _is_start(line):
    return all(isinstance(line.get(name), int) for name in ("step", "device_count"))


def _add(workdir, about):
    line = json.dumps(dict(about), ensure_ascii=False) + "\n"
    with open(os.path.join(workdir, NAME), "ab+") as file:
        if file.tell() and not _ends_whole(file):
            line = "\n" + line  # a start that was killed while it wrote
        file.write(line.encode())


def _ends_whole(file) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
