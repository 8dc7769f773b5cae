# SPDX-License-Identifier: Apache-2.0
"""CRC-32C (Castagnoli), the checksum in TensorFlow files; numpy makes it fast for whole models."""

import numpy as np


def crc32c(data: bytes) -> int:
    """Returns Castagnoli's checksum (CRC-32C) of some bytes.

    Few bytes are looked up in the table of 256 one by one. Many bytes are cut into rows of equal
    length, whose checksums numpy computes side by side. To join them, the checksum so far is
    advanced by as many zero bytes as a row has, and the row's checksum is added by xor.
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


def masked(checksum: int) -> int:
    """Returns a checksum as it is stored: rotated by 15 bits, plus a constant."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _one_by_one(data: bytes, found: int) -> int:
    """Advances a checksum by some bytes."""
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
    """Returns the linear map of `count` zero bytes on a checksum, as the images of its 32 bits.

    It is built by repeated squaring.
    """
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
    """Applies a linear map over bits to a checksum."""
    found = 0
    while value:
        low = value & -value
        found ^= operator[low.bit_length() - 1]
        value ^= low
    return found
