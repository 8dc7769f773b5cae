# SPDX-License-Identifier: Apache-2.0
"""A command ends when its work is done."""

import subprocess
import sys

import pytest

from support.corpus import ROOT

SCRIPT = """
import threading
from electra_jax.host import process_exit

class Waiting(threading.Thread):
    __module__ = "{module}"

    def run(self):
        {work}

Waiting().start()
print("told")
process_exit.leave(3)
"""


@pytest.mark.parametrize(
    ("module", "work", "output"),
    [
        ("orbax.checkpoint.futures", "threading.Event().wait()", "told\n"),  # for ever
        ("electra_jax.host.background_calls", "threading.Event().wait()", "told\n"),
        ("user.program", "threading.Event().wait(0.5); print('done')", "told\ndone\n"),
    ],
)
def test_only_threads_of_orbax_and_of_calls_in_the_background_are_left_behind(module, work, output):
    script = SCRIPT.format(module=module, work=work)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, output, "")


PREPARED = """
from electra_jax.data import worker_pool
from electra_jax.host import process_exit

with worker_pool.Workers({workers}) as workers:
    print(sorted(result for _, result in workers.each(abs, [-1, -2])))
process_exit.exit_now("the disk is full", 1)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_stands_below_the_error_of_a_run_that_has_prepared_its_data(workers):
    """Python would warn there of semaphores that the worker processes have used."""
    done = subprocess.run(
        [sys.executable, "-c", PREPARED.format(workers=workers)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    expected = (1, "[1, 2]\n", "error: the disk is full\n")
    assert (done.returncode, done.stdout, done.stderr) == expected


PREPARING = """
from electra_jax.data import worker_pool
from electra_jax.host import process_exit

with worker_pool.Workers({workers}) as workers:
    for _ in workers.each(abs, [-1, -2]):
        process_exit.exit_now("a signal, and the main thread does not answer", 1)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_stands_below_the_error_of_a_run_that_ends_at_once_while_it_prepares(workers):
    done = subprocess.run(
        [sys.executable, "-c", PREPARING.format(workers=workers)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: a signal, and the main thread does not answer\n"


IN_A_CALL = """
import threading
from electra_jax.host import background_calls, process_exit

background_calls.begin(threading.Event().wait, "for ever")
background_calls.Caller("one after the other").begin(int).result()
print("told")
process_exit.leave(3)
"""


def test_a_call_that_never_ends_is_left_behind():
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALL], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "told\n", "")
