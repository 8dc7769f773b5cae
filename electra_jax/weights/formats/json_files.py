# SPDX-License-Identifier: Apache-2.0
"""Files that hold one JSON object."""

import json


def read(path: str) -> dict:
    """Returns the object in a file, or {} if there is no such file or no object in it."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
