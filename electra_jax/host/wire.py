# SPDX-License-Identifier: Apache-2.0
"""The connections between the processes of a run: one JSON message per line.

A process that dies has its connections closed by its operating system. A machine that is gone
closes nothing, so each connection also breaks after `SILENCE` seconds without an answer.
"""

import contextlib
import json
import socket

SILENCE = 30  # seconds without an answer after which another machine counts as gone
RETRY = 0.2  # seconds between two attempts to connect, or two looks at the clock


def say(connection, message):
    """Sends a message. A broken connection is no error here: `received` finds it."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def received(connection):
    """Returns the bytes that came, b"" if the connection is closed or broken.

    Raises TimeoutError if the socket has a timeout and nothing came in that time.
    """
    try:
        return connection.recv(1 << 16)
    except TimeoutError as error:
        # The kernel's own timeout has an errno: the other machine does not answer any more.
        if error.errno is not None:
            return b""
        raise
    except OSError:
        return b""


def watched(connection):
    """Returns the connection, set to break if the other machine is silent for SILENCE seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Keepalive probes notice the silence while nothing is sent, the user timeout (in milliseconds)
    # while sent data waits for its acknowledgement. Not every system has all of these options.
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE // 3),
        ("TCP_KEEPINTVL", SILENCE // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 1000 * SILENCE),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    return connection
