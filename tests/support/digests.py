# SPDX-License-Identifier: Apache-2.0
"""What a folder of prepared data holds, to compare two of them bit for bit."""

import hashlib
import pathlib
import re


def digests(folder):
    """{file: sha256} of what a finished folder holds; the manifest without its time."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and path.name != "prepare.lock":
            data = path.read_bytes()
            if path.name == "manifest.json":
                data = re.sub(rb'"seconds": [0-9.]+', b"", data)
            found[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return found
