# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as TensorFlow's Saver writes them (version 2), read without TensorFlow.

    PREFIX.index                  a sorted table: a tensor's name -> where it lies, shape, checksum
    PREFIX.data-00000-of-00001    the tensors' bytes, one after the other

The table is LevelDB's: blocks of entries whose keys leave out what they share with the key before,
a block of blocks, and a footer that says where that is. Its values are protocol buffers. Formats:
tensorflow/core/util/tensor_bundle, tensorflow/core/lib/io/table_format.txt.
"""

import dataclasses
import os
import re
import struct
from collections.abc import Iterator, Mapping

import numpy as np

_MAGIC = 0xDB4775248B80FB57  # the last eight bytes of a table
_FOOTER = 48
_TRAILER = 5  # behind each block: its compression and a checksum
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 14: "bfloat16",
           19: "<f2"}  # fmt: skip
_BFLOAT16 = 14


class BundleError(ValueError):
    """What is wrong with a file, in one line."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where one tensor lies."""

    dtype: str  # NumPy's name
    shape: tuple[int, ...]
    shard: int
    offset: int  # bytes
    size: int  # bytes
    checksum: int  # of those bytes: CRC-32C, masked


class Bundle(Mapping):
    """{name: array}; an array is read, and its checksum compared, when it is asked for."""

    def __init__(self, prefix: str):
        """Reads the table of PREFIX.index. Raises BundleError."""
        self.prefix = prefix
        path = f"{prefix}.index"
        try:
            with open(path, "rb") as file:
                pairs = dict(_table(file.read()))
        except FileNotFoundError as error:
            raise BundleError(f"{path} is not there; give a checkpoint's path without its end,"
                              " such as FOLDER/model.ckpt-1000000") from error  # fmt: skip
        except (_Damaged, IndexError, struct.error, ValueError) as error:
            raise BundleError(f"{path} is no TensorFlow checkpoint index: {error}") from error
        if b"" not in pairs:
            raise BundleError(f"{path} is no TensorFlow checkpoint index: it has no header")
        header = _message(pairs.pop(b""))
        if header.get(2, [0])[0]:
            raise BundleError(f"{path} was written on a big-endian machine, which is not supported")
        self._shards = header.get(1, [1])[0]
        self.entries = {}
        for key, value in pairs.items():
            entry = _entry(value)
            if entry is not None:
                self.entries[key.decode()] = entry

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # a Mapping would read the tensor to see

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
        if _masked(crc32c(data)) != entry.checksum:
            raise BundleError(
                f"{path} is damaged inside {name}: its checksum differs; copy it anew"
            )
        if entry.dtype == "bfloat16":
            bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(entry.shape)
        return np.frombuffer(data, entry.dtype).reshape(entry.shape)


def prefix_of(path: str) -> str | None:
    """The newest checkpoint's prefix for a folder or for any of a checkpoint's files; None: none.

    A folder's file `checkpoint` names it; without that file the largest number wins.
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


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum of some bytes.

    Few bytes go through the table of 256 one by one. Many are cut into rows of equal length, the
    rows' checksums computed side by side, and then joined by what zeros do to a checksum.
    """
    rows = min(1 << 14, len(data) // 1024)
    if rows < 4:
        return _one_by_one(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    length = len(data) // rows
    whole = np.frombuffer(data, np.uint8, rows * length).reshape(rows, length)
    sums = np.zeros(rows, np.uint32)
    for column in np.ascontiguousarray(whole.T):
        sums = _CRC_TABLE[(sums ^ column) & 0xFF] ^ (sums >> 8)
    shift = _zeros_operator(length)
    found = 0xFFFFFFFF
    for number in sums.tolist():
        found = _apply(shift, found) ^ number
    return _one_by_one(data[rows * length :], found) ^ 0xFFFFFFFF


class _Damaged(Exception):
    pass


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of a whole table, in the order of keys."""
    if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
        raise _Damaged("it does not end as a table does")
    footer = data[-_FOOTER:]
    _, place = _varint(footer, 0)  # the block of filters, which is empty
    _, place = _varint(footer, place)
    offset, place = _varint(footer, place)
    size, _ = _varint(footer, place)
    for _, handle in _block(data, offset, size):
        offset, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        yield from _block(data, offset, size)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one block."""
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + _TRAILER]
    if len(block) != size or len(trailer) != _TRAILER:
        raise _Damaged("a block ends too early")
    if trailer[0]:
        raise _Damaged(f"a block is compressed by method {trailer[0]}, which checkpoints never are")
    if _masked(crc32c(block + trailer[:1])) != struct.unpack("<I", trailer[1:])[0]:
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
    """One BundleEntryProto; None for text and other things that are no array of numbers."""
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
    """A protocol buffer as {field: values}: numbers, and bytes for what has a length."""
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
    """(number, the place behind it)."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7


def _masked(checksum: int) -> int:
    """How a checksum is stored: turned by 15 bits, and a constant added."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _one_by_one(data: bytes, found: int) -> int:
    for byte in data:
        found = _CRC_LIST[(found ^ byte) & 0xFF] ^ (found >> 8)
    return found


def _make_crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


_CRC_TABLE = _make_crc_table()
_CRC_LIST = _CRC_TABLE.tolist()


def _zeros_operator(count: int) -> list[int]:
    """What `count` zero bytes do to a checksum: the images of its 32 bits."""
    one = []
    for bit in range(32):
        value = 1 << bit
        one.append(_CRC_LIST[value & 0xFF] ^ (value >> 8))
    result = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            result = [_apply(one, x) for x in result]
        one = [_apply(one, x) for x in one]
        count >>= 1
    return result


def _apply(operator: list[int], value: int) -> int:
    found = 0
    while value:
        low = value & -value
        found ^= operator[low.bit_length() - 1]
        value ^= low
    return found


def _number(name):
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else -1
