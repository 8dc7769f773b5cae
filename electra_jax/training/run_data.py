# SPDX-License-Identifier: Apache-2.0
"""The prepared data of a run: prepared from its source, or found as the run recorded it.

    config, workdir -> record of the run's data, if any -> one folder of rows per stage

A run that has checkpoints continues with the rows that it was trained on, even if their source has
changed or is gone. All processes that see one folder prepare the data together.
"""

import dataclasses
import os
import socket
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.data import background, executors, pipeline, planning, preparation, records
from electra_jax.host import processes
from electra_jax.training import shared_preparation
from electra_jax.workdir import metadata, prepared_data


def prepare(
    config: config_lib.Config, workdir: str, make_executor: executors.Factory | None = None
) -> list[str]:
    """Returns one folder of prepared data per stage, and prepares those that are missing.

    A run that has checkpoints continues with the data that it recorded, even if the source has
    changed or is gone. A new run uses the source as it is now; if the source is out of reach, it
    uses what was prepared for it beforehand. Without a shared file system every process prepares
    its own copy, and all copies come out equal. Raises ConfigError.

    Args:
      config: the configuration of the run.
      workdir: its workdir.
      make_executor: makes what builds the units of text; processes of this machine if it is None.
    """
    prepared_data.check_folder(config.data)
    data = prepared_data.RunData.of(config, workdir)
    prepared_data.check_vocabulary_stays(data)
    record, begun = recorded(workdir)

    if record is not None and _continues_with(data, record, begun):
        folders = _as_recorded(data, record, make_executor)
        check_rows(data, folders)
        manifest = records.read_manifest(folders[0])
        for line in preparation.warnings(manifest) if manifest.totals else ():
            logging.warning(line)
        processes.of_first(lambda: prepared_data.keep_vocabulary(workdir, folders[0]))
        return folders

    folders = _from_source(data, make_executor)
    check_rows(data, folders)
    if record is None or not begun:  # a run that was trained with other settings keeps its record
        processes.of_first(lambda: prepared_data.write(data, folders))
    return folders


def _continues_with(data, record, begun):
    """Whether a run takes the rows that it recorded, and not those of its source as it is now."""
    if not prepared_data.is_of(data, record):
        return False

    changed = processes.of_first(lambda: prepared_data.changed(data, record))
    if not begun:
        gone = not processes.of_first(lambda: _all_folders_exist(data, record))
        out_of_reach = bool(changed) and not processes.of_first(lambda: _in_reach(data))
        if (changed or gone) and not out_of_reach:
            return False

    if changed:
        logging.info("%s; this run continues with the data that was prepared for it", changed)
    return True


def data_settings(data: prepared_data.RunData) -> Iterator[planning.DataSettings]:
    """Yields how the rows of each stage are made.

    All stages have the vocabulary of the first, so the first must have been prepared before the
    second is requested from this iterator.
    """
    first = stage_settings(data, 0)
    yield first
    for number in range(1, len(data.lengths)):
        yield stage_settings(data, number, planning.folder_of(first, data.root))


def stage_settings(
    data: prepared_data.RunData, number: int, first_folder: str = ""
) -> planning.DataSettings:
    """How the rows of one stage are made.

    A later stage with rows of another length reads the vocabulary that was made for the first
    stage, from `first_folder`.
    """
    length, vocab = data.lengths[number], prepared_data.own_vocabulary(data)
    settings = dataclasses.replace(data.settings, sequence_length=length, vocab=vocab)
    if length != data.lengths[0] and settings.makes_vocabulary:
        vocab = os.path.join(first_folder, records.VOCABULARY)
        settings = dataclasses.replace(settings, vocab=vocab, added_pieces=0)
    return settings


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids [n, L], marks [n, L]) of the first held-out rows of each source."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def recorded(workdir: str) -> tuple[prepared_data.Record | None, bool]:
    """(the record of the run's data or None, whether the run has checkpoints).

    Process 0 looks, and all processes get what it has found.
    """

    def look():
        found = prepared_data.read(workdir)
        return [found and dataclasses.asdict(found), _has_trained(workdir)]

    tree, begun = processes.of_first(look)
    if tree is None:
        return None, begun

    parts = tuple(prepared_data.Prepared(**part) for part in tree.pop("stages"))
    return prepared_data.Record(**tree, stages=parts), begun


def _has_trained(workdir):
    """Whether a run has left checkpoints here, damaged ones included.

    Weights that were imported to start from do not count.
    """
    directory = metadata.directory(workdir)
    for step in metadata.steps(directory):
        try:
            about = metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            return True
        if metadata.WEIGHTS_ONLY not in about:
            return True
    return False


def _all_folders_exist(data, record):
    """Whether every folder of rows that the record names exists."""
    return all(prepared_data.folder(data, part) is not None for part in record.stages)


