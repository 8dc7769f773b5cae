# SPDX-License-Identifier: Apache-2.0
"""The rows of a run that trains while its text is still prepared (`data.streaming=on`).

    config, workdir -> record of the run's data, if any -> the rows, as far as they are there

Such a run is identified by the plan of its data: the settings, and the names, sizes and digests of
its text. Until the text is prepared to its end, a later start needs the same text again. After that
the run has all its rows and needs no text, like any other run.
"""

import os

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.data import background, planning, streaming
from electra_jax.host import processes, program
from electra_jax.training import run_data
from electra_jax.workdir import prepared_data


def open_rows(config: config_lib.Config, workdir: str) -> streaming.StreamedRecords:
    """Returns the rows of a run when the first of them are prepared.

    `close` of the rows ends the preparation. Raises ConfigError or ValueError, one line.
    """
    if jax.process_count() > 1:
        raise config_lib.ConfigError(
            f"data.streaming='on' works with one process, not with {jax.process_count()}; prepare"
            f" first, {program.command('prepare')}, and set data.streaming=off"
        )

    data = prepared_data.RunData.of(config, workdir)
    prepared_data.check_vocabulary_stays(data)
    record, begun = run_data.recorded(workdir)
    if record is not None and not prepared_data.is_of(data, record):
        record = None
    if record is not None:
        folder = prepared_data.folder(data, record.stages[0])
        if folder is not None and (begun or not prepared_data.changed(data, record)):
            prepared_data.keep_vocabulary(workdir, folder)
            return background.open_whole(folder)

    settings = run_data.stage_settings(data, 0)
    if begun:
        _check_same_text(data, settings, record)

    rows = processes.agree(
        lambda: background.open_rows(settings, data.root, logging.info), ValueError, OSError
    )
    try:
        run_data.check_trained_on([rows.manifest.hash], workdir)
        prepared_data.write(data, [rows.directory])
    except BaseException:
        rows.close()
        raise
    return rows


def _check_same_text(data, settings, record):
    """Raises ConfigError if a run that has begun would continue with another text."""
    needed = f"the text of {data.workdir} was not prepared to its end, so its run still needs it"
    try:
        now = os.path.basename(planning.folder_of(settings, data.root))
    except ValueError as error:
        raise config_lib.ConfigError(f"{needed}: {error}") from error
    if record is not None and now != record.stages[0].folder:
        raise config_lib.ConfigError(
            f"{needed}, and {settings.source} has changed: bring the same files back, or choose"
            f" another --workdir and --config.init.from={data.workdir}"
        )
