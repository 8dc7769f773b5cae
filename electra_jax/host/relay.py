# SPDX-License-Identifier: Apache-2.0
"""A relay to jax's service on the first process.

jax aborts a process, with pages of stack, in the moment in which its connection to the first
process closes. So the others reach jax's service through a relay of their own, which keeps that
connection open until the line is printed.
"""

import contextlib
import socket
import threading
import time

from electra_jax.host import wire


def start(host, port):
    """A port of this machine that leads to jax's service, and stays open when that is gone."""
    server, kept = socket.create_server(("127.0.0.1", 0)), []

    def reach():
        while True:
            try:
                return socket.create_connection((host, port), timeout=5)
            except OSError:  # jax starts it after `join` of the first process
                time.sleep(wire.RETRY)

    def serve():
        while True:
            near, _ = server.accept()
            far = reach()
            far.settimeout(None)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept.append((near, far))  # a socket that nobody holds is closed
            for source, target, at_end in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=_copy, args=(source, target, at_end), name="relay", daemon=True
                ).start()

    threading.Thread(target=serve, name="relay", daemon=True).start()
    return server.getsockname()[1]


def _copy(source: socket.socket, target: socket.socket, closes: bool) -> None:
    """Passes bytes on; at the end of them closes the target or leaves it as it is."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        if closes:
            target.shutdown(socket.SHUT_WR)
