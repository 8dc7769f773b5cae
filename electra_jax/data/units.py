# SPDX-License-Identifier: Apache-2.0
"""Builds all units of text, each once, and gives every source both training and held-out text."""

import collections
import dataclasses
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_jax.data import (
    by_source,
    downloads,
    executors,
    planning,
    progress_lines,
    text_files,
    unit_files,
    unit_rows,
)


def build_all(
    tasks: Sequence[planning.UnitTask],
    workers: executors.Executor,
    phases: progress_lines.Phases,
    name: str = "cutting rows",
    finished: Callable[[planning.UnitTask], dict[str, Any] | None] = unit_files.finished,
    places: Mapping[str, int] = types.MappingProxyType({}),
    built: Callable[[planning.UnitTask, dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Builds the units that are not finished; returns the results of all, in order of the tasks.

    Args:
      tasks: one for each unit.
      workers: what builds.
      phases: are told how far the work is.
      name: of the phase in which this is done.
      finished: returns the result of a unit that needs no building, else None.
      places: by the name of a unit, its place in the order in which they are built; in the order of
        the tasks if there are none.
      built: called for each unit that is finished, first for those that were finished before.
    """
    results = {task.name: finished(task) for task in tasks}
    if built is not None:
        for task in tasks:
            if (result := results[task.name]) is not None:
                built(task, result)

    todo = [task for task in tasks if results[task.name] is None]
    todo.sort(key=lambda task: places.get(task.name, 0))
    if not todo:
        return [results[task.name] for task in tasks]
    if len(todo) < len(tasks):
        phases.tell(f"{len(tasks) - len(todo)} of {len(tasks)} units are there already")

    began, tokens = time.monotonic(), 0
    followed = workers.followed(todo)
    so_far = _Cut({task.name: unit_files.text_bytes(task) for task in followed}, workers)
    fetched = downloads.so_far(todo, workers)
    phases.begin(name, share=so_far.share, more=lambda: fetched() or so_far.characters())
    for task, result in workers.each(unit_rows.build, todo):
        results[task.name] = result
        if built is not None:
            built(task, result)
        so_far.add(task.name, result["counts"]["characters"])
        tokens += result["counts"]["tokens"]

    rate, cores = tokens / max(time.monotonic() - began, 1e-9), min(workers.count, len(todo))
    phases.tell(
        f"{tokens:,} tokens cut into rows at {rate:,.0f} tokens/s,"
        f" {rate / cores:,.0f} per core on {cores}"
    )
    return [results[task.name] for task in tasks]


class _Cut:
    """How much of the text of the followed units was cut into rows, by all workers together."""

    def __init__(self, sizes: dict[str, int], workers: executors.Executor):
        """Takes the size of each unit's text in bytes."""
        self._sizes, self._workers, self._before = sizes, workers, workers.characters
        self._bytes, self._all = 0, sum(sizes.values())  # of the units that are finished; of all
        self._finished = 0  # characters of the units that are finished

    def add(self, name: str, characters: int) -> None:
        """Counts a unit that is finished, if it is one of those that are followed."""
        if name in self._sizes:
            self._finished += characters
            self._bytes += self._sizes[name]

    def share(self) -> float:
        """From 0 to 1, which it reaches with the last unit.

        What is finished counts by the size of its text. What the workers have tokenised beyond it
        counts by its characters, each as large as those before, or one byte at the beginning.
        """
        under_way = max(0, self._tokenised() - self._finished)
        size = self._bytes / self._finished if self._finished else 1.0
        left = self._all - self._bytes
        return (self._bytes + min(under_way * size, 0.99 * left)) / max(1, self._all)

    def characters(self) -> str:
        """How many characters all workers have tokenised so far."""
        return f"{self._tokenised():,} characters tokenised"

    def _tokenised(self):
        return self._workers.characters - self._before


def with_both_splits(
    plan: planning.DataPlan, tasks: Sequence[planning.UnitTask], results: Sequence[dict[str, Any]]
) -> list[planning.UnitTask]:
    """Changes tasks so that each source has at least one training and one held-out document.

    If a source has no held-out document, the bound on the hash is raised just above its smallest
    hash; if it has no training document, the bound is lowered to its largest hash. Only the units
    that hold such a document get the new bound, and only they must be built again.

    Raises ValueError, one line, for a source that has no two different documents.
    """
    moved = list(tasks)

    for s, source in enumerate(plan.sources):
        mine = [i for i, task in enumerate(tasks) if task.source_index == s]
        extremes = [results[i]["extremes"] for i in mine if results[i]["extremes"]]
        counts: collections.Counter = collections.Counter()
        for i in mine:
            counts.update(results[i]["counts"])
        if not extremes:
            _refuse_duplicates(plan, source, counts)
            raise planning.refusal(source, counts)

        smallest, largest = min(x[0] for x in extremes), max(x[1] for x in extremes)
        if smallest == largest:
            _refuse_duplicates(plan, source, counts)
            _refuse_one_document(plan, source, counts["documents"])

        for i in mine:
            below = tasks[i].heldout_below
            if below <= smallest and results[i]["extremes"][:1] == [smallest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=smallest + 1)
            elif below > largest and results[i]["extremes"][1:] == [largest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=largest)

    return moved


def _refuse_duplicates(plan, source, counts):
    """Raises ValueError if a source would have enough documents, had none of them been dropped."""
    if counts["duplicates"]:
        similarity = plan.settings.duplicate_similarity
        fewer = "data.deduplicate=False"
        if similarity < 1:
            fewer = f"a data.duplicate_similarity above {similarity:g}, or {fewer}"
        raise ValueError(
            f"source {source.spec}: {counts['duplicates']:,} of"
            f" {counts['duplicates'] + counts['documents']:,} documents are dropped as duplicates,"
            f" and two must be left, one of them to be held out; leave out that source, or set"
            f" {fewer}"
        )


def _refuse_one_document(plan, source, count):
    if count > 1:
        raise ValueError(
            f"source {source.spec} holds {count:,} documents that are all equal; equal"
            " documents go to the same split, and one must be held out; add a different one"
        )
    given, names = plan.settings.documents, [one.name for one in plan.sources]
    alone = by_source.for_one("data.documents", given, source.name, names)
    raise ValueError(
        f"source {source.spec} has only one document, and one must be held out;"
        f" {text_files.SEPARATE[by_source.of(given, source.name)]}{alone}, or add some"
    )
