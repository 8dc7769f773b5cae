# SPDX-License-Identifier: Apache-2.0
"""Reads the event files that a run writes for TensorBoard."""

import struct

from tensorboardX.proto import event_pb2


def events_of(directory):
    """Reads event files: frames of length (8 bytes), checksum (4), record, checksum (4)."""
    events = []
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            events.append(event_pb2.Event.FromString(content[at + 12 : at + 12 + length]))
            at += 16 + length
    return events
