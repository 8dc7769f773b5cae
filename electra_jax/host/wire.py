# SPDX-License-Identifier: Apache-2.0
"""Messages between the processes of a run: JSON, one a line, on a socket that notices a silence."""

import contextlib
import json
import socket

SILENCE = 30  # seconds without an answer from another machine that pass for its end
RETRY = 0.2


def say(connection, message):
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def received(connection):
    """What came, nothing where the connection is closed or broken. May raise TimeoutError."""
    try:
        return connection.recv(1 << 16)
    except TimeoutError as error:
        if error.errno is not None:  # the other machine answers no more
            return b""
        raise
    except OSError:
        return b""


def watched(connection):
    """The same, found broken when the other machine has been silent for SILENCE seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE // 3),
        ("TCP_KEEPINTVL", SILENCE // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 1000 * SILENCE),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
