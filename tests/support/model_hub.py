# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that speaks the part of the Hugging Face Hub's protocol with which
repositories of models are made, written and read.

Repositories are kept in memory: `Hub.repositories["OWNER/NAME"].commits` holds the files of every
commit. Large files come by git-lfs's basic transfer, small ones in the commit itself.
"""

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

from huggingface_hub import constants

TOKEN = "hf_loopback"
_LARGE = 10_000  # bytes from which a file goes by git-lfs


@dataclasses.dataclass
class Repository:
    """What the server holds of one repository."""

    private: bool
    commits: dict[str, dict[str, bytes]]  # sha -> {path: content}
    branches: dict[str, str]  # name -> sha
    gated: bool = False  # listed for all, sent to those who agreed to its conditions
    listing: tuple = ()  # what is answered instead of a list: code, headers

    def files(self, revision):
        """{path: content} of a branch or commit; None if there is none."""
        return self.commits.get(self.branches.get(revision, revision))

    def commit(self, files):
        """Adds a commit to main and returns its sha."""
        sha = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[sha] = files
        self.branches["main"] = sha
        return sha


class Handler(http.server.BaseHTTPRequestHandler):
    """Each request goes to the first of `_ROUTES` that fits."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._route()

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *arguments):
        pass

    def _route(self):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        for method, pattern, name in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method:
                self.server.requests.append((self.command, path))
                return getattr(self, name)(*found.groups())
        return self._json(404, {"error": f"{self.command} {path}"})

    def _who(self):
        if not self._known():
            return self._json(401, {"error": "Invalid credentials"})
        return self._json(200, {"type": "user", "name": "owner", "auth": {"type": "access_token"}})

    def _create(self):
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'owner'}/{asked['name']}"
        if not self._known():
            return self._json(403, {"error": "no right to write"})
        if name in self.server.repositories:
            return self._json(409, {"error": "exists", "url": f"{self.server.url}/{name}"})
        private = asked.get("private") or asked.get("visibility") == "private"
        made = self.server.repositories[name] = Repository(bool(private), {}, {})
        made.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        return self._json(200, {"url": f"{self.server.url}/{name}", "name": name})

    def _info(self, name, revision="main"):
        repository = self._repository(name)
        if repository is None:
            return None
        if repository.listing:
            code, headers = repository.listing
            return self._json(code, {"error": "no"}, headers)
        files = repository.files(revision)
        if files is None:
            return self._json(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound"})
        sha = repository.branches.get(revision, revision)
        siblings = [{"rfilename": path} for path in sorted(files)]
        about = {"id": name, "sha": sha, "private": repository.private, "siblings": siblings}
        return self._json(200, about)

    def _tree(self, name, revision):
        repository = self._repository(name)
        if repository is None:
            return None
        return self._json(
            200,
            [
                {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
                for path, data in sorted(repository.files(revision).items())
            ],
        )

    def _validate(self):
        return self._json(200, {"errors": [], "warnings": []})

    def _preupload(self, name, revision):
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["size"] >= _LARGE else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(self.body)["files"]
        ]
        return self._json(200, {"files": modes})

    def _batch(self, name):
        objects = [
            asked | {"actions": {"upload": {"href": f"{self.server.url}/lfs/{asked['oid']}"}}}
            for asked in json.loads(self.body)["objects"]
        ]
        return self._json(200, {"transfer": "basic", "objects": objects})

    def _large(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self._json(400, {"error": "not what was announced"})
        self.server.large[oid] = self.body
        return self._json(200, {})

    def _commit(self, name, revision):
        if self.server.refuses:
            return self._json(403, {"error": self.server.refuses})
        repository = self.server.repositories[name]
        files = dict(repository.files(revision))
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = repository.commit(files)
        url = f"{self.server.url}/{name}/commit/{sha}"
        return self._json(200, {"commitUrl": url, "commitOid": sha, "success": True})

    def _resolve(self, name, revision, path):
        repository = self._repository(name)
        if repository is None:
            return None
        if repository.gated:
            return self._json(403, {"error": "no"}, {"X-Error-Code": "GatedRepo"})
        data = repository.files(revision).get(path)
        if data is None:
            return self._json(404, {"error": "no"}, {"X-Error-Code": "EntryNotFound"})
        sha = repository.branches.get(revision, revision)
        return self._send(200, data, {"ETag": f'"{_blob(data)}"', "X-Repo-Commit": sha})

    def _known(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name):
        """A repository that this client may see; answers 404 and returns None without one."""
        found = self.server.repositories.get(name)
        if found is None or found.private and not self._known():
            self._json(404, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})
            return None
        return found

    def _json(self, code, about, headers=None):
        self._send(code, json.dumps(about).encode(), headers, "application/json")

    def _send(self, code, data, headers=None, kind="application/octet-stream"):
        self.send_response(code)
        about = {"Content-Length": str(len(data)), "Content-Type": kind} | (headers or {})
        for key, value in about.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


_NAME = "([^/]+/[^/]+)"
_ROUTES = (
    (("GET",), "/api/whoami-v2", "_who"),
    (("POST",), "/api/repos/create", "_create"),
    (("POST",), "/api/validate-yaml", "_validate"),
    (("GET",), f"/api/models/{_NAME}", "_info"),
    (("GET",), f"/api/models/{_NAME}/revision/(.+)", "_info"),
    (("GET",), f"/api/models/{_NAME}/tree/([^/]+)", "_tree"),
    (("POST",), f"/api/models/{_NAME}/preupload/(.+)", "_preupload"),
    (("POST",), f"/{_NAME}\\.git/info/lfs/objects/batch", "_batch"),
    (("PUT",), "/lfs/([0-9a-f]{64})", "_large"),
    (("POST",), f"/api/models/{_NAME}/commit/(.+)", "_commit"),
    (("GET", "HEAD"), f"/{_NAME}/resolve/([^/]+)/(.+)", "_resolve"),
)


class Hub(http.server.ThreadingHTTPServer):
    """`requests` holds (method, path) of all that it knows; `refuses` makes commits fail."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.large, self.requests, self.refuses = {}, [], ""
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, name, files, private=False):
        """Makes a repository with these files, {path: content}."""
        self.repositories[name] = Repository(private, {}, {})
        return self.repositories[name].commit(dict(files))


def reach(patch, url, cache, token=TOKEN):
    """The Hub is at this address, for this process and for those that it starts."""
    patch.setenv("HF_ENDPOINT", url)
    patch.setenv("HF_HUB_CACHE", str(cache))
    patch.setenv("HF_TOKEN_PATH", str(cache / "no_login"))
    patch.setenv("HF_HUB_DISABLE_XET", "1")  # the server speaks git-lfs only
    patch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    patch.setenv("HF_TOKEN", token)
    patch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "no_login"))
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)


def _blob(data):
    """The name that git gives to a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextlib.contextmanager
def serving():
    """A running server without repositories."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
