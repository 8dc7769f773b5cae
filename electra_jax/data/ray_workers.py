# SPDX-License-Identifier: Apache-2.0
"""Units of text as tasks of Ray, on all nodes of a cluster (`electra_jax.prepare --ray=ADDRESS`).

    connect    this process becomes a driver of the cluster
    compare    each node has the same Python, packages and text, and sees the prepared folder
    each       a task of Ray for each unit; results are files of that folder

Ray decides which node does a task, and does a task again elsewhere if its worker or its node is
lost. Characters are counted when a unit is finished, not while it is cut as on one machine.

Everything that is not a unit of text stays in the driver, so the lock, the vocabulary, the totals
and the manifest are made as on one machine. If the driver is killed, Ray ends its tasks, and the
next call continues with the units that are missing.
"""

import concurrent.futures
import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from electra_jax.data import (
    executors,
    planning,
    ray_node,
    sent_units,
    text_files,
    unit_files,
    worker_pool,
)
from electra_jax.host import error_causes, extras, staging

AUTO = "auto"  # the cluster that this machine belongs to
_LOST = 5  # times that a unit is begun again after its worker or its node was lost
_AHEAD = 4  # tasks that are handed to Ray at the same time, for each core
_ANSWER = 10.0  # seconds in which the cluster must take a connection


def check(address: str) -> None:
    """Raises ValueError, one line, if the address is malformed or no cluster answers there.

    Args:
      address: HOST:PORT of a cluster's head, or AUTO.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError(
            f"--ray={address} needs ray, which is not installed: {extras.command('ray')}"
        )

    if address == AUTO:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        raise ValueError(
            f"--ray={address!r} is neither HOST:PORT, as `ray start --head` prints it, nor {AUTO};"
            " run this command on a machine of the cluster"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error
    _refuse_other_server(address)


def factory(address: str) -> executors.Factory:
    """Returns what makes an executor on this cluster; see `check` for addresses."""
    return lambda plan: RayWorkers(address, plan)


class RayWorkers:
    """Runs a function on tasks, on all nodes of a cluster.

    Args:
      address: as in `check`.
      plan: what is prepared; its folder exists. data.workers is the number of tasks that run at the
        same time on the whole cluster; 0 means one per CPU that Ray counts.
    """

    is_local = False

    def __init__(self, address: str, plan: planning.DataPlan):
        self._address, self._plan = address, plan
        self.characters = 0
        self.count = 0
        self._here = ray_node.versions_and_text(plan.sources)

    def __enter__(self) -> "RayWorkers":
        _connect(self._address)
        try:
            cores = _cores()
            if not cores:
                raise ValueError(
                    f"--ray={self._address}: no node of the cluster offers a CPU to Ray; start one"
                    " with ray start --num-cpus=N"
                )
            self.count = min(cores, self._plan.settings.workers or cores)
            self._compare_nodes()
            return self
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_) -> None:
        self.kill()

    def kill(self) -> None:
        """Leaves the cluster, which ends the tasks of this driver."""
        import ray  # noqa: PLC0415 - an extra

        ray.shutdown()

    def followed(self, tasks: Sequence[planning.UnitTask]) -> Sequence[planning.UnitTask]:
        """The tasks whose characters are counted: all."""
        return tasks

    def each(
        self, function: Callable[[Any], Any], tasks: Sequence[planning.UnitTask]
    ) -> Iterator[tuple[planning.UnitTask, Any]]:
        """Yields (task, function(task)) in the order in which the tasks finish.

        Raises ValueError, one line, by which one of our functions has refused its task, or if a
        task is lost too often.
        """
        import ray  # noqa: PLC0415 - an extra

        remote = ray.remote(num_cpus=1, max_retries=_LOST, scheduling_strategy="SPREAD")
        do_task = remote(ray_node.do_task)
        address = staging.address(self._plan.folder)
        driver = ray_node.Driver(ray_node.versions(), os.getcwd(), address)

        sent_units.before(function, tasks)
        waiting = list(reversed(tasks))
        running: dict[concurrent.futures.Future[Any], tuple[Any, planning.UnitTask]] = {}
        while waiting or running:
            # Asked again each time, since nodes come and go.
            room = self._plan.settings.workers or max(_AHEAD * _cores(), 1)
            while waiting and len(running) < room:
                task = waiting.pop()
                reference = do_task.remote(function, task, driver)
                running[reference.future()] = reference, task

            # Not ray.wait, which would replace the exception that a signal raises by its own.
            finished, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            done = finished.pop()
            _, task = running.pop(done)
            answered, characters = _taken(done, task)
            self.characters += characters
            result = worker_pool.result_of(answered)
            sent_units.took(function, task, result)
            yield task, result

    def _compare_nodes(self):
        """Raises ValueError, one line, that names each node which would write other bytes."""
        name = os.path.join(unit_files.UNITS, f"{secrets.token_hex(4)}.seen")
        token = os.path.join(self._plan.folder, name)
        with open(token, "wb"):
            pass
        try:
            found = _on_each_node(self._plan.sources, staging.place(token))
        finally:
            os.remove(token)

        wrong = [f"{node} {why}" for node, theirs in found if (why := self._why_not(theirs))]
        if wrong:
            raise ValueError(
                f"{len(wrong)} of {len(found)} nodes of the cluster cannot prepare"
                f" {self._plan.folder}: {'; '.join(wrong[:3])}"
            )

    def _why_not(self, theirs):
        if isinstance(theirs, str):
            return theirs
        return ray_node.difference(self._here, theirs)


def _refuse_other_server(address):
    """Raises ValueError, one line, if what listens there is no cluster: Ray would wait for ever."""
    health = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        # Only silence is judged here. Of all else, such as other versions, Ray gives the reason.
        subprocess.run(health, timeout=_ANSWER, capture_output=True, check=False)
    except subprocess.TimeoutExpired as error:
        raise _no_cluster(address, TimeoutError("what listens there is silent")) from error


def _connect(address):
    """Makes this process a driver of the cluster. Raises ValueError, one line."""
    import ray  # noqa: PLC0415 - an extra

    try:
        with _own_signals():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, TimeoutError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address, error):
    return ValueError(
        f"--ray={address}: no cluster of Ray can be used there ({text_files.reason(error)});"
        " start one with `ray start --head`, let each machine join it with"
        " `ray start --address=HOST:PORT`, and run this command on one of them"
    )


@contextlib.contextmanager
def _own_signals():
    """Keeps the handler of SIGTERM, which Ray replaces by its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not the main thread, where Ray sets none either
            signal.signal(signal.SIGTERM, before)


