# SPDX-License-Identifier: Apache-2.0
"""WORKDIR/checks.json: what was measured, by check, seed and settings.

Numbers and bounds are kept and verdicts are not: they follow (`result.py`). A result of other
settings stays in the file and is not shown.
"""

import hashlib
import json
import os

from electra_jax import config as config_lib
from electra_jax.checks import result as result_lib
from electra_jax.host import safe_files

NAME = "checks.json"
_FORMAT = 1
# Fields that change nothing of what is measured.
_ASIDE = ("seed", "data.dir", "data.workers", "mesh.", "checkpoint.", "logging.")


def settings_hash(config: config_lib.Config) -> str:
    """16 hex digits of all settings that a number may depend on; the seed stands beside."""
    known = {
        path: value
        for path, value in config_lib.flatten(config).items()
        if not path.startswith(_ASIDE)
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


class Kept:
    """The file, read at once and written whole after every result."""

    def __init__(self, workdir: str):
        self._path = os.path.join(workdir, NAME)
        self._rows: list[dict] = []
        if os.path.exists(self._path):
            self._rows = _read(self._path)

    def get(self, number: int, seed: int, settings: str) -> result_lib.Result | None:
        """What was measured, or None."""
        for row in self._rows:
            if (row["check"], row["seed"], row["settings"]) == (number, seed, settings):
                return result_lib.from_tree(row["result"])
        return None

    def put(self, seed: int, settings: str, result: result_lib.Result) -> None:
        """Keeps a result; it is on disk when this returns."""
        at = (result.number, seed, settings)
        rows = [row for row in self._rows if (row["check"], row["seed"], row["settings"]) != at]
        tree = result_lib.to_tree(result)
        rows.append({"check": at[0], "seed": seed, "settings": settings, "result": tree})
        self._rows = sorted(rows, key=lambda row: (row["settings"], row["check"], row["seed"]))
        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        text = json.dumps({"format": _FORMAT, "results": self._rows}, indent=1)
        safe_files.write(self._path, text.encode())


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
        if tree["format"] == _FORMAT:
            return tree["results"]
        found = f"format {tree['format']}, this version reads {_FORMAT}"
    except (ValueError, KeyError, TypeError) as error:
        found = f"not a file of results ({type(error).__name__})"
    raise config_lib.ConfigError(f"{path}: {found}; move it away to measure anew")
