# SPDX-License-Identifier: Apache-2.0
"""The prepared data of a run: made from its source, or found as the run recorded it.

A run that has checkpoints goes on with the rows that it was trained on, whatever became of their
source. Data is prepared by one process, and all others look for what it made.
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
    """The folders of prepared data, one a stage, made now if they are not there; one process makes
    them.

    A run that has checkpoints goes on with the data that it recorded, whatever became of its
    source. A new one takes what its source is now, or what was prepared for it beforehand where
    the source is out of reach. Without a shared file system every process makes its own, which
    comes out equal.
    """
    record, begun = _recorded(workdir)
    if record is not None and not prepared_data.is_of(config, record):
        # Another run's, which keeps its own if it has trained.
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
    """Where prepared data lies, a folder for each hash of settings."""
    return prepared_data.root(config, workdir)


def data_settings(config: config_lib.Config, workdir: str) -> Iterator[planning.Settings]:
    """How the rows of each stage are made: all with the vocabulary of the first, which has to be
    prepared before the second is asked for."""
    first = stage_settings(config, workdir, 0)
    yield first
    for number in range(1, len(stages.of(config))):
        folder = planning.folder_of(first, data_root(config, workdir))
        yield stage_settings(config, workdir, number, folder)


def stage_settings(
    config: config_lib.Config, workdir: str, number: int, first_folder: str = ""
) -> planning.Settings:
    """How the rows of one stage are made; later ones take the vocabulary of the first's folder."""
    whole = planning.Settings.from_config(config)
    settings = planning.Settings.from_config(stages.config_of(config, number))
    words = prepared_data.own_vocabulary(config, workdir)
    longer = settings.sequence_length != whole.sequence_length
    if longer and words.startswith("train:"):
        words = os.path.join(first_folder, records.VOCABULARY)
    return dataclasses.replace(settings, vocab=words)


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids, marks) of each source's first held-out rows."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def _recorded(workdir):
    """(the record of the run's data or None, whether the run has checkpoints), as process 0 sees
    them."""

    def look():
        found = prepared_data.read(workdir)
        return [found and dataclasses.asdict(found), _has_trained(workdir)]

    tree, begun = processes.of_first(look)
    if tree is None:
        return None, begun
    parts = tuple(prepared_data.Prepared(**part) for part in tree.pop("stages"))
    return prepared_data.Record(**tree, stages=parts), begun


def _has_trained(workdir):
    """Whether a run left checkpoints here, damaged ones too; weights to begin with are none."""
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
    processes.of_first(lambda: prepared_data.write(config, workdir, folders))


def _all_folders_exist(config, workdir, record):
    """Whether all rows that a record names are where they should be."""
    parts = () if record is None else record.stages
    return all(prepared_data.folder(config, workdir, part) is not None for part in parts)


def _in_reach(config):
    """Whether there is anything to prepare from."""
    try:
        planning.check_sources(planning.Settings.from_config(config))
    except (ValueError, OSError):
        return False
    return True


def _from_source(config, workdir):
    root = data_root(config, workdir)
    return [
        _folder_on_all_processes(_preparing(each, root)) for each in data_settings(config, workdir)
    ]


def _preparing(settings, root):
    return lambda: preparation.prepare(settings, root, logging.info)


def _as_recorded(config, workdir, record):
    """The folders that a record names; rows that are gone are made again if they come out equal."""
    folders = []
    for number, part in enumerate(record.stages):
        settings = stage_settings(config, workdir, number, folders[0] if folders else "")

        def find(part=part, settings=settings):
            there = prepared_data.folder(config, workdir, part)
            return there or _prepare_again(config, workdir, part, settings)

        folders.append(_folder_on_all_processes(find))
    return folders


def _prepare_again(config, workdir, part, settings):
    """Rows that were recorded and are not there, from their source. Raises ConfigError."""
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
    """The folder of one stage's rows; when the first process has it, the others look for it."""
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
    """A run goes on with the rows that its checkpoint was trained on, or not at all."""
    about = processes.of_first(lambda: _newest_metadata(workdir))
    trained_on = about.get("data")  # none where weights alone were converted
    hashes = [records.read_manifest(folder).hash for folder in folders]
    if trained_on and trained_on not in hashes:
        raise config_lib.ConfigError(
            f"{workdir} was trained on prepared data {trained_on[:16]}, here is {hashes[0][:16]};"
            f" copy back its {prepared_data.RECORD} and the data that it names, or choose another"
            f" --workdir and --config.init.from={workdir}"
        )


def _newest_metadata(workdir):
    """Of the newest checkpoint that says anything; nothing where none does."""
    directory = os.path.join(workdir, "checkpoints")
    for step in reversed(metadata.steps(directory)):
        try:
            return metadata.read(os.path.join(directory, str(step)))
        except metadata.CheckpointError:
            continue
    return {}
