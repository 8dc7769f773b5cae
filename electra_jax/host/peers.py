# SPDX-License-Identifier: Apache-2.0
"""The processes of one run: they start together, and the end of one ends the others.

`join` waits until every process has come, and says for whom it waits (`joining`). The first process
listens at the address that jax will use (`--coordinator_address`); the others connect to it, and
these connections stay open beside jax's own (`wire`, `peer_group`). When a process dies, its
operating system closes them, so the others know at once; when a whole machine is gone, they know
after 30 seconds of silence. A process that learns of the end of another prints one line that names
it and exits, because a computation that waits for a missing process would wait forever.

jax itself would abort with pages of stack traces in that case; `relay` prevents it.

A process that fails says so before it cleans up. If all fail in the same way, as when they agree
that a file cannot be read, each prints its own error. If the others have not failed 5 seconds
later, they end and name the process that did.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from electra_jax.host import joining, peer_group, relay

START_SECONDS = 300  # seconds that `join` waits for the others
# Seconds. Long, because the threads of `relay` need Python's lock: while a process holds it, jax
# hears no heartbeat from there. Our own connections notice a dead process much sooner.
_HEARTBEAT = 600

_group: peer_group.PeerGroup | None = None


@dataclasses.dataclass(frozen=True)
class Address:
    """The arguments of jax.distributed.initialize."""

    coordinator: str  # HOST:PORT of the first process
    count: int  # of processes
    me: int  # number of this process, from 0
    devices: Any = None  # numbers of this process's GPUs; None: all that it sees


def join(address: Address, seconds: float = START_SECONDS) -> None:
    """Waits for all processes of a run and starts jax.distributed.

    Raises joining.PeersError on all processes that came, if one of them did not come within
    `seconds`, two have the same number, or they run different code.
    """
    global _group

    host, _, port = address.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise joining.PeersError(
            f"--coordinator_address={address.coordinator} is not HOST:PORT of 1 to 65535"
        )

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
        _group = peer_group.PeerGroup(address.me, sockets, names)

    # `PeerGroup.reached` does what jax's preemption service does, and that one would take SIGTERM
    # from `signals`. Not every version of jax has the option.
    with contextlib.suppress(AttributeError):
        jax.config.update("jax_enable_preemption_service", False)

    jax.distributed.initialize(
        coordinator,
        address.count,
        address.me,
        address.devices,
        # Otherwise jax asks the surroundings once more and leaves this process one GPU.
        cluster_detection_method="deactivate",
        initialization_timeout=max(1, int(seconds)),
        heartbeat_timeout_seconds=_HEARTBEAT if address.count > 1 else 100,
    )


def group() -> peer_group.PeerGroup | None:
    """Returns the processes that `join` brought together.

    Returns None if there is only one process, or if jax.distributed was started without `join`.
    """
    return _group


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Tells the other processes about an error in the block before anything is cleaned up."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if _group is not None:
            # Errors of this package and of the operating system are written for users; others need
            # the name of their type to be understood.
            kind, text = type(error), str(error)
            ours = kind.__module__.startswith("electra_jax") or isinstance(error, OSError)
            text = text if text and ours else f"{kind.__name__}: {text}"
            _group.failing(text, getattr(error, "why", ""))
        raise
