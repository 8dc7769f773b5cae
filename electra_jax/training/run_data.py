# SPDX-License-Identifier: Apache-2.0
"""The prepared data of a run: prepared from its source, or found as the run recorded it.

    config, workdir -> record of the run's data, if any -> one folder of rows per stage

A run that has checkpoints continues with the rows that it was trained on, even if their source has
changed or is gone. One process prepares the data, and all others look for what it has prepared.
"""

import dataclasses
import os
from collections.abc import Iterator

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.data import pipeline, planning, preparation, records
from electra_jax.host import processes
from electra_jax.workdir import metadata, prepared_data


def prepare(config: config_lib.Config, workdir: str) -> list[str]:
    """Returns one folder of prepared data per stage, and prepares those that are missing.

    A run that has checkpoints continues with the data that it recorded, even if the source has
    changed or is gone. A new run uses the source as it is now; if the source is out of reach, it
    uses what was prepared for it beforehand. Without a shared file system every process prepares
    its own copy, and all copies come out equal. Raises ConfigError.
    """
    record, begun = _recorded(workdir)
    if record is not None and not prepared_data.is_of(config, record):
        # The record belongs to other settings. If a run was trained with them, it keeps its record.
        folders = _from_source(config, workdir)
        if not begun:
            _record(config, workdir, folders)
        return folders

    changed = (
        "" if record is None else processes.of_first(lambda: prepared_data.changed(config, record))
    )
    out_of_reach = bool(changed) and not processes.of_first(lambda: _in_reach(config))
    gone = not begun and not processes.of_first(lambda: _all_folders_exist(config, workdir, record))
    if record is None or ((changed or gone) and not begun and not out_of_reach):
        folders = _from_source(config, workdir)
        _check_trained_on(folders, workdir)
        _record(config, workdir, folders)
        return folders

    if changed:
        logging.info("%s; this run goes on with the data that was prepared for it", changed)
    folders = _as_recorded(config, workdir, record)
    _check_trained_on(folders, workdir)
    processes.of_first(lambda: prepared_data.keep_vocabulary(workdir, folders[0]))
    return folders


def data_root(config: config_lib.Config, workdir: str) -> str:
    """The folder of all prepared data, with one folder for each hash of settings."""
    return prepared_data.root(config, workdir)


def data_settings(config: config_lib.Config, workdir: str) -> Iterator[planning.Settings]:
    """Yields how the rows of each stage are made.

    All stages have the vocabulary of the first, so the first must have been prepared before the
    second is requested from this iterator.
    """
    first = stage_settings(config, workdir, 0)
    yield first
    for number in range(1, len(stages.of(config))):
        folder = planning.folder_of(first, data_root(config, workdir))
        yield stage_settings(config, workdir, number, folder)


def stage_settings(
    config: config_lib.Config, workdir: str, number: int, first_folder: str = ""
) -> planning.Settings:
    """How the rows of one stage are made.

    A later stage with rows of another length reads the vocabulary that was trained for the first
    stage, from `first_folder`.
    """
    whole = planning.Settings.from_config(config)
    settings = planning.Settings.from_config(stages.config_of(config, number))
    words = prepared_data.own_vocabulary(config, workdir)
    longer = settings.sequence_length != whole.sequence_length
    if longer and words.startswith("train:"):
        words = os.path.join(first_folder, records.VOCABULARY)
    return dataclasses.replace(settings, vocab=words)


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids [n, L], marks [n, L]) of the first held-out rows of each source."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def _recorded(workdir):
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
    directory = os.path.join(workdir, "checkpoints")
    for step in metadata.steps(directory):
        try:
            about = metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            return True
        if metadata.WEIGHTS_ONLY not in about:
            return True
    return False


def _record(config, workdir, folders):
    """Process 0 writes which data the run has."""
    processes.of_first(lambda: prepared_data.write(config, workdir, folders))


