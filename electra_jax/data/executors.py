# SPDX-License-Identifier: Apache-2.0
"""What builds units of text: processes of this machine, of a run, or of a cluster.

    worker_pool.Workers                    processes of this machine
    ray_workers.RayWorkers                 tasks on all nodes of a cluster of Ray
    training.shared_preparation            the processes of a run, each on its own machine

Whichever it is, a task has all that is needed to do it, the results are in files of the prepared
folder, and the bytes of these files are the same.
"""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol

from electra_jax.data import planning


class Executor(Protocol):
    """Runs functions on tasks, in other processes if it has some; a context manager."""

    count: int  # cores that work
    is_local: bool  # whether the tasks of `followed` are done on this machine

    @property
    def characters(self) -> int:
        """Characters tokenised so far, of the tasks of `followed`."""

    def followed(self, tasks: Sequence[planning.UnitTask]) -> Sequence[planning.UnitTask]:
        """The tasks whose progress is known while they run; usually all of them."""

    def each(
        self, function: Callable[[Any], Any], tasks: Sequence[planning.UnitTask]
    ) -> Iterator[tuple[planning.UnitTask, Any]]:
        """Yields (task, function(task)) in the order in which the tasks finish.

        Raises the ValueError by which one of our functions has refused its task.
        """

    def kill(self) -> None:
        """Ends the work at once; `each` raises an error then. May be called in any thread."""

    def __enter__(self) -> "Executor": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Factory = Callable[[planning.DataPlan], Executor]  # called once the prepared folder is there
