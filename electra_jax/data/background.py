# SPDX-License-Identifier: Apache-2.0
"""Prepares a folder in a thread while its first rows are trained on (`data.streaming`).

    open_rows -> the folder is whole    all its rows
              -> it is not              a thread that calls `preparation.prepare`, and the rows as
                                        they come

The work is done by worker processes. If this process is killed, they end too, and the next start
continues with the units that are missing.
"""

import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from electra_jax.data import (
    executors,
    planning,
    preparation,
    records,
    streaming,
    text_files,
    totals,
    unit_files,
)
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import staging

_JOIN_SECONDS = 10.0  # seconds for the thread to end when its workers were killed


def open_rows(
    settings: planning.DataSettings, root: str, progress: Callable[[str], Any]
) -> streaming.StreamedRecords:
    """Returns the rows of these settings as soon as the first of them are prepared.

    Args:
      settings: what to prepare, and how; one source.
      root: the folder that holds one folder per prepared data set (data.dir).
      progress: called with each line that tells the user what is happening, in any thread.

    Raises ValueError, one line, if the first rows cannot be prepared.
    """
    plan = planning.make_plan(settings, root)
    records.fetch(plan.folder)
    if preparation.is_whole(plan.folder, progress):
        keep_plan(plan)
        found = open_whole(plan.folder)
    else:
        found = _Background(plan, root, progress).open_rows()

    try:
        _refuse_unknown(found)
    except BaseException:
        found.close()
        raise
    return found


def open_whole(folder: str) -> streaming.StreamedRecords:
    """Opens a folder that is prepared to its end and has its plan."""
    manifest = streaming.read_plan(folder)
    units = streaming.Units.of_whole(folder, manifest.sources[0].counts["units"])
    return streaming.StreamedRecords(folder, manifest, units, bucket_sizes=staging.sizes(folder))


def keep_plan(plan: planning.DataPlan) -> None:
    """Writes the plan of a whole folder beside it, if it is not there.

    Raises ValueError, one line, if it cannot be written.
    """
    try:
        if streaming.read_plan(plan.folder).key == plan.key:
            return
    except ValueError:
        pass
    vocabulary = vocabulary_lib.load(os.path.join(plan.folder, records.VOCABULARY))
    tasks = planning.make_tasks(plan)
    try:
        streaming.write_plan(plan.folder, streaming.plan_manifest(plan, tasks, vocabulary))
    except OSError as error:
        raise ValueError(
            f"{plan.folder} was prepared with data.streaming=off and cannot be written"
            f" ({error.strerror or error}); set data.streaming=off, or prepare it once with 'on'"
            " where it can be"
        ) from error


def _refuse_unknown(rows):
    """Raises ValueError, one line, if most tokens of the first rows are [UNK]."""
    counts_V = rows.unigram()[0]
    unknown = counts_V[rows.manifest.vocabulary["unk_id"]] / counts_V.sum()
    totals.refuse_unknown(dataclasses.replace(rows.manifest, unk_rate=float(unknown)))


class _Background:
    """The thread, and what it says to those who wait for rows."""

    def __init__(self, plan, root, progress):
        self._plan, self._root, self._progress = plan, root, progress
        self._begun = threading.Event()  # the plan is written, or that failed
        self._manifest: records.Manifest | None = None
        self._units = streaming.Units(0)
        self._error: streaming.PreparationError | None = None
        self._workers: executors.Executor | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="preparation", daemon=True)

    def open_rows(self):
        """Starts the thread and waits for the first rows. Raises PreparationError."""
        self._thread.start()
        try:
            self._begun.wait()
            if self._error is not None:
                raise self._error
            if self._manifest is None:  # another process has finished the folder meanwhile
                keep_plan(self._plan)
                return open_whole(self._plan.folder)

            return streaming.StreamedRecords(
                self._plan.folder, self._manifest, self._units, self.close
            )
        except BaseException:
            self.close()
            raise

    def close(self):
        """Kills the workers and ends the thread. Units that are finished stay."""
        if self._manifest is not None and self._thread.is_alive():
            self._progress(
                "the text is not fully prepared, and its preparation stops with the run; the same"
                " command, or electra_jax.prepare, continues it"
            )
        self._closing = True
        if self._workers is not None:
            self._workers.kill()
        self._thread.join(_JOIN_SECONDS)

    def planned(
        self,
        tasks: Sequence[planning.UnitTask],
        vocabulary: vocabulary_lib.Vocabulary,
        workers: executors.Executor,
    ) -> dict[str, int]:
        """Called before the first unit is built; returns the place of each unit in the order."""
        self._workers = workers
        self._manifest = streaming.plan_manifest(self._plan, tasks, vocabulary)
        streaming.write_plan(self._plan.folder, self._manifest)
        self._units = streaming.Units(len(tasks))
        self._begun.set()
        order = streaming.units_in_order(self._manifest)
        return {tasks[unit].name: place for place, unit in enumerate(order)}

    def built(self, task: planning.UnitTask, result: dict[str, Any]) -> None:
        """Called for each unit that is there."""
        if self._closing:
            raise streaming.Closed
        self._units.came(task.unit_index, unit_files.shards_of(result))

    def _work(self):
        try:
            preparation.prepare(self._plan.settings, self._root, self._progress, self)
        except Exception as error:  # of any kind; those who wait raise it
            line = str(error) if isinstance(error, ValueError) else text_files.reason(error)
            if not self._closing:
                self._progress(f"the text cannot be prepared to its end: {line}")
            self._error = streaming.PreparationError(line)
            self._error.__cause__ = error  # it says whether the same command may succeed later
            self._units.failed(self._error)
        finally:
            self._begun.set()
