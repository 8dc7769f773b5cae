# SPDX-License-Identifier: Apache-2.0
"""Reads the file in which Weights & Biases keeps a run: LevelDB's log format behind seven bytes."""

import struct

from wandb.proto import wandb_internal_pb2

_BLOCK = 32_768  # a record never begins in the last six bytes of a block
_HEADER = struct.Struct("<IHB")  # checksum, length, kind: whole, first, middle, last


def records_of(path):
    """All records of a file RUN.wandb, in order."""
    content, at, found, part = path.read_bytes(), 7, [], b""
    while at + _HEADER.size <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        part += content[at + _HEADER.size : at + _HEADER.size + length]
        at += _HEADER.size + length
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(part))
            part = b""
    return found
