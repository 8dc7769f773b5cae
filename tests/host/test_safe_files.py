# SPDX-License-Identifier: Apache-2.0
"""A file is written so that a power failure leaves the old one or the new one."""

import os

from electra_jax.host import safe_files


def test_the_file_is_on_the_disk_before_it_has_its_name_and_then_the_name_is(tmp_path, monkeypatch):
    path, done = tmp_path / "config.json", []
    inodes = {}

    def fsync(handle, real=os.fsync):
        inodes[len(done)] = os.fstat(handle).st_ino
        done.append("flushed")
        real(handle)

    def replace(old, new, real=os.replace):
        done.append("renamed")
        real(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    safe_files.write(path, b"new")
    assert done == ["flushed", "renamed", "flushed"]
    assert [inodes[0], inodes[2]] == [path.stat().st_ino, tmp_path.stat().st_ino]
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["config.json"]
