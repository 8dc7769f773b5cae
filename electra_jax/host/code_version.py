# SPDX-License-Identifier: Apache-2.0
"""Which code this is: its commit, if it runs from a checkout that git knows, and its digest."""

import functools
import hashlib
import pathlib
import subprocess

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


@functools.cache
def commit() -> str | None:
    """Returns the commit of the checkout, with ` and changes` if files differ from it.

    Returns None without git, or if the package is not part of a checkout. A package that was
    installed into a folder of someone else's checkout is no part of it.
    """
    if not _git("ls-files", "__init__.py"):
        return None

    found, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno", ".")
    if not found:
        return None
    return found[:12] + (" and changes" if changes else "")


@functools.cache
def digest() -> str:
    """Returns a hash of all modules of the package: two machines with the same one run the same."""
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _git(*arguments: str) -> str | None:
    """What git prints; None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", _PACKAGE, *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
