# SPDX-License-Identifier: Apache-2.0
"""One writer at a time, also on file systems that have no locks."""

import errno
import fcntl
import json
import os

import pytest

from electra_jax.host import error_causes, lock, lock_owner, staging


@pytest.fixture
def answer(monkeypatch):
    """Sets what the file system answers to every lock that is asked for."""

    def set_to(number):
        def flock(file, flags):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    return set_to


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="^workdir x cannot be made: Not a directory; choose ano"):
        with lock.hold(str(tmp_path / "file" / "run" / "run.lock"), "workdir x"):
            pass


def test_a_name_that_is_too_long_is_named(tmp_path):
    with pytest.raises(ValueError, match="^workdir x cannot be made: File name too long"):
        with lock.hold(str(tmp_path / ("a" * 300) / "run.lock"), "workdir x"):
            pass


def test_a_lock_is_held_until_the_block_ends(tmp_path):
    path = str(tmp_path / "run.lock")
    with lock.hold(path, "the run"):
        with pytest.raises(ValueError, match=rf"the run is in use .*process {os.getpid()} on"):
            with lock.hold(path, "the run"):
                pass
    with lock.hold(path, "the run"):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_where_there_are_no_locks_one_line_says_so_once(number, answer, tmp_path, caplog):
    answer(number)
    lock._warn.cache_clear()
    for _ in range(2):
        with lock.hold(str(tmp_path / "run.lock"), "the run"):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        f"the file system of {tmp_path} has no locks: see to it that no other run uses this folder"
    ]


PARENT = {"pid": os.getppid(), "started": lock_owner.started(os.getppid())}


@pytest.mark.parametrize(
    ("owner", "refused"),
    [
        (PARENT, True),
        (PARENT | {"started": "1"}, False),  # its number belongs to another process now
        (PARENT | {"machine": "an earlier start"}, False),
    ],
)
def test_without_locks_an_owner_that_lives_on_this_machine_is_respected(
    owner, refused, answer, tmp_path
):
    answer(errno.ENOLCK)
    path, pid = tmp_path / "run.lock", owner["pid"]
    path.write_text(json.dumps(lock_owner.me() | {"since": "2026-01-02"} | owner))
    if refused:
        with pytest.raises(error_causes.MayPass, match=f"in use by another run .process {pid} on"):
            with lock.hold(str(path), "the run"):
                pass
    else:
        with lock.hold(str(path), "the run"):
            assert json.loads(path.read_text())["pid"] == os.getpid()
        assert path.read_text() == "", "who comes later finds no owner"


def test_another_error_of_the_file_system_is_raised(answer, tmp_path):
    answer(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        with lock.hold(str(tmp_path / "run.lock"), "the run"):
            pass


def test_copies_of_buckets_need_locks(answer, tmp_path, monkeypatch):
    answer(errno.ENOLCK)
    monkeypatch.setenv("ELECTRA_JAX_CACHE", str(tmp_path))
    staging._own_root.cache_clear()
    with pytest.raises(ValueError, match=f"{tmp_path}/buckets has no locks.*ELECTRA_JAX_CACHE"):
        staging.local("gs://lab/run")
    staging._own_root.cache_clear()
