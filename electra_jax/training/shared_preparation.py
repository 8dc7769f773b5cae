# SPDX-License-Identifier: Apache-2.0
"""The processes of a run prepare text together: each builds a share of the units.

    process 0     lead: makes the vocabulary, marks duplicates, sums up and writes the manifest
                    -> "look"            -> who sees its folder, with how many cores
                    -> "hash", "build"   -> each does its share -> what came out of each unit
                    -> "end"             -> the data is there, or cannot be prepared
    the others    serve: do what process 0 asks for, until it says "end"

A share is a run of neighbouring units, so that most files are read, and those elsewhere downloaded,
by one process alone. Its size is in proportion to the cores of its process. A process that sees
neither the folder of process 0 nor the same bucket gets no share: it prepares the same data itself
later, on its own disk.

A process that cannot build one of its units ends with an error at once, and so do the others, which
may be in the middle of theirs. Finished units stay, and the next start shares out what is missing,
on any number of processes.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from electra_jax.data import (
    duplicates,
    executors,
    planning,
    preparation,
    sent_units,
    stripes,
    unit_files,
    unit_rows,
    worker_pool,
)
from electra_jax.host import processes, staging

_DOING = "to prepare the data"  # what others are waited for, for the log
_SHARED = {"hash": duplicates.hash_unit, "build": unit_rows.build}
_DONE = {"hash": "looking for duplicates", "build": "cutting rows"}  # the phases of process 0


class ShareError(RuntimeError):
    """This process cannot do its share, so all processes end. The message is one line."""


def lead(
    find: Callable[[executors.Factory | None], str], make_executor: executors.Factory | None = None
) -> str:
    """Runs `find` on process 0, while the others `serve`; returns what it returns.

    Args:
      find: finds prepared rows or prepares them, and returns their folder. It is given what makes
        the executor that builds the units.
      make_executor: what a single process gives to `find`. Several are the executor themselves.

    Raises what `find` raises, and ShareError.
    """
    if processes.is_alone():
        return find(make_executor)

    try:
        folder = find(_AllProcesses)
    except (ValueError, OSError):
        _tell({"do": "end"})
        raise
    _tell({"do": "end"})
    return folder


def serve(settings: planning.DataSettings, root: str) -> None:
    """Does what process 0 asks this process for, until all is prepared or cannot be.

    Args:
      settings: what process 0 prepares, if anything is missing.
      root: the folder that holds one folder per prepared data set (data.dir).

    Raises ShareError.
    """
    plan, workers, tasks = None, None, {}
    with contextlib.ExitStack() as stack:
        while (asked := _told())["do"] != "end":
            if asked["do"] == "look":
                plan, tasks = _plan_if_seen(settings, root, asked)
                if plan is not None:
                    # Runs after the workers, which are entered below, have ended.
                    stack.callback(_withdraw_stripes, plan.folder)
                answers = _exchange(_about(settings, plan is not None))
                if cores := _cores(answers)[jax.process_index()]:
                    workers = stack.enter_context(worker_pool.Workers(cores))
                continue

            _exchange(_do_share(asked, plan, tasks, workers))


def _do_share(asked, plan, tasks, workers):
    """{name of a unit: result} of the units that process 0 has given to this process."""
    mine = [
        dataclasses.replace(tasks[name], heldout_below=bound, vocabulary=asked["vocabulary"])
        for name, bound, owner in asked["units"]
        if owner == jax.process_index()
    ]
    if not mine:
        return {}

    done = _DONE[asked["do"]]
    logging.info("%s: %d of %d units in this process", done, len(mine), len(asked["units"]))
    with _as_share(plan):
        _offer_stripes(mine)
        function = sent_units.elsewhere(_SHARED[asked["do"]])
        return {task.name: result for task, result in workers.each(function, mine)}


def shares(sizes: Sequence[int], cores: Sequence[int]) -> list[int]:
    """Returns for each unit the number of the process that builds it.

    Args:
      sizes: bytes of text of each unit.
      cores: of each process; one with 0 gets no unit.
    """
    # The middle of each unit, on a line from 0 to the size of all text, and where shares end on it.
    middles = np.cumsum(sizes) - np.asarray(sizes) / 2
    ends = np.cumsum(cores) / sum(cores) * sum(sizes)
    return np.searchsorted(ends, middles, side="right").tolist()


class _AllProcesses:
    """Process 0's view of all processes of a run, as an executor (see executors.py)."""

    is_local = True

    def __init__(self, plan: planning.DataPlan):
        self._plan = plan
        self._cores: list[int] = []
        self._own: worker_pool.Workers | None = None

    @property
    def count(self) -> int:
        """The cores of all processes that have a share."""
        return sum(self._cores)

    @property
    def characters(self) -> int:
        """Characters that process 0 has tokenised."""
        return self._own.characters

    def __enter__(self) -> "_AllProcesses":
        token = secrets.token_hex(8)
        path = _token_path(self._plan.folder, token)
        with open(path, "wb"):
            pass
        address = staging.address(self._plan.folder)
        _tell({"do": "look", "key": self._plan.key, "token": token, "address": address})
        self._cores = _cores(_exchange(_about(self._plan.settings, True)))
        os.remove(path)

        self._own = worker_pool.Workers(self._cores[0]).__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._own.__exit__(*error)

    def kill(self) -> None:
        """Kills the processes of process 0."""
        self._own.kill()

    def followed(self, tasks: Sequence[planning.UnitTask]) -> Sequence[planning.UnitTask]:
        """The share of process 0, by whose progress that of all is judged."""
        return [task for task, owner in zip(tasks, self._owners(tasks)) if not owner]

    def each(
        self, function: Callable[[Any], Any], tasks: Sequence[planning.UnitTask]
    ) -> Iterator[tuple[planning.UnitTask, Any]]:
        """Yields (task, function(task)): those of process 0 first, then those of the others.

        Raises ShareError if process 0 cannot do its share.
        """
        kind = next((name for name, known in _SHARED.items() if known == function), None)
        if kind is None or not tasks or not any(self._cores[1:]):
            _offer_stripes(tasks if kind else [])
            yield from self._own.each(function, tasks)
            return

        owners = self._owners(tasks)
        units = [[task.name, task.heldout_below, n] for task, n in zip(tasks, owners)]
        sent_units.before(function, tasks)
        _tell({"do": kind, "vocabulary": tasks[0].vocabulary, "units": units})
        with _as_share(self._plan):
            mine = [task for task, owner in zip(tasks, owners) if not owner]
            _offer_stripes(mine)
            for task, result in self._own.each(sent_units.elsewhere(function), mine):
                sent_units.took(function, task, result)
                yield task, result

        answers = _exchange({})
        for task, owner in zip(tasks, owners):
            if owner:
                sent_units.took(function, task, answers[owner][task.name])
                yield task, answers[owner][task.name]

    def _owners(self, tasks):
        return shares([unit_files.text_bytes(task) for task in tasks], self._cores)