def _in_reach(data):
    """Whether all sources can be read."""
    try:
        planning.check_sources(data.settings)
    except (ValueError, OSError):
        return False
    return True


def _from_source(data, make_executor):
    """One folder of rows per stage, prepared from the sources as they are now."""
    return [
        _folder_on_all_processes(
            lambda made_by, each=each: _prepared(data, each, made_by),
            each,
            data.root,
            make_executor,
        )
        for each in data_settings(data)
    ]


def _prepared(data, settings, make_executor):
    """Prepares these rows and returns their folder."""
    folder = preparation.prepare(settings, data.root, logging.info, make_executor=make_executor)
    if data.streaming:
        background.keep_plan(planning.make_plan(settings, data.root))
    return folder


def _as_recorded(data, record, make_executor):
    """The folders that a record names. Rows that are missing are prepared again."""
    folders = []
    for number, part in enumerate(record.stages):
        settings = stage_settings(data, number, folders[0] if folders else "")

        def find(made_by, part=part, settings=settings):
            return prepared_data.folder(data, part) or _prepare_again(data, part, settings, made_by)

        folders.append(_folder_on_all_processes(find, settings, data.root, make_executor))
    return folders


def _prepare_again(data, part, settings, make_executor):
    """Prepares rows that were recorded and are missing; returns their folder.

    Raises ConfigError if they do not come out equal to the recorded ones.
    """
    try:
        now = os.path.basename(planning.folder_of(settings, data.root))
    except ValueError as error:
        raise config_lib.ConfigError(
            prepared_data.missing(data, part, f", and its source neither: {error}")
        ) from error

    if now == part.folder:
        folder = _prepared(data, settings, make_executor)
        if prepared_data.identity(data, folder) == part.hash:
            return folder

    why = f", and {settings.source} is not what it was prepared from: files or packages changed"
    raise config_lib.ConfigError(prepared_data.missing(data, part, why))


def _folder_on_all_processes(find, settings, root, make_executor=None) -> str:
    """The folder of one stage's rows, checked to hold the same rows on all processes.

    Args:
      find: finds or prepares the rows, by the executor that it is given, and returns their folder.
      settings: how the rows are made.
      root: where their folder is looked for.
      make_executor: makes the executor of a single process.

    Raises:
      ConfigError: if the processes have different rows.
    """

    # Process 0 leads. Processes that see its folder help it and then find the finished rows there;
    # `serve` returns None, so those that do not see it prepare the same rows below.
    def together():
        if processes.is_first():
            return shared_preparation.lead(find, make_executor)
        return shared_preparation.serve(settings, root)

    made = processes.agree(together, ValueError, OSError)
    # On each machine one process prepares the rows and the others then find them, because a folder
    # is prepared by one process at a time. A single process has them already, and must not start a
    # device here.
    if not processes.is_alone():
        here = "" if made else socket.gethostname()
        first = processes.gather(here).index(here) == jax.process_index()
        made = processes.agree(lambda: made or (find(None) if first else ""), ValueError, OSError)
    folder = processes.agree(lambda: made or find(None), ValueError, OSError)
    found = processes.agree(lambda: records.open(folder), ValueError, OSError)

    hashes = processes.gather(found.manifest.hash)
    for number, other in enumerate(hashes):
        if other != hashes[0]:
            raise config_lib.ConfigError(
                f"process {number} has prepared data {other[:12]} and process 0 {hashes[0][:12]};"
                " give all of them the same text and packages, or one data.dir that all see"
            )
    return folder


def check_rows(data: prepared_data.RunData, folders: Sequence[str]) -> None:
    """Raises ConfigError if the newest checkpoint was trained on other rows than in these folders.

    There is one folder per stage.
    """
    hashes = [prepared_data.identity(data, folder) for folder in folders]
    check_trained_on(hashes, data.workdir)


def check_trained_on(hashes: Sequence[str], workdir: str) -> None:
    """Raises ConfigError if the newest checkpoint was trained on other rows than these.

    `hashes` are those of their manifests, one per stage.
    """
    about = processes.of_first(lambda: _newest_metadata(workdir))
    trained_on = about.get("data")  # None if the checkpoint holds imported weights only
    if trained_on and trained_on not in hashes:
        raise config_lib.ConfigError(
            f"{workdir} was trained on prepared data {trained_on[:16]}, here is {hashes[0][:16]};"
            f" copy back its {prepared_data.RECORD} and the data that it names, or choose another"
            f" --workdir and --config.init.from={workdir}"
        )


def _newest_metadata(workdir):
    """The metadata of the newest checkpoint whose metadata can be read; empty if there is none."""
    found = metadata.readable(metadata.directory(workdir))
    return next((about for _, about in found), {})
