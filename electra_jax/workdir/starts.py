# SPDX-License-Identifier: Apache-2.0
"""The starts of a run: one line of `starts.jsonl` each, with versions, devices and processes.

A run may go on with another library, another commit or on other devices. What it has cost can be
told only if each start has said what it ran on.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

NAME = "starts.jsonl"


def note(workdir: str, start: Mapping[str, Any]) -> None:
    """Adds a start. It needs `step`, the step from which it goes on, and `device_count`."""
    path = os.path.join(workdir, NAME)
    line = json.dumps(dict(start), ensure_ascii=False) + "\n"
    with open(path, "ab+") as file:
        if file.tell() and not _ends_whole(file):
            line = "\n" + line  # a start that was killed while it wrote
        file.write(line.encode())


def read(workdir: str) -> list[dict[str, Any]]:
    """The starts in their order. Lines that hold no start are left out."""
    path = os.path.join(workdir, NAME)
    if not os.path.exists(path):
        return []

    found = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                start = json.loads(line)
                if isinstance(start["step"], int) and isinstance(start["device_count"], int):
                    found.append(start)
            except (ValueError, KeyError, TypeError):
                continue
    return found


def device_seconds(
    intervals: Sequence[tuple[int, float]], starts: Sequence[Mapping]
) -> float | None:
    """Seconds of training times the number of devices of the start that trained.

    Args:
      intervals: (last step, seconds) of each training row of metrics.jsonl.
      starts: as `read` returns them.

    Returns None if there are no intervals, or if the start of one of them is not known.
    """
    total = 0.0
    for step, seconds in intervals:
        # Rows after the step of a later start were dropped when it began.
        devices = [start["device_count"] for start in starts if start["step"] < step]
        if not devices:
            return None
        total += seconds * devices[-1]
    return total if intervals else None


def _ends_whole(file) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