def _cores():
    """The CPUs that the nodes offer now."""
    import ray  # noqa: PLC0415 - an extra

    return int(ray.cluster_resources().get("CPU", 0))


def _on_each_node(sources, token):
    """Returns [(name of a node, what `ray_node.inspect_node` says there)]."""
    import ray  # noqa: PLC0415 - an extra
    from ray.util import scheduling_strategies  # noqa: PLC0415 - as above

    def inspect_node(sources, token, where):
        # Within a function, so that a node without the package can say so.
        try:
            from electra_jax.data import ray_node  # noqa: PLC0415 - it may be missing
        except ImportError as error:
            return f"cannot import electra_jax ({error}); install it there"
        return ray_node.inspect_node(sources, token, where)

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    asked = []
    for node in nodes:
        there = scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ask = ray.remote(num_cpus=0, scheduling_strategy=there)(inspect_node)
        asked.append(ask.remote(sources, token, os.getcwd()))

    found = []
    for node, one in zip(nodes, asked, strict=True):
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            found.append((name, ray.get(one)))
        except ray.exceptions.RayTaskError as error:
            found.append((name, f"fails: {text_files.reason(error.cause)}"))
        except ray.exceptions.RayError:
            continue  # it has gone meanwhile
    return found


def _taken(done, task):
    """What a task has returned. Raises its error, and MayPass if it was lost too often."""
    import ray  # noqa: PLC0415 - an extra

    try:
        return done.result()
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OSError):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        raise error_causes.MayPass(
            f"the unit {task.name} was begun {_LOST + 1} times, and each time its worker or its"
            f" node was lost ({type(error).__name__}), most likely for memory; start the nodes with"
            " a smaller --num-cpus, and run again: it continues from here"
        ) from error
