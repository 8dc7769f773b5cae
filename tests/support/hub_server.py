# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that speaks the part of the Hugging Face Hub's protocol that is read here.

root/OWNER/NAME/FILE                    the main branch of a data set
root/OWNER/NAME@refs/convert/parquet/   another branch
"""

import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

from huggingface_hub import constants

from electra_jax.data import text_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(http.server.BaseHTTPRequestHandler):
    """Lists data sets and sends their files, also from the middle on."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def log_message(self, *arguments):
        pass

    def _answer(self, body):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        self.server.requests.append((self.command, path, self.headers.get("Range", "")))
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/revision/(.+)", path):
            self._tell(*found.groups())
        elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)", path):
            self._list(*found.groups())
        elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._send_file(*found.groups(), body)
        else:
            self._send(404, b"{}")

    def _tell(self, name, branch):
        """Which commit a branch has now. As the real one's, its list of files may end early."""
        if self.server.listing:
            return self._send(*self.server.listing)
        if not (self.server.root / name).is_dir():
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        folder, commit = self._branch(name, branch)
        if not folder.is_dir():
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})

        listed = {"id": name, "sha": commit, "siblings": []}
        return self._send(200, json.dumps(listed).encode(), {"Content-Type": "application/json"})

    def _list(self, name, commit):
        """A page of all files and folders of a commit, with the address of the next one."""
        folder = self._folder(name, commit)
        entries = []
        for path in sorted(folder.rglob("*")):
            about = {"path": str(path.relative_to(folder)), "type": "directory", "size": 0}
            if path.is_file():
                data = path.read_bytes()
                about |= {"type": "file", "size": len(data)}
                if path.suffix == ".parquet":  # the Hub keeps small text files in git itself
                    digest = hashlib.sha256(data).hexdigest()
                    about["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 130}
            digest = hashlib.sha1(data if path.is_file() else b"")
            entries.append(about | {"oid": digest.hexdigest()})

        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        first = int(query.get("cursor", ["0"])[0])
        end = first + self.server.page
        headers = {"Content-Type": "application/json"}
        if end < len(entries):
            following = f"{self.server.url}{self.path.partition('?')[0]}?cursor={end}"
            headers["Link"] = f'<{following}>; rel="next"'
        return self._send(200, json.dumps(entries[first:end]).encode(), headers)

    def _send_file(self, name, commit, file, body):
        if name in self.server.gated:  # listed for all, sent to those who agreed to its conditions
            return self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        data = (self._folder(name, commit) / file).read_bytes()
        digest = hashlib.sha256 if file.endswith(".parquet") else hashlib.sha1
        about = {
            "ETag": f'"{digest(data).hexdigest()}"',  # that of the listing
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        first = int(re.sub(r"\D", "", self.headers.get("Range", "")) or 0)
        if first:
            about["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        cut = len(data)
        if body and self.server.broken_off:  # the connection ends early, as often as it says
            self.server.broken_off -= 1
            cut = first + (len(data) - first) // 2
        self._send(206 if first else 200, data[first:], about, body, cut - first)
        if cut < len(data):
            self.close_connection = True

    def _folder(self, name, commit):
        return self._branch(name, "main" if commit == COMMIT else "refs/convert/parquet")[0]

    def _branch(self, name, branch):
        if branch == "main":
            return self.server.root / name, COMMIT
        return self.server.root / f"{name}@{branch}", COMMIT[::-1]

    def _send(self, code, data, headers=None, body=True, part=None):
        self.send_response(code)
        for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data[:part])


# What the Hub says to a token that is no longer valid.
EXPIRED = {"X-Error-Message": "Invalid credentials in Authorization header"}


class Server(http.server.ThreadingHTTPServer):
    """`requests` holds (method, path, range) of all that came."""

    daemon_threads = True

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.requests, self.broken_off = pathlib.Path(root), [], 0
        self.gated = set()  # OWNER/NAME
        self.listing = ()  # what it answers instead of a commit: code, body, headers
        self.page = 2  # files and folders of a page; the real one has 1,000
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


def reach(monkeypatch, url, cache):
    """The Hub is at this address, for this process and for those that it starts."""
    text_hub.files.cache_clear()
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))


@contextlib.contextmanager
def serving(root):
    """A running server over a folder of data sets."""
    server = Server(root)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
