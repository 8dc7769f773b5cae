# SPDX-License-Identifier: Apache-2.0
"""A relay on this machine to jax's coordination service in the first process.

When its connection to the first process closes, jax aborts at once and prints pages of stack
traces. So the other processes reach jax's service through this relay, which keeps the connection to
jax open after the service is gone, until this process has printed its own line and exited.
"""

import contextlib
import socket
import threading
import time

from electra_jax.host import wire


def start(host, port):
    """Starts the relay; returns the port on this machine that leads to `host:port`."""
    server, kept = socket.create_server(("127.0.0.1", 0)), []

    def reach():
        while True:
            try:
                return socket.create_connection((host, port), timeout=5)
            except OSError:
                # The first process starts jax's service only after its own `peers.join`.
                time.sleep(wire.RETRY)

    def serve():
        while True:
            near, _ = server.accept()
            far = reach()
            far.settimeout(None)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            # A socket without a reference is garbage and would be closed.
            kept.append((near, far))
            for source, target, at_end in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=_copy, args=(source, target, at_end), name="relay", daemon=True
                ).start()

    threading.Thread(target=serve, name="relay", daemon=True).start()
    return server.getsockname()[1]


def _copy(source: socket.socket, target: socket.socket, closes: bool) -> None:
    """Copies bytes until `source` ends; then ends `target` too if `closes`, else leaves it open."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        if closes:
            target.shutdown(socket.SHUT_WR)
