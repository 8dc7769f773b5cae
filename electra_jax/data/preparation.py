# SPDX-License-Identifier: Apache-2.0
"""Prepares data: text becomes a folder of vocabulary, rows, counts and manifest.

    settings -> plan, tasks                      planning.py: one task per unit of text
    a sample of the text -> vocabulary           folder_vocabulary.py: trained or loaded once
    all documents -> duplicates                  duplicates.py: only if data.deduplicate is set
    unit -> documents -> token ids -> rows -> shards     units.py, unit_rows.py: by an executor
    all counts -> manifest.json                  totals.py: written last, so its presence means
                                                 that the folder is complete

The folder's name is a hash of the settings that affect the rows and of the names and sizes of the
sources. Runs with equal settings therefore share a folder, and changed settings never read old
rows.

Preparation can be resumed: each finished unit leaves a small JSON file, and the next run skips the
units that have one. It is also repeatable: random numbers depend on the seed, the source and the
unit, but not on the process, so any number of workers on any number of machines writes the same
bytes. Which machines work is a matter of the executor, see executors.py.

A hash of its text decides whether a document is held out. Equal documents are therefore in the
same split, and neither the seed nor the order of documents changes the split. The exception is a
source that would have nothing held out: one of its documents is moved there, and an equal one of
another source stays (`units.with_both_splits`; docs/data.md).
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from electra_jax.data import (
    downloads,
    duplicates,
    executors,
    folder_vocabulary,
    planning,
    progress_lines,
    records,
    stripes,
    text_warnings,
    totals,
    unit_files,
    units,
    utf8,
    worker_pool,
)
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import bucket_lock, error_causes, lock, staging

_LOCK = "prepare.lock"


class Watcher(Protocol):
    """Is told of each unit, and decides which comes first."""

    def planned(
        self,
        tasks: Sequence[planning.UnitTask],
        vocabulary: vocabulary_lib.Vocabulary,
        workers: executors.Executor,
    ) -> Mapping[str, int]:
        """Called before the first unit is built; returns the place of each, by its name."""

    def built(self, task: planning.UnitTask, result: dict[str, Any]) -> None:
        """Called for each unit that is there, also if an earlier run has built it."""


def prepare(
    settings: planning.DataSettings,
    root: str,
    progress: Callable[[str], Any] = print,
    watcher: Watcher | None = None,
    make_executor: executors.Factory | None = None,
) -> str:
    """Prepares the data unless this was done before, and returns the path of its folder.

    Args:
      settings: what to prepare, and how.
      root: the folder that holds one folder per prepared data set (data.dir).
      progress: called with each line that tells the user what is happening.
      watcher: is told of the units as they are built; nothing if the data is there already. If
        there is one, all units are built in other processes.
      make_executor: makes what builds the units; processes of this machine if it is None.

    Raises:
      ValueError: the text or the vocabulary cannot be used, or another process is preparing the
        same folder; an error_causes.MayPass if a download failed, the disk is full or a worker was
        killed. One line, with the remedy.
    """
    plan = planning.make_plan(settings, root)
    records.fetch(plan.folder)

    done = _is_done(plan.folder, progress)
    if not done:
        _prepare_locked(plan, progress, watcher, make_executor)

    # Text that was prepared just now has been warned about already, file by file.
    manifest = records.read_manifest(plan.folder)
    for line in warnings(manifest) if done else filter(None, [totals.unknown_tokens(manifest)]):
        progress(f"warning: {line}")

    return plan.folder


def warnings(manifest: records.Manifest) -> list[str]:
    """Warnings about text that is fully prepared, one line each."""
    return [line for line in (totals.unknown_tokens(manifest), utf8.prepared(manifest)) if line]


def _own_processes(watcher):
    return lambda plan: worker_pool.Workers(plan.settings.workers, always_spawn=watcher is not None)


def _prepare_locked(plan, progress, watcher, make_executor):
    """Builds the folder under its lock, and sends it to its bucket if it has one."""
    with _locked(plan.folder) as lock_in_bucket:
        whole = False
        try:
            # Another process may have finished the folder before this one got the lock.
            records.fetch(plan.folder)
            if not is_whole(plan.folder, progress):
                with explained_failures(plan):
                    _build(plan, progress, watcher, make_executor or _own_processes(watcher))
            whole = True
        finally:
            # After an error other machines may still be writing; the next start removes what they
            # leave.
            if whole or make_executor is None:
                _remove_partials(plan.folder)

        if lock_in_bucket is not None and lock_in_bucket.is_lost():
            lock_in_bucket.refuse()
        staging.publish(plan.folder, last=records.MANIFEST)
        staging.remove(plan.folder, unit_files.UNITS)


@contextlib.contextmanager
def _locked(folder):
    """Holds the lock of the folder, and yields the one in its bucket; None if it has no bucket."""
    where = staging.address(folder)
    what = f"the data folder {where or folder}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.hold(os.path.join(folder, _LOCK), what))
        yield stack.enter_context(bucket_lock.hold(f"{where}/{_LOCK}", what)) if where else None


@contextlib.contextmanager
def explained_failures(plan: planning.DataPlan) -> Iterator[None]:
    """Turns a full disk or a killed worker process into an error_causes.MayPass of one line."""
    try:
        yield
    except OSError as error:
        if not error_causes.disk_full(error):
            raise
        raise error_causes.MayPass(
            f"no space left for {plan.folder}; free some or set data.dir, then run again: it"
            " continues from here"
        ) from error
    except concurrent.futures.BrokenExecutor as error:
        fewer = max(1, worker_pool.worker_count(plan.settings.workers) // 2)
        raise error_causes.MayPass(
            "a process that prepares data was killed, most likely for memory; run again with"
            f" data.workers={fewer}: it continues from here"
        ) from error


def _is_done(folder, progress):
    """Whether the folder is whole, and its bucket, if it has one, has all of it."""
    return is_whole(folder, progress) and staging.is_published(folder, records.MANIFEST)


def is_whole(folder: str, progress: Callable[[str], Any]) -> bool:
    """True if there is a manifest and all files fit it; reports damage through `progress`."""
    if not os.path.exists(os.path.join(folder, records.MANIFEST)):
        return False

    try:
        rows = records.open(folder)
        rows.unigram()  # raises if the file is damaged

        vocabulary = vocabulary_lib.load(os.path.join(folder, records.VOCABULARY))
        if vocabulary.sha256 != rows.manifest.vocabulary["sha256"]:
            raise ValueError(
                f"{folder}/{records.VOCABULARY} is not the one that the records were made with"
            )

        return True
    except ValueError as error:
        progress(f"prepared data is damaged and is made again: {error}")
        return False


def _has_its_vocabulary(folder):
    """Whether the vocabulary is the one of the manifest. If not, the new rows need another."""
    try:
        vocabulary = vocabulary_lib.load(os.path.join(folder, records.VOCABULARY))
        return vocabulary.sha256 == records.open(folder).manifest.vocabulary["sha256"]
    except ValueError:
        return False


def _build(plan, progress, watcher, make_executor):
    """Builds the folder up to its manifest, from nothing or from where a run was interrupted."""
    began = time.monotonic()
    progress(f"preparing {plan.settings.source} in {plan.folder}")

    _make_ready(plan.folder)
    staging.fetch(plan.folder, (unit_files.UNITS,))
    tasks = planning.make_tasks(plan)
    for line in filter(None, (utf8.beginnings(tasks), text_warnings.missing_fields(tasks))):
        progress(f"warning: {line}")

    with progress_lines.Phases(progress) as phases:
        with make_executor(plan) as workers:
            # Of a folder in a bucket, others have copies of their own.
            if isinstance(workers, worker_pool.Workers) or not staging.address(plan.folder):
                stripes.offer(tasks, os.path.join(plan.folder, unit_files.UNITS))
            if line := downloads.so_far(tasks, workers)():
                progress(line)

            vocabulary = folder_vocabulary.make(plan, tasks, workers, phases)
            tasks = [dataclasses.replace(task, vocabulary=vocabulary.sha256) for task in tasks]
            if plan.settings.deduplicate:
                duplicates.mark(tasks, workers, phases)
            tasks, results = _build_units(plan, tasks, vocabulary, workers, phases, watcher)

        phases.begin("writing", "writing the manifest")
        manifest = totals.make_manifest(plan, tasks, results, vocabulary, time.monotonic() - began)
        _remove_unlisted_shards(plan.folder, manifest)
        for line in _warnings_of_units(tasks, results, manifest):
            progress(f"warning: {line}")
        totals.refuse_unknown(manifest)

        # With its manifest the folder counts as complete; only then the units' files may go.
        records.write_manifest(plan.folder, manifest)
        shutil.rmtree(os.path.join(plan.folder, unit_files.UNITS))

    count = manifest.totals
    progress(
        f"prepared {count['documents']:,} documents, {count['tokens']:,} tokens,"
        f" {count['rows']:,} rows, and {count['heldout_rows']:,} held out\n{phases.table()}"
    )


def _build_units(plan, tasks, vocabulary, workers, phases, watcher):
    """Cuts the rows of all units; returns the tasks, some with a new bound, and their results."""
    told, places = None, {}
    if watcher is not None:
        told, places = watcher.built, watcher.planned(tasks, vocabulary, workers)

    # The second pass rebuilds only the units that `with_both_splits` has changed. If a run was
    # interrupted after that, they have their new bounds already, and what the first pass asks of
    # them, the smallest and the largest hash, does not depend on the bound.
    results = units.build_all(
        tasks,
        workers,
        phases,
        finished=_finished(plan.folder, unit_files.finished_with_any_bound),
        places=places,
        built=told,
    )
    tasks = units.with_both_splits(plan, tasks, results)
    finished = _finished(plan.folder, unit_files.finished)
    return tasks, units.build_all(tasks, workers, phases, "cutting rows again", finished)


def _warnings_of_units(tasks, results, manifest):
    found = (
        utf8.warning(tasks, results),
        text_warnings.too_long(tasks, results),
        text_warnings.too_short(tasks, results),
        text_warnings.much_held_out(manifest),
        text_warnings.few_second_segments(manifest),
    )
    return [line for line in found if line]


def _finished(folder, function):
    """A function of unit_files.py that knows which files are in the bucket now, if in any."""
    return functools.partial(function, bucket_sizes=staging.sizes(folder))


def _make_ready(folder):
    """Empties the folder of untrusted files; finished units of an interrupted run stay."""
    # A manifest here means that a complete folder was found damaged. Its units are not trusted.
    if os.path.exists(os.path.join(folder, records.MANIFEST)):
        if not _has_its_vocabulary(folder):
            shutil.rmtree(os.path.join(folder, records.VOCABULARY), ignore_errors=True)
        os.remove(os.path.join(folder, records.MANIFEST))
        shutil.rmtree(os.path.join(folder, unit_files.UNITS), ignore_errors=True)

    os.makedirs(os.path.join(folder, unit_files.UNITS), exist_ok=True)
    _remove_partials(folder)


def _remove_partials(folder):
    """Removes half-written files that an interrupted run has left."""
    for directory, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".partial"):
                os.remove(os.path.join(directory, name))


def _remove_unlisted_shards(folder, manifest):
    """Removes shards that an interrupted run has left and that are not in the manifest."""
    for split in records.SPLITS:
        directory = records.split_directory(folder, split)
        os.makedirs(directory, exist_ok=True)
        known = {
            f"{shard.name}.{lane}"
            for source in manifest.sources
            for shard in source.shards[split]
            for lane in manifest.lanes
        }

        for name in os.listdir(directory):
            if name not in known:
                os.remove(os.path.join(directory, name))
