# SPDX-License-Identifier: Apache-2.0
"""Who holds a lock, noted so that others can tell whether that process still lives.

Process ids are used again, and containers may share the name of their host and have processes with
the same ids. So an owner is identified by its host, the boot id of the machine, the namespace of
its process ids, its process id and the time at which it started.
"""

import os
import socket
from collections.abc import Mapping
from typing import Any


def me() -> dict[str, Any]:
    """What this process notes of itself, as JSON data."""
    return {
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
    }


def is_here(owner: Mapping[str, Any]) -> bool:
    """Whether an owner has the same host, boot and namespace of process ids as this process."""
    of_owner, here = owner.get("machine", ""), machine()
    return bool(here) and (owner.get("host"), of_owner) == (socket.gethostname(), here)


def runs(pid: int, began: str) -> bool:
    """Whether a process of this machine that began then is another one, and is still there."""
    return pid != os.getpid() and started(pid) == began


def started(pid: int) -> str:
    """When a process began, in ticks since the start of the machine; '' if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]  # its name may hold anything
    except OSError:
        return ""


def machine() -> str:
    """The boot id of this machine and the namespace of process ids; '' if they are not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
