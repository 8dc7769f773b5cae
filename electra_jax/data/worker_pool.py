# SPDX-License-Identifier: Apache-2.0
"""Processes that do the units of text, started clean and ended with their parent."""

import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import types

from electra_jax.data import progress_lines


class Workers:
    """Runs a function on tasks, in processes of its own if there are to be several."""

    def __init__(self, workers):
        self._pool = None
        self.count = worker_count(workers)
        # Forking a process that runs JAX's threads can hang; a spawned one starts clean.
        context = multiprocessing.get_context("spawn")
        self._characters = context.Value("q", 0)
        progress_lines.count_in(self._characters)
        if self.count > 1:
            ends, self._lives = context.Pipe(duplex=False)
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=_start_worker,
                initargs=(ends, self._characters),
            )

    @property
    def characters(self) -> int:
        """How many went through the tokenizer so far, those of unfinished units too."""
        return self._characters.value

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self._pool:
            if kind is not None:
                self._lives.close()  # a unit may take minutes
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
            self._lives.close()

    def each(self, function, tasks):
        """(task, function(task)) as they finish."""
        if self._pool is None or len(tasks) < 2:
            for task in tasks:
                yield task, function(task)
            return
        with _no_main(), _no_signals():
            futures = {self._pool.submit(_answer, function, task): task for task in tasks}
        for future in concurrent.futures.as_completed(futures):
            answer = future.result()
            if isinstance(answer, ValueError):
                raise ValueError(*answer.args)
            yield futures[future], answer


def worker_count(workers):
    if workers:
        return workers
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _no_main():
    """A new process imports the caller's main module, JAX and all; these workers need none."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _no_signals():
    """A new process inherits what is blocked here: Ctrl-C goes to all processes of a terminal, and
    each of these would print its traceback. They end when their parent does, or says so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(ends, characters):
    progress_lines.count_in(characters)
    # Killed, a parent cannot stop its workers, and they would wait for ever.
    threading.Thread(target=_die_with_parent, args=(ends,), daemon=True).start()


def _die_with_parent(ends):
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel, ends])
    os._exit(1)


def _answer(function, task):
    """The result, or our own refusal as a value: raised elsewhere, it would look like a bug."""
    try:
        return function(task)
    except ValueError as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        if trace.tb_frame.f_globals["__name__"].startswith("electra_jax"):
            return error
        raise
