# SPDX-License-Identifier: Apache-2.0
"""Text in, a folder of records out: vocabulary, rows, counts, manifest; resumable and repeatable.

    sources -> units of text                     text.py: pieces of work that do not know each other
    a sample -> vocabulary                       vocabulary.py, once
    every unit -> documents -> token ids -> rows -> one shard a split     in worker processes
    all counts -> manifest.json                  written last: where it is, the folder is whole

The folder is named by a hash of the settings that matter and of the sources' names and sizes, so
runs with equal settings share it and changed settings never meet old rows. A unit that is done
leaves a small JSON file; whoever comes after an interruption skips it. Randomness belongs to the
unit (seed, source, unit), never to a process: any number of workers writes the same bytes.

A document is held out by a hash of its text: equal documents fall on the same side, and another
seed or another order moves none of them.
"""

import concurrent.futures
import dataclasses
import errno
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from electra_jax.data import (
    duplicates,
    folder_vocabulary,
    planning,
    records,
    totals,
    unit_files,
    units,
    vocabulary,
    worker_pool,
)
from electra_jax.host import lock

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def prepare(settings: planning.Settings, root: str, progress: Callable[[str], Any] = print) -> str:
    """Makes the folder of records if it is not there yet, and returns its path.

    Raises ValueError, one line with the remedy, for text, vocabularies and disks that cannot do,
    and where another process is preparing the same folder.
    """
    plan = planning.make_plan(settings, root)
    if not _is_whole(plan.folder, progress):
        _prepare_alone(plan, progress)
    if line := totals.unknown_tokens(records.read_manifest(plan.folder)):
        progress(f"warning: {line}")
    return plan.folder


def _prepare_alone(plan, progress):
    """Makes the folder, alone, unless another process has made it meanwhile."""
    with lock.hold(os.path.join(plan.folder, "prepare.lock"), f"the data folder {plan.folder}"):
        try:
            if not _is_whole(plan.folder, progress):
                _build(plan, progress)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise ValueError(
                f"no space left for {plan.folder}; free some or set data.dir, then run again: it"
                " goes on from here"
            ) from error
        except concurrent.futures.BrokenExecutor as error:
            fewer = max(1, worker_pool.worker_count(plan.settings.workers) // 2)
            raise ValueError(
                "a process that prepares data was killed, most likely for memory; run again with"
                f" data.workers={fewer}: it goes on from here"
            ) from error
        finally:
            _remove_partials(plan.folder)


def _is_whole(folder, progress):
    if not os.path.exists(os.path.join(folder, records.MANIFEST)):
        return False
    try:
        opened = records.open(folder)
        opened.unigram()
        words = vocabulary.load(os.path.join(folder, records.VOCABULARY))
        if words.sha256 != opened.manifest.vocabulary["sha256"]:
            raise ValueError(
                f"{folder}/{records.VOCABULARY} is not the one that the records were made with"
            )
        return True
    except ValueError as error:
        progress(f"prepared data is damaged and is made again: {error}")
        return False


def _build(plan, progress):
    """From nothing, or from where an interrupted one stopped, to a folder with a manifest."""
    began = time.monotonic()
    progress(f"preparing {plan.settings.source} in {plan.folder}")
    _make_ready(plan.folder)
    tasks = planning.make_tasks(plan)
    with worker_pool.Workers(plan.settings.workers) as workers:
        words = folder_vocabulary.make(plan, tasks, workers, progress)
        tasks = [dataclasses.replace(task, vocabulary=words.sha256) for task in tasks]
        if plan.settings.deduplicate:
            duplicates.mark(tasks, workers, progress)
        results = units.build_all(tasks, workers, progress)
        tasks = units.with_both_splits(plan, tasks, results)
        results = units.build_all(tasks, workers, progress)
    manifest = totals.make_manifest(plan, tasks, results, words, time.monotonic() - began)
    _remove_strangers(plan.folder, manifest)
    totals.refuse_unknown(manifest)
    records.write_manifest(plan.folder, manifest)
    shutil.rmtree(os.path.join(plan.folder, unit_files.UNITS))
    progress(
        f"prepared {manifest.totals['documents']:,} documents,"
        f" {manifest.totals['tokens']:,} tokens, {manifest.totals['rows']:,} rows"
    )


def _make_ready(folder):
    """The folder without what cannot be trusted; finished units of an interrupted run stay."""
    if os.path.exists(os.path.join(folder, records.MANIFEST)):  # damaged: trust nothing
        os.remove(os.path.join(folder, records.MANIFEST))
        shutil.rmtree(os.path.join(folder, unit_files.UNITS), ignore_errors=True)
    os.makedirs(os.path.join(folder, unit_files.UNITS), exist_ok=True)
    _remove_partials(folder)


def _remove_partials(folder):
    for directory, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".partial"):
                os.remove(os.path.join(directory, name))


def _remove_strangers(folder, manifest):
    """Removes shards that no unit claims any more, left by an interruption."""
    for split in records.SPLITS:
        directory = records.split_directory(folder, split)
        known = {
            f"{shard.name}.{lane}"
            for source in manifest.sources
            for shard in source.shards[split]
            for lane in manifest.lanes
        }
        for name in os.listdir(directory):
            if name not in known:
                os.remove(os.path.join(directory, name))
