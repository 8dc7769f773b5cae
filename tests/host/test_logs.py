# SPDX-License-Identifier: Apache-2.0
"""Which log lines are shown: ours, and the warnings of libraries."""

import asyncio
import gc
import logging
import subprocess
import sys

import pytest

import electra_jax
from electra_jax.host import logs
from support.corpus import ROOT

OURS = electra_jax.__file__.replace("__init__.py", "training/loop.py")
THEIRS = "/home/me/electra_jax/.venv/lib/python3.12/site-packages/orbax/checkpoint/saving.py"


@pytest.mark.parametrize(
    ("path", "level", "shown"),
    [
        (OURS, logging.INFO, True),
        (THEIRS, logging.INFO, False),  # in a checkout that has the name of the package
        (THEIRS, logging.WARNING, True),
    ],
)
def test_a_line_of_a_library_is_shown_from_warning_on(path, level, shown):
    record = logging.LogRecord("absl", level, path, 1, "text", (), None)
    assert logs._ours(record) == shown


async def fails():
    raise ValueError("PERMISSION_DENIED")


def test_what_was_being_written_when_a_save_failed_is_not_told_again(caplog):
    """asyncio says it of tasks and of futures whose errors nobody asked for."""

    async def main():
        loop = asyncio.get_running_loop()
        task, future = loop.create_task(fails()), loop.create_future()
        future.set_exception(ValueError("PERMISSION_DENIED"))
        await asyncio.wait([task])
        del task, future
        gc.collect()

    asyncio.run(main())
    assert len(caplog.records) == 2
    assert not any(logs._ours(record) for record in caplog.records)


def test_what_was_never_written_because_a_save_failed_is_not_told_at_the_end():
    """Python warns of coroutines that nobody awaited when it collects them."""
    script = (
        "from electra_jax.host import logs; logs.show(); "
        "exec('async def save(): pass'); left = save(); "
        "import warnings; warnings.warn('of something else')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "something else" in done.stderr
    assert "never awaited" not in done.stderr
    assert "tracemalloc" not in done.stderr


ENDS = """
import sys
from electra_jax.host import process_exit, logs

logs.show()
with logs.file(sys.argv[1]):
    if sys.argv[2] == "at once":
        process_exit.exit_now("the other\\nprocess is gone", 1)
    try:
        raise OSError(28, "disk full") if sys.argv[2] == "written" else KeyError("a bug")
    finally:
        logs.logging.warning("closing")
"""


@pytest.mark.parametrize(
    ("way", "last"),
    [
        ("at once", " ERROR the other process is gone"),
        ("written", " ERROR [Errno 28] disk full"),
        ("bug", "KeyError: 'a bug'"),
    ],
)
def test_what_ends_a_run_is_the_last_line_of_its_log(way, last, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ENDS, tmp_path / "log.txt", way],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[-1].endswith(last), lines
    assert ("Traceback (most" in "".join(lines)) == (way == "bug")


def test_a_log_file_goes_on_when_the_disk_has_space_again(tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    logs.show()
    with logs.file(str(tmp_path / "log.txt")):
        logs.logging.warning("before")
        with monkeypatch.context() as patch:
            patch.setattr(logging.FileHandler, "flush", lambda handler: (_ for _ in ()).throw(full))
            logs.logging.warning("meanwhile")
        logs.logging.warning("after")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["before", "meanwhile", "after"]