def _all_folders_exist(config, workdir, record):
    """Whether every folder of rows that the record names exists; True without a record."""
    parts = () if record is None else record.stages
    return all(prepared_data.folder(config, workdir, part) is not None for part in parts)


def _in_reach(config):
    """Whether all sources can be read."""
    try:
        planning.check_sources(planning.Settings.from_config(config))
    except (ValueError, OSError):
        return False
    return True


def _from_source(config, workdir):
    """One folder of rows per stage, prepared from the sources as they are now."""
    root = data_root(config, workdir)
    return [
        _folder_on_all_processes(_preparing(each, root)) for each in data_settings(config, workdir)
    ]


def _preparing(settings, root):
    """A function that prepares these rows and returns their folder."""
    return lambda: preparation.prepare(settings, root, logging.info)


def _as_recorded(config, workdir, record):
    """The folders that a record names. Rows that are missing are prepared again."""
    folders = []
    for number, part in enumerate(record.stages):
        settings = stage_settings(config, workdir, number, folders[0] if folders else "")

        def find(part=part, settings=settings):
            there = prepared_data.folder(config, workdir, part)
            return there or _prepare_again(config, workdir, part, settings)

        folders.append(_folder_on_all_processes(find))
    return folders


def _prepare_again(config, workdir, part, settings):
    """Prepares rows that were recorded and are missing; returns their folder.

    Raises ConfigError if they do not come out equal to the recorded ones.
    """
    root = data_root(config, workdir)
    try:
        now = os.path.basename(planning.folder_of(settings, root))
    except ValueError as error:
        raise config_lib.ConfigError(
            prepared_data.missing(config, workdir, part, f", and its source neither: {error}")
        ) from error

    if now == part.folder:
        folder = preparation.prepare(settings, root, logging.info)
        if records.read_manifest(folder).hash == part.hash:
            return folder

    raise config_lib.ConfigError(
        prepared_data.missing(
            config, workdir, part,
            f", and {settings.source} is not what it was prepared from: files or packages changed",
        )
    )  # fmt: skip


def _folder_on_all_processes(find) -> str:
    """The folder of one stage's rows, checked to hold the same rows on all processes.

    Args:
      find: finds or prepares the rows and returns their folder.

    Raises:
      ConfigError: if the processes have different rows.
    """
    # Process 0 goes first. With a shared file system the others then find what it has prepared.
    first = jax.process_index() == 0
    waits_for = "to prepare the data"
    made = processes.agree(lambda: find() if first else "", ValueError, OSError, doing=waits_for)
    folder = processes.agree(lambda: made or find(), ValueError, OSError)
    found = processes.agree(lambda: records.open(folder), ValueError, OSError)

    hashes = processes.gather(found.manifest.hash)
    for number, other in enumerate(hashes):
        if other != hashes[0]:
            raise config_lib.ConfigError(
                f"process {number} has prepared data {other[:12]} and process 0 {hashes[0][:12]};"
                " give all of them the same text and packages, or one data.dir that all see"
            )
    return folder


def _check_trained_on(folders, workdir):
    """Raises ConfigError if the newest checkpoint was trained on other rows than these."""
    about = processes.of_first(lambda: _newest_metadata(workdir))
    trained_on = about.get("data")  # None if the checkpoint holds imported weights only
    hashes = [records.read_manifest(folder).hash for folder in folders]
    if trained_on and trained_on not in hashes:
        raise config_lib.ConfigError(
            f"{workdir} was trained on prepared data {trained_on[:16]}, here is {hashes[0][:16]};"
            f" copy back its {prepared_data.RECORD} and the data that it names, or choose another"
            f" --workdir and --config.init.from={workdir}"
        )


def _newest_metadata(workdir):
    """The metadata of the newest checkpoint whose metadata can be read; empty if there is none."""
    directory = os.path.join(workdir, "checkpoints")
    for step in reversed(metadata.steps(directory)):
        try:
            return metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            continue
    return {}
