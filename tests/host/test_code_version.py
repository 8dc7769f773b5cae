# SPDX-License-Identifier: Apache-2.0
"""The commit of the code: of a checkout, of what is built from it, of what pip fetched."""

import json
import re
import subprocess

import pytest

from electra_jax.host import code_version


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in a folder of its own; what is asked is asked about it."""
    found = tmp_path / "checkout" / "electra_jax"
    found.mkdir(parents=True)
    (found / "__init__.py").write_text("")
    monkeypatch.setattr(code_version, "_PACKAGE", found)
    return found


def git(package, *arguments):
    who = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(
        ["git", "-C", package.parent, *who, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit():
    return code_version.commit.__wrapped__()


def test_a_checkout_says_its_commit_and_whether_it_was_changed(package):
    git(package, "init", "--quiet")
    git(package, "add", ".")
    git(package, "commit", "--quiet", "--message=one")
    git(package, "tag", "--annotate", "--message=1", "v1")  # is not said instead
    whole = git(package, "rev-parse", "HEAD")
    assert re.fullmatch("[0-9a-f]{40}", whole) and commit() == whole[:12]
    (package / "notes.txt").write_text("of no commit\n")
    assert commit() == whole[:12]
    (package / "__init__.py").write_text("changed = True\n")
    assert commit() == f"{whole[:12]}+dirty"

    # What is written down may be old; git knows better.
    (package / "_commit").write_text("0123456789ab\n")
    assert commit() == f"{whole[:12]}+dirty"


def test_a_package_without_git_says_what_is_written_into_it(package):
    assert commit() is None
    (package / "_commit").write_text("0123456789ab+dirty\n")
    assert commit() == "0123456789ab+dirty"

    # Installed into a folder of somebody's checkout, which is no part of it.
    (package.parent / "notes.txt").write_text("of somebody\n")
    git(package, "init", "--quiet")
    git(package, "add", "notes.txt")
    git(package, "commit", "--quiet", "--message=one")
    assert commit() == "0123456789ab+dirty"

    (package / "_commit").write_text("\n")  # COMMIT="" of somebody who has no git
    assert commit() is None


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ({"vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef" + 24 * "0"}}, "0123456789ab"),
        ({"dir_info": {}}, None),  # a folder was installed
        (None, None),  # from an index
    ],
)
def test_what_pip_fetched_from_a_repository_says_what_pip_noted(package, monkeypatch, noted, found):
    about = package.parent / "electra_jax-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: electra_jax\nVersion: 0.1.0\n")
    if noted:
        (about / "direct_url.json").write_text(json.dumps({"url": "https://a.b/c"} | noted))
    monkeypatch.syspath_prepend(package.parent)
    assert commit() == found

    # The same, installed beside the package that runs.
    monkeypatch.setattr(code_version, "_PACKAGE", package.parent / "other" / "electra_jax")
    assert commit() is None


def test_the_digest_follows_the_modules_and_not_what_a_wheel_has_beside_them(package):
    def digest():
        return code_version.digest.__wrapped__()

    (package / "configs").mkdir()
    (package / "configs" / "__init__.py").write_text("")
    first = digest()
    assert re.fullmatch("[0-9a-f]{12}", first)
    (package / "configs" / "tiny.py").write_text("copied = True\n")
    (package / "_commit").write_text("0123456789ab\n")
    assert digest() == first
    (package / "configs" / "__init__.py").write_text("changed = True\n")
    assert digest() != first
