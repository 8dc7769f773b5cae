# SPDX-License-Identifier: Apache-2.0
"""Memory that a step frees is there for the next one, so a step maps no new pages."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from electra_jax import heap

if sys.argv[1] == "keep":
    assert heap.keep()

def faults():  # of writing to 64 MiB that is freed at once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(2**26, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_pages_are_mapped_once():
    def second(how):
        run = [sys.executable, "-c", PROGRAM, how]
        return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)

    assert second("keep") == 0
    assert second("leave") > 0, "the test would pass without heap.keep"
