# SPDX-License-Identifier: Apache-2.0
"""Huge pages for the memory of a step, where a CPU does the work.

XLA asks malloc for its buffers anew at each step and gives them back after it; the kernel then maps
and zeroes them again, 4 KiB at a time: a fifth of a step of ELECTRA-Small (docs/performance.md).
glibc can ask for pages of 2 MiB, but reads that wish only when a process begins. (Keeping the
memory instead, by malloc's thresholds, is as fast, and lets the heap of glibc 2.36 grow with each
step: an aligned block that was freed is too small for the next one of its size.)
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
    """Begins this program anew, with the wish in its environment; returns where that is no use.

    No use: not glibc 2.35 or newer, a kernel that gives huge pages to all or to none, an
    accelerator at hand (its allocator is its own), or a GLIBC_TUNABLES that says something already.
    To be called before anything else is imported.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if _TUNABLE in tunables or _has_accelerator() or not (_glibc_knows() and _kernel_waits()):
        return
    os.environ["GLIBC_TUNABLES"] = f"{tunables}:{_TUNABLE}=1".lstrip(":")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _has_accelerator():
    """Asks the file system: asking jax would take the time that is to be saved."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    return any(glob.glob(pattern) for pattern in _ACCELERATORS)


def _glibc_knows():
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)


def _kernel_waits():
    """Whether huge pages go to those who ask: `always [madvise] never`."""
    try:
        return "[madvise]" in _KERNEL.read_text()
    except OSError:
        return False
