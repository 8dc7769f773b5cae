# SPDX-License-Identifier: Apache-2.0
"""A web server on loopback that hands out some of its files only when it is told to."""

import contextlib
import functools
import http.server
import threading


class _Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rpartition("/")[2]
        if name in self.server.held and not self.server.released.wait(120):
            self.send_error(503)
        elif name in self.server.broken:
            self.send_error(500)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(folder):
    """Serves a folder; the server has:

    at        its address
    held      names of files that are sent when `released` is set, and not before
    broken    names of files that are not sent at all
    """
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.at = f"http://127.0.0.1:{server.server_port}"
        server.held, server.broken = set(), set()
        server.released = threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
