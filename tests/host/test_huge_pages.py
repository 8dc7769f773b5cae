# SPDX-License-Identifier: Apache-2.0
"""On a CPU a program begins anew with huge pages, and its steps then map few pages."""

import os
import subprocess
import sys

import pytest

from electra_jax.host import huge_pages

PROGRAM = """
from electra_jax.host import huge_pages
if {wish}:
    huge_pages.use_huge_pages()
import os, resource, sys
import jax
from jax import numpy as jnp
step, x, faults = jax.jit(lambda x: x + 1), jnp.ones(2**24), []  # 64 MiB
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    jax.block_until_ready(step(x))
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(os.environ.get("GLIBC_TUNABLES"), sys.argv[1:], min(faults))
"""


def run(wish, **environment):
    """(GLIBC_TUNABLES, arguments, page faults of a step) as the program prints them."""
    command = [sys.executable, "-c", PROGRAM.format(wish=wish), "--flag=1"]
    env = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    env |= {"JAX_PLATFORMS": "cpu"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    tunables, arguments, faults = done.stdout.split()
    return tunables, arguments, int(faults)


@pytest.mark.skipif(
    not (huge_pages._glibc_knows() and huge_pages._kernel_waits()),
    reason="no huge pages to ask for",
)
def test_the_program_begins_anew_with_its_arguments_and_maps_few_pages():
    tunables, arguments, faults = run(True)
    assert (tunables, arguments) == ("glibc.malloc.hugetlb=1", "['--flag=1']")
    _, _, without = run(False)
    assert without >= 2**14  # 64 MiB in pages of 4 KiB
    assert faults < without / 10


def test_what_the_user_says_stays():
    assert run(True, GLIBC_TUNABLES="glibc.malloc.hugetlb=0")[0] == "glibc.malloc.hugetlb=0"


def test_an_accelerator_is_left_alone(monkeypatch, tmp_path):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(huge_pages, "_ACCELERATORS", (f"{tmp_path}/nvidia[0-9]*",))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(huge_pages.os, "execv", lambda *_: pytest.fail("begun anew"))
    huge_pages.use_huge_pages()
    assert "GLIBC_TUNABLES" not in os.environ
