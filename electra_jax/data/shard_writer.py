# SPDX-License-Identifier: Apache-2.0
"""Writes the shards of a prepared folder, in the format that `records` describes and reads.

A shard is written under another name and renamed when all its lanes are on the disk, so a file
under its own name is always complete.
"""

import os
import zlib
from typing import Any

import numpy as np

from electra_jax.data import records
from electra_jax.host import safe_files

SHARD_ROWS = 65_536  # maximum per shard


class ShardWriter:
    """Writes the rows of one split of one unit of text, as shards of `shard_rows` rows each."""

    def __init__(self, directory: str, name: str, shard_rows: int = SHARD_ROWS):
        self._directory = directory
        self._name = name
        self._shard_rows = shard_rows

        self._files: dict[str, Any] = {}  # lane -> open file of the shard under way
        self._partial: dict[str, str] = {}  # lane -> its name
        self._rows = 0
        self._crc: dict[str, int] = {}
        self._shards: list[records.Shard] = []
        os.makedirs(directory, exist_ok=True)

    def write(self, ids_BL: np.ndarray, marks_BL: np.ndarray) -> None:
        """Appends rows."""
        while len(ids_BL):
            if not self._files:
                self._begin()

            count = self._shard_rows - self._rows
            for lane, rows in zip(records.LANES, (ids_BL[:count], marks_BL[:count])):
                data = rows.tobytes()
                self._files[lane].write(data)
                self._crc[lane] = zlib.crc32(data, self._crc[lane])

            self._rows += len(ids_BL[:count])
            ids_BL, marks_BL = ids_BL[count:], marks_BL[count:]
            if self._rows == self._shard_rows:
                self._finish()

    def close(self) -> tuple[records.Shard, ...]:
        """Finishes the last shard and returns all shards."""
        if self._files:
            self._finish()
        return tuple(self._shards)

    def discard(self) -> None:
        """Removes the unfinished shard. Finished ones stay; the next run overwrites them."""
        for lane, file in self._files.items():
            try:
                file.close()
            finally:  # closing flushes, which fails again on a full disk
                os.remove(self._partial[lane])
        self._files = {}

    def _shard_name(self):
        return f"{self._name}-{len(self._shards):03d}"

    def _path(self, lane):
        return os.path.join(self._directory, f"{self._shard_name()}.{lane}")

    def _begin(self):
        self._partial = {lane: safe_files.partial_name(self._path(lane)) for lane in records.LANES}
        self._files = {lane: open(self._partial[lane], "wb") for lane in records.LANES}
        self._rows, self._crc = 0, dict.fromkeys(records.LANES, 0)

    def _finish(self):
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()

        # Only now, with all lanes on the disk, do the files get their names.
        for lane in records.LANES:
            os.replace(self._partial[lane], self._path(lane))

        self._shards.append(records.Shard(self._shard_name(), self._rows, self._crc))
        self._files = {}
