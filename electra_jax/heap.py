# SPDX-License-Identifier: Apache-2.0
"""Keeps the memory of a step for the next one, on a CPU.

XLA asks malloc for its buffers anew at each step and gives them back after it. glibc takes blocks
of that size from the kernel and returns them at once, so every step begins by having hundreds of
thousands of pages mapped and zeroed: a fifth of a step of ELECTRA-Small (docs/performance.md).
Accelerators have allocators of their own and are not touched.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # the names of malloc.h, without their M_
_NEVER = 2**31 - 1


def keep() -> bool:
    """Tells malloc to keep what is freed, in one arena; True where it is glibc and understood."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))
    return all([mallopt(name, value) == 1 for name, value in settings])
