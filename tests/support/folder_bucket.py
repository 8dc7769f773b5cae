# SPDX-License-Identifier: Apache-2.0
"""A folder in place of a bucket, for tests without a server: objects are files.

Only what reading prepared rows asks for is there. The tier `bucket` has a real server.
"""

import importlib.util
import os
import pathlib
import shutil

from electra_jax.host import buckets, staging


class FolderBucket:
    """The bucket `lab`, and the machines that fetch from it."""

    def __init__(self, folder: pathlib.Path, monkeypatch):
        self.folder, self._patch = folder, monkeypatch
        self.fetched: list[str] = []  # the names of all objects that any machine has fetched
        real = importlib.util.find_spec  # the extra `gcs` may be missing
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "gcsfs" or real(name))
        for function in (self.download, self.listing, self.folders):
            monkeypatch.setattr(buckets, function.__name__, function)

    def machine(self, cache: pathlib.Path):
        """This process has its copies in another folder from now on."""
        self._patch.setenv("ELECTRA_JAX_CACHE", str(cache))
        staging._own_root.cache_clear()

    def download(self, address, path):
        """As buckets.download."""
        if not self._path(address).is_file():
            raise FileNotFoundError(f"there is no {address}")
        self.fetched.append(os.path.basename(address))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(self._path(address), f"{path}.partial")
        os.replace(f"{path}.partial", path)

    def listing(self, address, below=True):
        """As buckets.listing."""
        there = self._path(address)
        return {
            str(path.relative_to(there)): buckets.Object(
                path.stat().st_size, buckets.md5_of(str(path))
            )
            for path in sorted(there.glob("**/*" if below else "*"))
            if path.is_file()
        }

    def folders(self, address):
        """As buckets.folders."""
        return sorted(path.name for path in self._path(address).iterdir() if path.is_dir())

    def _path(self, address):
        return self.folder / address.removeprefix("gs://lab/")
