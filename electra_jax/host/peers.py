# SPDX-License-Identifier: Apache-2.0
"""The processes of one run: how they find each other, and how the end of one reaches the others.

`join` waits until every process has come, and says for whom it waits. The first process listens
where jax will (`--coordinator_address`); the others connect to it, and these connections stay open
beside jax's own. The operating system closes them when a process dies, so the others know it at
once; where a whole machine is gone, its silence of 30 seconds tells them. Whoever learns that
another one is gone prints one line that names it and exits: waiting inside a computation for a
process that will never come has no other end.

jax aborts a process, with pages of stack, in the moment in which its connection to the first
process closes. So the others reach jax's service through a relay of their own, which keeps that
connection open until the line is printed.

A process that fails by itself says so before it unwinds. Where all fail alike, as when they agree
that a file cannot be read, each ends in its own words; where the others have not failed 5 seconds
later, they end and name the one that did.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from electra_jax.host import joining, peer_group, relay

START_SECONDS = 300  # how long `join` waits for the others
# With the relay jax hears no process that holds Python's lock for long; the connections do.
_HEARTBEAT = 600

_group: peer_group.Group | None = None


@dataclasses.dataclass(frozen=True)
class Address:
    """What jax.distributed.initialize wants to know."""

    coordinator: str  # HOST:PORT of the first process
    count: int
    me: int
    devices: Any = None  # ids of this process's devices, where several share a machine


def join(address: Address, seconds: float = START_SECONDS) -> None:
    """Waits for all processes of a run and starts jax.distributed.

    Raises joining.PeersError on all that came: one of them did not come in time, two have one
    number, or they run different code.
    """
    global _group
    host, _, port = address.coordinator.rpartition(":")
    if not port.isdecimal():
        raise joining.PeersError(f"--coordinator_address={address.coordinator} is not HOST:PORT")
    if not 0 <= address.me < address.count:
        raise joining.PeersError(
            f"--process_id={address.me} is outside 0 to {address.count - 1}, which"
            f" --num_processes={address.count} allows"
        )
    coordinator = address.coordinator
    if address.count > 1:
        about = joining.introduction(address)
        if address.me == 0:
            sockets, names = joining.meet(int(port), about, seconds)
        else:
            first, names = joining.find_first(host.strip("[]"), int(port), about, seconds)
            sockets = {0: first}
            coordinator = f"127.0.0.1:{relay.start(host.strip('[]'), int(port))}"
        _group = peer_group.Group(address.me, sockets, names)
    # Ours asks at which step all can stop (`Group.reached`), and leaves SIGTERM to `signals`.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator,
        address.count,
        address.me,
        address.devices,
        initialization_timeout=max(1, int(seconds)),
        heartbeat_timeout_seconds=_HEARTBEAT if address.count > 1 else 100,
    )


def group() -> peer_group.Group | None:
    """The processes that `join` brought together; None if there is one, or jax was started
    otherwise."""
    return _group


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Tells the other processes of an error in the block, before anything around it is undone."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if _group is not None:
            kind, text = type(error), str(error)
            ours = kind.__module__.startswith("electra_jax") or isinstance(error, OSError)
            text = text if text and ours else f"{kind.__name__}: {text}"
            _group.failing(text, getattr(error, "why", ""))
        raise
