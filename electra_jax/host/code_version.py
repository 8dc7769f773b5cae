# SPDX-License-Identifier: Apache-2.0
"""Which code this is: its commit, if that is known, and the digest of its modules.

a checkout                                    ->  git
a wheel, an image, what tpu_vm.sh has copied  ->  the file _commit of the package
pip install git+https://...                   ->  the same file, or what pip has noted
all of them                                   ->  the digest of the modules

setup.py reads this file by itself to write `_commit`, so it imports the standard library only.
"""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
import subprocess

COMMIT_FILE = "_commit"  # beside the modules, in no checkout: one line, what `commit` returns

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
# launch/tpu_vm.sh, launch/Dockerfile and launch/skypilot.yaml ask git in the same words.
_ASK_GIT = ("describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+dirty")


@functools.cache
def commit() -> str | None:
    """Returns the commit of this code, twelve digits; None if nothing tells it.

    It ends with `+dirty` if files of the checkout differed from it. A package that was installed
    into a folder of someone else's checkout is no part of it.
    """
    if _git("ls-files", "__init__.py"):
        return _git(*_ASK_GIT)
    return _noted() or _installed_from()


@functools.cache
def digest() -> str:
    """Returns a hash of all modules of the package: two machines with the same one run the same.

    It is the same in a checkout and in a wheel, which has copies of the configurations too.
    """
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        if path.parent != _PACKAGE / "configs" or path.name == "__init__.py":
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _noted() -> str | None:
    """The commit that is written into the package."""
    try:
        return (_PACKAGE / COMMIT_FILE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _installed_from() -> str | None:
    """The commit that pip has noted of a package that it fetched from a repository."""
    try:
        found = importlib.metadata.distribution("electra_jax")
        said = json.loads(found.read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None

    # Another one may be installed, while this one is found by PYTHONPATH.
    if pathlib.Path(found.locate_file("electra_jax")).resolve() != _PACKAGE:
        return None
    return said.get("vcs_info", {}).get("commit_id", "")[:12] or None


def _git(*arguments: str) -> str | None:
    """What git prints; None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", _PACKAGE, *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