def _plan_if_seen(settings, root, asked):
    """(plan, {name: task}) if this process sees the folder and the text of process 0, else Nones.

    An error is ignored here: it comes again when this process prepares for itself.
    """
    try:
        plan = planning.make_plan(settings, root)
        here = os.path.exists(_token_path(plan.folder, asked["token"]))
        in_bucket = asked["address"] and staging.address(plan.folder) == asked["address"]
        if plan.key == asked["key"] and (here or in_bucket):
            return plan, {task.name: task for task in planning.make_tasks(plan)}
    except (ValueError, OSError):
        pass
    return None, {}


def _offer_stripes(tasks):
    """Lets this process read a large file once for all its stripes among these tasks.

    In a folder that all see, process 0 does that for all; in a bucket each has a copy of its own.
    """
    if tasks and staging.address(tasks[0].folder):
        stripes.offer(tasks, os.path.join(tasks[0].folder, unit_files.UNITS))


def _withdraw_stripes(folder):
    """Removes the stripes from this process's copy; process 0 removes the files of all units."""
    if staging.address(folder):
        stripes.withdraw(os.path.join(folder, unit_files.UNITS))


def _token_path(folder, token):
    return os.path.join(folder, unit_files.UNITS, f"{token}.seen")


def _about(settings, sees):
    """What a process says of itself when process 0 asks it to look for the folder."""
    return {
        "sees": sees,
        "host": socket.gethostname(),
        "workers": settings.workers,
        "cores": worker_pool.worker_count(0),
    }


def _cores(answers):
    """How many worker processes each process of the run has; 0 for one without a share."""
    hosts = [one["host"] for one in answers if one["sees"]]
    return [
        one["sees"] and (one["workers"] or max(1, one["cores"] // hosts.count(one["host"])))
        for one in answers
    ]


@contextlib.contextmanager
def _as_share(plan):
    """Turns the errors of one process, with which all end, into a ShareError."""
    try:
        with preparation.explained_failures(plan):
            yield
    except (ValueError, OSError) as error:
        raise ShareError(str(error)) from error


def _tell(message):
    """Process 0 says what is to be done; the others hear it by `_told`."""
    processes.gather(json.dumps(message), _DOING)


def _told():
    return json.loads(processes.gather("", _DOING)[0])


def _exchange(mine):
    """Returns what each process says, in the order of their numbers."""
    return [json.loads(text) for text in processes.gather(json.dumps(mine), _DOING)]
