# SPDX-License-Identifier: Apache-2.0
"""Worker processes for the units of text: spawned without jax, ended together with their parent.

With one worker, or with one task, everything runs in the calling process.
"""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from electra_jax.data import progress_lines
from electra_jax.host import environment_variables, error_causes

# There are as many workers as cores. If each of them started a thread per core, a machine of 64
# cores would have thousands of threads, more than many systems allow.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Workers:
    """Runs a function on tasks, in a pool of processes if there is more than one worker.

    Args:
      workers: data.workers, the number of processes.
      always_spawn: whether to use a process even for a single worker or a single task.
    """

    is_local = True

    def __init__(self, workers: int, always_spawn: bool = False):
        self._apart = always_spawn
        self._pool = None
        self._characters_at_end = 0
        self.count = worker_count(workers)

        # Forking a process that runs JAX's threads can hang; a spawned one starts clean.
        context = multiprocessing.get_context("spawn")
        with _no_warning_of_semaphores():
            self._characters: Any = context.Value("q", 0)
        progress_lines.count_in(self._characters)

        self._processes: set[multiprocessing.process.BaseProcess] = set()
        if self.count > 1 or always_spawn:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=_start_worker,
                initargs=(self._characters,),
            )

    @property
    def characters(self) -> int:
        """Characters tokenised so far by all processes, including those of unfinished units."""
        counted = self._characters
        return self._characters_at_end if counted is None else counted.value

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind, *_) -> None:
        if self._pool is not None:
            if kind is not None:
                self.kill()  # a unit may take minutes, and its process may not have begun to listen
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)

        # The semaphores go with them.
        self._characters_at_end = self.characters
        self._pool = self._characters = None
        progress_lines.count_in(None)

    def kill(self) -> None:
        """Kills the processes; `each` raises BrokenExecutor then. May be called in any thread."""
        for process in list(self._processes):
            process.kill()

    def followed(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """The tasks whose characters are counted: all."""
        return tasks

    def each(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple]:
        """Yields (task, function(task)) in the order in which the tasks finish.

        Raises the ValueError by which one of our functions has refused its task.
        """
        if self._pool is None or (len(tasks) < 2 and not self._apart):
            for task in tasks:
                yield task, function(task)
            return

        others = set(multiprocessing.active_children()) - self._processes
        with _no_main(), _no_signals(), environment_variables.set_during(_ONE_THREAD):
            futures = {self._pool.submit(answer, function, task): task for task in tasks}
            self._processes = set(multiprocessing.active_children()) - others

        for future in concurrent.futures.as_completed(futures):
            yield futures[future], result_of(future.result())


def worker_count(workers: int) -> int:
    """The number of processes that data.workers asks for; 0 means one per available core."""
    if workers:
        return workers
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _no_warning_of_semaphores():
    """Keeps Python's resource tracker quiet, which begins with the first semaphore.

    The tracker removes the semaphores of a process that has ended at once (`exit_now`), and would
    warn of them below that process's last line. It is a process of its own, so only its environment
    can tell it.
    """
    before = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore:resource_tracker:UserWarning"
    with environment_variables.set_during(
        {"PYTHONWARNINGS": f"{before},{quiet}" if before else quiet}
    ):
        yield


@contextlib.contextmanager
def _no_main():
    """Hides the main module while processes start.

    A spawned process imports the main module of its parent, which would import jax here; the
    workers need neither.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _no_signals():
    """Blocks SIGINT and SIGTERM while processes start, which inherit the blocked signals.

    Ctrl-C is sent to all processes of a terminal, and each worker would print a traceback. Workers
    end when the parent kills them or ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(characters):
    progress_lines.count_in(characters)

    # A parent that is killed cannot stop its workers, which would wait forever.
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent():
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def answer(function: Callable[[Any], Any], task: Any) -> Any:
    """Returns the result, or the ValueError itself if a module of this package has raised it.

    Such an error is a refusal meant for the user. The pool would raise it again from its own
    modules, and the command line would take it for a bug, since it looks at where an error was
    raised. `result_of` raises it again from here.
    """
    try:
        return function(task)
    except ValueError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next

        if trace.tb_frame.f_globals["__name__"].startswith("electra_jax"):
            # Its causes do not reach another process.
            return error_causes.MayPass(*error.args) if error_causes.may_pass(error) else error
        raise


def result_of(answered: Any) -> Any:
    """Returns what `answer` has returned, or raises the ValueError that it has returned."""
    if isinstance(answered, error_causes.MayPass):
        raise error_causes.MayPass(*answered.args)
    if isinstance(answered, ValueError):
        raise ValueError(*answered.args)
    return answered
