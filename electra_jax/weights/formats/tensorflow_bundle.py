# SPDX-License-Identifier: Apache-2.0
"""Reading the checkpoints of TensorFlow's Saver (version 2) without TensorFlow.

    PREFIX.index                  a sorted table: tensor's name -> file, offset, shape, checksum
    PREFIX.data-00000-of-00001    the tensors' bytes, one after the other

The table has LevelDB's format: blocks of entries, in which each key leaves out the beginning that
it shares with the key before; a block that lists the blocks; and a footer with the place of that
one. The values are protocol buffers. Sources: tensorflow/core/util/tensor_bundle,
tensorflow/core/lib/io/table_format.txt. `google` gives the tensors our names.
"""

import dataclasses
import os
import re
import struct
from collections.abc import Iterator, Mapping

import numpy as np

from electra_jax.weights.formats import checksums

_MAGIC = 0xDB4775248B80FB57  # the last eight bytes of a table
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes after each block: its compression and a checksum
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 14: "bfloat16",
           19: "<f2"}  # fmt: skip


class BundleError(ValueError):
    """Says in one line what is wrong with a file."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Place, shape and checksum of one tensor."""

    dtype: str  # NumPy's name
    shape: tuple[int, ...]
    shard: int
    offset: int  # bytes
    size: int  # bytes
    checksum: int  # of those bytes: CRC-32C, masked


class Bundle(Mapping):
    """A mapping from name to array. Each access reads the array and compares its checksum."""

    def __init__(self, prefix: str):
        """Reads the table of PREFIX.index. Raises BundleError."""
        self.prefix = prefix
        path = f"{prefix}.index"
        try:
            with open(path, "rb") as file:
                pairs = dict(_table(file.read()))
            header = _message(pairs.pop(b"", b""))
            found = {key.decode(): _entry(value) for key, value in pairs.items()}
        except FileNotFoundError as error:
            raise BundleError(f"{path} is not there; give a checkpoint's path without its end,"
                              " such as FOLDER/model.ckpt-1000000") from error  # fmt: skip
        except (_Damaged, IndexError, TypeError, struct.error, ValueError) as error:
            raise BundleError(f"{path} is no TensorFlow checkpoint index: {error}") from error
        if not header:
            raise BundleError(f"{path} is no TensorFlow checkpoint index: it has no header")
        if header.get(2, [0])[0]:
            raise BundleError(f"{path} was written on a big-endian machine, which is not supported")

        self._shards = header.get(1, [1])[0]
        self.entries = {name: entry for name, entry in found.items() if entry is not None}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # the default of Mapping would read the tensor

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        path = f"{self.prefix}.data-{entry.shard:05d}-of-{self._shards:05d}"
        try:
            with open(path, "rb") as file:
                file.seek(entry.offset)
                data = file.read(entry.size)
        except FileNotFoundError as error:
            raise BundleError(
                f"{path} is not there; it belongs beside {self.prefix}.index"
            ) from error

        wanted = int(np.prod(entry.shape)) * (2 if entry.dtype == "bfloat16" else
                                              np.dtype(entry.dtype).itemsize)  # fmt: skip
        if len(data) != entry.size or entry.size != wanted:
            raise BundleError(
                f"{path} ends inside {name}: {len(data)} of {wanted} bytes; copy it anew"
            )

        if checksums.masked(checksums.crc32c(data)) != entry.checksum:
            raise BundleError(
                f"{path} is damaged inside {name}: its checksum differs; copy it anew"
            )

        if entry.dtype == "bfloat16":
            bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(entry.shape)
        return np.frombuffer(data, entry.dtype).reshape(entry.shape)


def prefix_of(path: str) -> str | None:
    """Returns the prefix of a checkpoint, given its prefix, one of its files, or its folder.

    In a folder the newest checkpoint is chosen: the one that the file `checkpoint` names, or,
    without that file, the one with the largest number. Returns None if there is no checkpoint.
    """
    for end in (".index", ".meta"):
        if path.endswith(end) and os.path.exists(f"{path.removesuffix(end)}.index"):
            return path.removesuffix(end)
    if os.path.exists(f"{path}.index"):
        return path
    if shard := re.fullmatch(r"(.*)\.data-\d{5}-of-\d{5}", path):
        return shard[1] if os.path.exists(f"{shard[1]}.index") else None

    if not os.path.isdir(path):
        return None
    found = [name.removesuffix(".index") for name in os.listdir(path) if name.endswith(".index")]
    if not found:
        return None
    try:
        with open(os.path.join(path, "checkpoint"), encoding="utf-8") as file:
            named = re.search(r'^model_checkpoint_path: "(.*)"', file.read(), re.MULTILINE)
    except (FileNotFoundError, UnicodeDecodeError):
        named = None

    if named and os.path.basename(named[1]) in found:
        return os.path.join(path, os.path.basename(named[1]))
    return os.path.join(path, max(found, key=lambda name: (_number(name), name)))


class _Damaged(Exception):
    """Part of a table is not as the format says."""


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) of a whole table, in the order of keys."""
    if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
        raise _Damaged("it does not end as a table does")
    footer = data[-_FOOTER:]
    _, place = _varint(footer, 0)  # skips the place of the filter block, which is empty
    _, place = _varint(footer, place)
    offset, place = _varint(footer, place)
    size, _ = _varint(footer, place)

    for _, handle in _block(data, offset, size):
        offset, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        yield from _block(data, offset, size)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) of one block."""
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + _TRAILER]
    if len(block) != size or len(trailer) != _TRAILER:
        raise _Damaged("a block ends too early")
    if trailer[0]:
        raise _Damaged(f"a block is compressed by method {trailer[0]}, which checkpoints never are")
    if (
        checksums.masked(checksums.crc32c(block + trailer[:1]))
        != struct.unpack("<I", trailer[1:])[0]
    ):
        raise _Damaged("a block's checksum differs; copy the file anew")

    restarts = struct.unpack("<I", block[-4:])[0]
    end, place, key = size - 4 - 4 * restarts, 0, b""

    while place < end:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + own]
        place += own
        yield key, block[place : place + length]
        place += length


def _entry(value: bytes) -> Entry | None:
    """Reads one BundleEntryProto; returns None for strings and others that are not numbers."""
    fields = _message(value)
    number = fields.get(1, [0])[0]
    if number not in _DTYPES:
        return None
    dims = _message(fields.get(2, [b""])[0]).get(2, [])
    return Entry(
        dtype=_DTYPES[number],
        shape=tuple(_message(dim).get(1, [0])[0] for dim in dims),
        shard=fields.get(3, [0])[0],
        offset=fields.get(4, [0])[0],
        size=fields.get(5, [0])[0],
        checksum=fields.get(6, [0])[0],
    )


def _message(data: bytes) -> dict[int, list]:
    """Reads a protocol buffer as {field: values}: numbers, or bytes for strings and messages."""
    fields: dict[int, list] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(data, place)
        elif kind == 2:
            length, place = _varint(data, place)
            value, place = data[place : place + length], place + length
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            value = int.from_bytes(data[place : place + width], "little")
            place += width
        else:
            raise _Damaged(f"a field of kind {kind}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns (number, the place after it)."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def _number(name):
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else -1
