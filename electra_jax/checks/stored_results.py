# SPDX-License-Identifier: Apache-2.0
"""WORKDIR/checks.json: stored results by check, seed and settings.

Numbers and bounds are stored; verdicts are not, because they follow from them (`result.py`).
Results of other settings stay in the file and are not shown.
"""

import hashlib
import json
import os

import jax

from electra_jax import config as config_lib
from electra_jax.checks import result as result_lib
from electra_jax.host import safe_files

NAME = "checks.json"
_FORMAT = 1
# Settings that do not change what is measured; the seed is stored beside the hash.
_IGNORED_SETTINGS = ("seed", "data.dir", "data.workers", "mesh.", "checkpoint.", "logging.")


def settings_hash(config: config_lib.Config) -> str:
    """Returns a hash (16 hex digits) of what a number may depend on but the seed.

    That is all settings, and the kind of the devices, which round each in their own way.
    """
    known = {
        path: value
        for path, value in config_lib.flatten(config).items()
        if not path.startswith(_IGNORED_SETTINGS)
    }
    known["device"] = jax.devices()[0].device_kind
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


class StoredResults:
    """The stored results, read when it is made and written as a whole after every result."""

    def __init__(self, workdir: str):
        self._path = os.path.join(workdir, NAME)
        self._rows: list[dict] = []
        if os.path.exists(self._path):
            self._rows = _stored_rows(self._path)

    def get(self, number: int, seed: int, settings: str) -> result_lib.Result | None:
        """Returns the stored result, or None if there is none."""
        for row in self._rows:
            if (row["check"], row["seed"], row["settings"]) == (number, seed, settings):
                return result_lib.from_tree(row["result"])
        return None

    def put(self, seed: int, settings: str, result: result_lib.Result) -> None:
        """Stores a result in place of an earlier one; it is on disk when this returns."""
        at = (result.number, seed, settings)
        rows = [row for row in self._rows if (row["check"], row["seed"], row["settings"]) != at]
        tree = result_lib.to_tree(result)
        rows.append({"check": at[0], "seed": seed, "settings": settings, "result": tree})
        self._rows = sorted(rows, key=lambda row: (row["settings"], row["check"], row["seed"]))

        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        text = json.dumps({"format": _FORMAT, "results": self._rows}, indent=1)
        safe_files.write(self._path, text.encode())


def _stored_rows(path):
    """Returns the stored results. Raises ConfigError if the file has another format."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
        if tree["format"] == _FORMAT:
            return tree["results"]
        found = f"format {tree['format']}, this version reads {_FORMAT}"
    except (ValueError, KeyError, TypeError) as error:
        found = f"not a file of results ({type(error).__name__})"
    raise config_lib.ConfigError(f"{path}: {found}; move it away to measure anew")
