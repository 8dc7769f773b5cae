# SPDX-License-Identifier: Apache-2.0
"""What runs on a node of a cluster of Ray when `ray_workers` prepares text there.

versions_and_text    what the bytes of units depend on
difference           how one machine differs from another in that
inspect_node         before the work: the same, and whether the node sees the prepared folder
do_task              one task
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import socket
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import (
    planning,
    progress_lines,
    sent_units,
    text,
    text_files,
    unit_files,
    worker_pool,
)
from electra_jax.host import buckets, code_version, staging

_TEXT = "text"
_PACKAGES = ("numpy", "pyarrow", "sentencepiece", "tokenizers")  # other versions may cut other rows


@dataclasses.dataclass(frozen=True)
class Driver:
    """What a task must know of the process that prepares."""

    versions: dict[str, str]
    folder: str  # that it runs in
    address: str  # of the prepared folder in a bucket; '' if all see it


def versions_and_text(sources: Sequence[text.Source]) -> dict[str, str]:
    """Returns what the bytes of units depend on that may differ from machine to machine."""
    files = json.dumps([text.fingerprint(source) for source in sources])
    return versions() | {_TEXT: hashlib.sha256(files.encode()).hexdigest()}


@functools.cache
def versions() -> dict[str, str]:
    """Returns what `versions_and_text` does, without the hash of the text."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "code of electra_jax": code_version.digest(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str:
    """Returns how another machine differs from this one, for users; '' if it does not."""
    for name, mine in here.items():
        if there[name] != mine:
            if name == _TEXT:
                return "sees other files of text; give all nodes the same"
            return f"has {name} {there[name]}, and this machine {mine}; install the same"
    return ""


def inspect_node(sources: Sequence[text.Source], token: str, where: str) -> dict[str, str] | str:
    """Returns what `versions_and_text` says on this node, or why the node cannot work.

    Args:
      sources: the text.
      token: a file that the driver has made in the prepared folder, or its address in a bucket.
      where: the folder that the driver runs in.
    """
    _go_to(where)
    mine = f"{token}.{secrets.token_hex(4)}"
    try:
        if buckets.is_address(token):
            buckets.check(token, "the folder of prepared data")
            buckets.write(mine, b"")
            buckets.remove(mine)
        else:
            if not os.path.exists(token):
                folder = os.path.abspath(os.path.dirname(token))
                return f"does not see {folder}; prepare into a folder that all nodes share"
            with open(mine, "wb"):
                pass
            os.remove(mine)
    except (ValueError, OSError) as error:
        return f"may not write to {os.path.dirname(token)} ({text_files.reason(error)})"

    try:
        return versions_and_text(sources)
    except (ValueError, OSError) as error:
        return f"cannot read the text: {text_files.reason(error)}"


def do_task(
    function: Callable[[Any], Any], task: planning.UnitTask, driver: Driver
) -> tuple[Any, int]:
    """Does one task; returns its answer, and how many characters were tokenised.

    Args:
      function: what is to be done with the task.
      task: the unit of text to work on.
      driver: what is known of the process that prepares.
    """
    # A node that joined late was not looked at before.
    if line := difference(driver.versions, versions()):
        return ValueError(f"node {socket.gethostname()} {line}"), 0

    _go_to(driver.folder)
    counted = _Characters()
    progress_lines.count_in(counted)
    if not driver.address:
        return worker_pool.answer(function, task), counted.value

    # The copy of this worker alone, in which nothing is kept from one task to the next.
    folder = staging.local(driver.address)
    own_units = os.path.join(folder, unit_files.UNITS)
    os.makedirs(own_units, exist_ok=True)
    try:
        mine = dataclasses.replace(task, folder=folder)
        return worker_pool.answer(sent_units.elsewhere(function), mine), counted.value
    finally:
        shutil.rmtree(own_units, ignore_errors=True)


def _go_to(where):
    """Makes relative paths mean what they mean in the driver, if this machine has its folder."""
    with contextlib.suppress(OSError):
        os.chdir(where)


class _Characters:
    """A count of one thread, with the interface of a value that processes share."""

    def __init__(self):
        self.value = 0

    def get_lock(self) -> contextlib.AbstractContextManager:
        """Locks nothing."""
        return contextlib.nullcontext()
