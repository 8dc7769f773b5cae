# SPDX-License-Identifier: Apache-2.0
"""The JSON metadata of a checkpoint, and which checkpoints a folder holds.

Orbax keeps the metadata in a file of its own, which is read here without orbax and without a
device: orbax would open every array, and processes that train together must find each other before
one of them starts a device. The metadata contain a digest of themselves, so a flipped bit is found.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from electra_jax.host import buckets, error_causes, staging

T = TypeVar("T")

WEIGHTS_ONLY = "weights_only"  # marks a checkpoint to begin from, not to resume from

_DIGEST = "metadata_digest"
# Orbax's names: of the metadata, and of what says in a bucket, which knows no renaming of folders,
# that a checkpoint is complete.
_FILE = "_CHECKPOINT_METADATA"
_COMPLETE = "commit_success.txt"


class CheckpointError(ValueError):
    """There is no usable checkpoint where one should be; the message has one line."""


class NotSaved(CheckpointError, error_causes.MayPass):
    """A checkpoint could not be saved. The settings are right, so the same command may continue."""


class NotRead(CheckpointError, error_causes.MayPass):
    """A checkpoint could not be read for a reason that may pass: a disk or a server is silent."""


READ_ERRORS = NotRead, CheckpointError  # for `processes.agree`, the more special one first
_PASSING = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.ENOMEM,
    errno.EMFILE, errno.ENFILE, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN,
    errno.EHOSTUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED,
}  # fmt: skip
_OVERLOADED = 429  # this and all from 500 on are answers of a server that may answer later


def directory(workdir: str) -> str:
    """Returns where the checkpoints of a workdir are: a folder, or an address in a bucket."""
    return staging.place(os.path.join(workdir, staging.CHECKPOINTS))


def steps(directory: str) -> list[int]:
    """Returns the steps of the finished checkpoints in a folder or bucket, oldest first."""
    if buckets.is_address(directory):
        names = [
            name
            for name in buckets.folders(directory)
            if name.isdecimal() and buckets.exists(f"{directory}/{name}/{_COMPLETE}")
        ]
    else:
        names = os.listdir(directory) if os.path.isdir(directory) else []

    # Only names that a step is written as: orbax's folders of unfinished saves have others.
    return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))


def read(path: str) -> dict[str, Any]:
    """Returns the metadata of one checkpoint. Raises CheckpointError if they cannot be read."""
    path = staging.place(path)
    remote = buckets.is_address(path)
    if not remote and not os.path.isdir(path):
        raise CheckpointError(f"{path} does not exist")

    file = os.path.join(path, _FILE)
    try:
        content = buckets.read(file) if remote else _content(file)
        found = json.loads(content)["custom_metadata"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise not_read(path, error) from error

    return _verified(path, found)


def not_read(path: str, error: BaseException) -> CheckpointError:
    """Returns what says that a checkpoint cannot be read: a NotRead if the cause may pass."""
    kind = NotRead if any(map(_may_pass, error_causes.of(error))) else CheckpointError
    return kind(f"{path} cannot be read: {reason(error)}")


def _may_pass(error):
    if isinstance(error, buckets.BucketError):
        return not isinstance(error, buckets.NotAllowed)
    if isinstance(error, OSError):
        return isinstance(error, TimeoutError | ConnectionError) or error.errno in _PASSING
    # Clients of buckets have errors of their own, with the code that the server has answered.
    code = getattr(error, "code", None)
    return isinstance(code, int) and (code == _OVERLOADED or 500 <= code < 600)


def readable(directory: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (step, metadata) of the checkpoints whose metadata can be read, newest first."""
    for step in reversed(steps(directory)):
        try:
            about = read(os.path.join(directory, str(step)))
        except CheckpointError:
            continue
        yield step, about


def newest_good(
    directory: str, steps: Sequence[int], read: Callable[[str], T], named: str = ""
) -> tuple[T, list[int]] | None:
    """Reads the newest checkpoint that can be read; an error in the log names each that cannot.

    Args:
      directory: the folder of checkpoints.
      steps: which of them may be read, oldest first.
      read: reads the checkpoint in a folder; raises CheckpointError if it cannot be used.
      named: what the log calls them, in front of their steps.

    Returns (what `read` returned, the newer steps that cannot be used); None if none can be read.

    Raises NotRead if none can be read, and that may pass for one of them.
    """
    bad: list[int] = []
    passing = None
    for step in reversed(steps):
        try:
            return read(os.path.join(directory, str(step))), bad
        except CheckpointError as error:
            where = f"{named}: checkpoint" if named else "checkpoint"
            logging.error("%s %d cannot be used: %s", where, step, error)
            bad.append(step)
            passing = error if isinstance(error, NotRead) else passing
    if passing is not None:
        raise NotRead(
            f"no checkpoint in {directory} could be read ({passing}); all are left as they are, and"
            " the same command may find them when that has passed"
        )
    return None


def sealed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata as JSON will give them back, with a digest of all of them added."""
    # Through JSON, since the digest must be that of what is read: with lists in place of tuples.
    plain = json.loads(json.dumps(dict(about)))
    return plain | {_DIGEST: _digest(plain)}


def reason(error: BaseException, handled: BaseException | None = None) -> str:
    """Returns the innermost cause as one line: orbax wraps the real error several times.

    A long one is shortened in the middle, where tensorstore has paths: the reason comes last. For
    `handled` see `error_causes.of`.
    """
    innermost = error_causes.of(error, handled)[-1]
    line = " ".join(f"{type(innermost).__name__}: {innermost}".split())
    return line if len(line) <= 300 else f"{line[:140]} ... {line[-155:]}"


def _content(file):
    with open(file, "rb") as opened:
        return opened.read()


def _verified(path, found):
    """Returns the metadata without their digest. Raises CheckpointError if they were changed."""
    if not isinstance(found, Mapping) or not found:
        raise CheckpointError(f"{path} has no digest, so its weights cannot be verified")

    about = dict(found)
    if about.pop(_DIGEST, None) != _digest(about):
        raise CheckpointError(f"{path}: its metadata are not what was saved (digest differs)")

    if not isinstance(about.get("digest"), Mapping) or not isinstance(about.get("step"), int):
        raise CheckpointError(f"{path} has no digest, so its weights cannot be verified")

    return about


def _digest(about):
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
