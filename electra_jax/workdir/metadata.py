# SPDX-License-Identifier: Apache-2.0
"""The JSON metadata of a checkpoint, and which checkpoints a folder holds.

Orbax keeps them in a file of its own. Reading that file needs neither orbax, which would open every
array on the way, nor a device, which processes that train together may not start before they know
of each other. The metadata carry a digest over themselves, so that a flipped bit is found.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

WEIGHTS_ONLY = "weights_only"  # metadata of a checkpoint to begin from, not to resume from

_SEALED = "sealed"  # metadata that has a digest of its own; older checkpoints lack both
_DIGEST = "metadata_digest"
_FILE = "_CHECKPOINT_METADATA"  # orbax's own


class CheckpointError(ValueError):
    """No usable checkpoint where there should be one; the message is one line."""


def steps(directory: str) -> list[int]:
    """The finished steps in a directory, oldest first."""
    if not os.path.isdir(directory):
        return []
    names = [name for name in os.listdir(directory) if name.isdecimal()]
    return sorted(int(name) for name in names if name == str(int(name)))


def read(path: str) -> dict[str, Any]:
    """The metadata of one checkpoint. Raises CheckpointError where they cannot be read."""
    if not os.path.isdir(path):
        raise CheckpointError(f"{path} does not exist")
    try:
        with open(os.path.join(path, _FILE), encoding="utf-8") as file:
            found = json.load(file)["custom_metadata"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}") from error
    return _verified(path, found)


def sealed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON gives them back, with a digest over all of them."""
    plain = json.loads(json.dumps(about | {_SEALED: True}))
    return plain | {_DIGEST: _digest(plain)}


def reason(error: BaseException) -> str:
    """The innermost cause in one line: orbax wraps what really happened several times."""
    innermost = causes(error)[-1]
    return " ".join(f"{type(innermost).__name__}: {innermost}".split())[:300]


def causes(error: BaseException) -> list[BaseException]:
    """An error, what it was raised from, and so on."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(before)
    return chain


def _verified(path, found):
    """Metadata that were read, if they are what was saved. Raises CheckpointError."""
    if not isinstance(found, Mapping) or not found:
        raise CheckpointError(f"{path} has no digest, so its weights cannot be verified")
    about = dict(found)
    sealed = _SEALED in about
    stated = about.pop(_DIGEST, None)
    if (sealed or stated is not None) and stated != _digest(about):
        raise CheckpointError(f"{path}: its metadata are not what was saved (digest differs)")
    if not isinstance(about.get("digest"), Mapping) or not isinstance(about.get("step"), int):
        raise CheckpointError(f"{path} has no digest, so its weights cannot be verified")
    return about


def _digest(about):
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
