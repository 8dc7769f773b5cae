# SPDX-License-Identifier: Apache-2.0
"""Huge memory pages for training steps on a CPU.

XLA allocates its buffers with malloc at each step and frees them after it. The kernel then maps and
zeroes them again, 4 KiB at a time, which takes a fifth of a step of ELECTRA-Small
(docs/performance.md). glibc can ask for pages of 2 MiB instead, but it reads that setting only when
a process starts, so the program has to start again with the setting in its environment.

Keeping the memory between steps, by malloc's thresholds, is as fast, but the heap of glibc 2.36
then grows with each step: an aligned block that was freed is too small for the next block of its
size.
"""

import glob
import os
import pathlib
import platform
import sys

_TUNABLE = "glibc.malloc.hugetlb"
_ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/accel*", "/dev/vfio/[0-9]*")
_KERNEL = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def use_huge_pages() -> None:
    """Starts this program again with huge pages switched on; returns if that would not help.

    It would not help in four cases: glibc is absent or older than 2.35; the kernel gives huge pages
    to every program or to none; there is an accelerator, which has its own allocator; or
    GLIBC_TUNABLES already sets it. Call this before any other import, so that none runs twice.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if _TUNABLE in tunables or _has_accelerator() or not (_glibc_knows() and _kernel_waits()):
        return

    os.environ["GLIBC_TUNABLES"] = f"{tunables}:{_TUNABLE}=1".lstrip(":")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _has_accelerator():
    """Looks for device files: asking jax would take the time that is to be saved."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    return any(glob.glob(pattern) for pattern in _ACCELERATORS)


def _glibc_knows():
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)


def _kernel_waits():
    """Returns whether the kernel gives huge pages to those who ask: `always [madvise] never`."""
    try:
        return "[madvise]" in _KERNEL.read_text()
    except OSError:
        return False
