# SPDX-License-Identifier: Apache-2.0
"""Builds all units of text, each once, and gives every source both training and held-out text."""

import collections
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import planning, progress_lines, unit_files, unit_rows, worker_pool


def build_all(
    tasks: Sequence[planning.Task], workers: worker_pool.Workers, progress: Callable[[str], Any]
) -> list[dict[str, Any]]:
    """Builds the units that are not finished; returns the results of all, in order of the tasks."""
    results = {task.name: unit_files.finished(task) for task in tasks}
    todo = [task for task in tasks if results[task.name] is None]
    if len(todo) < len(tasks) and todo:
        progress(f"{len(tasks) - len(todo)} of {len(tasks)} units are there already")

    began, characters = time.monotonic(), workers.characters
    done = documents = tokens = 0

    def so_far(seconds):
        read = workers.characters - characters
        left = f", {seconds / done * (len(todo) - done):,.0f} s left" if done else ""
        return (
            f"{done:,} of {len(todo):,} units, {documents:,} documents, {tokens:,} tokens;"
            f" {read:,} characters tokenised, {read / seconds:,.0f} a second{left}"
        )

    with progress_lines.repeated(progress, so_far):
        for task, result in workers.each(unit_rows.build, todo):
            done += 1
            results[task.name] = result
            documents += result["counts"]["documents"]
            tokens += result["counts"]["tokens"]

    if todo:
        rate, cores = tokens / max(time.monotonic() - began, 1e-9), min(workers.count, len(todo))
        progress(
            f"{tokens:,} tokens cut into rows at {rate:,.0f} tokens/s,"
            f" {rate / cores:,.0f} a core on {cores}"
        )

    return [results[task.name] for task in tasks]


def with_both_splits(
    plan: planning.DataPlan, tasks: Sequence[planning.Task], results: Sequence[dict[str, Any]]
) -> list[planning.Task]:
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
        if not extremes:
            _refuse_empty(source, [results[i]["counts"] for i in mine])

        smallest, largest = min(x[0] for x in extremes), max(x[1] for x in extremes)
        if smallest == largest:
            _refuse_one_document(source, sum(results[i]["counts"]["documents"] for i in mine))

        for i in mine:
            below = tasks[i].heldout_below
            if below <= smallest and results[i]["extremes"][:1] == [smallest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=smallest + 1)
            elif below > largest and results[i]["extremes"][1:] == [largest]:
                moved[i] = dataclasses.replace(tasks[i], heldout_below=largest)

    return moved


def _refuse_empty(source, counted):
    counts = collections.Counter()
    for found in counted:
        counts.update(found)

    raise ValueError(
        f"source {source.spec} has no text ({counts['empty']} empty documents,"
        f" {counts['skipped_short']} shorter than data.min_document_characters)"
        "; give it another file"
    )


def _refuse_one_document(source, count):
    if count > 1:
        raise ValueError(
            f"source {source.spec} holds {count:,} documents that are all equal; equal"
            " documents stay on one side and one must be held out, so add another"
        )
    raise ValueError(
        f"source {source.spec} has only one document, and one must be held out; separate"
        " documents by blank lines or add some"
    )
