# SPDX-License-Identifier: Apache-2.0
"""Opens the workdir of a finished or running run for reading: its weights and its prepared data.

    workdir -> settings it was trained with -> rows, vocabulary -> objective -> newest good weights

`show` and `evaluate` work on what comes out. If the run keeps averages of its weights, these are
read, because the run evaluates them too.
"""

import dataclasses
import os
from typing import Any

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import sharding, trees
from electra_jax.data import records, vocabulary
from electra_jax.host import processes
from electra_jax.step import evaluation, plans
from electra_jax.training import run_data
from electra_jax.weights import checkpoint, reading_workdir
from electra_jax.workdir import metadata, prepared_data, saved_config


@dataclasses.dataclass(frozen=True)
class Opened:
    """A checkpoint and everything that is needed to evaluate it."""

    config: config_lib.Config  # row length and batch size of the stage that the run was in
    records: records.Records | None  # None if rows were not asked for
    vocabulary: vocabulary.Vocabulary
    objective: Any
    mesh: Any
    params_shardings: Any
    params: dict
    step: int
    longest_row: int  # tokens; learned positions beyond it were never trained


def open_workdir(
    config: config_lib.Config, workdir: str, step: int | None = None, with_rows: bool = True
) -> Opened:
    """Opens a workdir for reading only, so that a run in progress is not disturbed.

    Args:
      config: devices and the like are taken from here. Settings that define the trained model must
        equal those of the run.
      step: the step of the checkpoint; None means the newest that can be read.
      with_rows: whether to open the prepared rows. If False, only the vocabulary must be present,
        and `records` is None.

    Raises:
      ConfigError, CheckpointError: if nothing was trained here yet, if the run has other settings,
        if there is no checkpoint of this step, or if the prepared data is gone.
    """
    directory = os.path.join(workdir, "checkpoints")
    found = _steps_found(workdir, directory, step)
    config = _as_trained(config, workdir)

    folders, opened = [], None
    if with_rows:
        folders = prepared_data.folders(config, workdir)
        opened = records.open(folders[0])
        words = vocabulary.load(os.path.join(folders[0], records.VOCABULARY))
    else:
        words = _vocabulary(config, workdir, directory, found)

    unigram_V = _unigram(opened, words)
    mesh = plans.mesh(config)
    plan = plans.of(config, words, unigram_V, mesh)
    part = "ema" if config.optimizer.ema_decay else "params"
    params_shardings, restored = _restore(plan, part, directory, found if step is None else [step])
    longest_row = _longest_row(config, restored.metadata)

    stage = restored.metadata.get("stage", 0)
    if stage:  # what was made above is for the rows of the first stage
        config = stages.config_of(config, stage)
        if with_rows:
            opened = records.open(folders[stage])
        plan = plans.of(config, words, _unigram(opened, words), mesh)

    return Opened(
        config=config,
        records=opened,
        vocabulary=words,
        objective=plan.objective,
        mesh=mesh,
        params_shardings=params_shardings,
        params=restored.tree[part],
        step=restored.step,
        longest_row=longest_row,
    )


def check_settings(config: config_lib.Config, workdir: str) -> None:
    """Raises ConfigError for settings that a run in this workdir would refuse to continue with.

    A workdir without a run has no settings yet, so nothing is refused.
    """
    _, trained = saved_config.of_newest_checkpoint(workdir)
    if trained is not None or os.path.exists(os.path.join(workdir, saved_config.NAME)):
        _as_trained(config, workdir)


def evaluate(opened: Opened) -> dict[str, float | None]:
    """Returns all metrics on the held-out rows, computed as in the evaluations during training."""
    c = opened.config
    values = evaluation.run(
        evaluation.compile_evaluate(
            opened.objective,
            opened.vocabulary.pad_id,
            opened.records.unigram()[0],
            opened.mesh,
            opened.params_shardings,
        ),
        opened.objective,
        opened.params,
        run_data.heldout(opened.records, c.evaluation.rows),
        c.evaluation.batch_size or c.data.batch_size,
        opened.vocabulary.pad_id,
        opened.mesh,
    )

    if c.optimizer.ema_decay:
        values["ema_decay"] = c.optimizer.ema_decay  # shows that averages were evaluated
    return values


def _steps_found(workdir, directory, step):
    """The steps of all checkpoints. Raises ConfigError if there are none, or not the one wanted."""
    if not os.path.isdir(workdir):
        raise config_lib.ConfigError(
            f"there is no workdir {workdir}; train first: python -m electra_jax.main"
            f" --workdir={workdir}"
        )

    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise config_lib.ConfigError(
            f"{directory} is not a folder, and a run keeps its checkpoints there; put the folder"
            " back, from a copy of the workdir"
        )

    found = processes.of_first(lambda: metadata.steps(directory))
    if not found:
        raise config_lib.ConfigError(
            f"no checkpoint in {directory}; train first: python -m electra_jax.main"
            f" --workdir={workdir}"
        )
    if step is not None and step not in found:
        raise config_lib.ConfigError(
            f"no checkpoint of step {step} in {directory}; there are {', '.join(map(str, found))}"
        )
    return found


def _vocabulary(config, workdir, directory, found):
    """The vocabulary of the newest readable checkpoint, from wherever a copy of it is found."""
    for number in reversed(found):
        try:
            about = metadata.read(os.path.join(directory, str(number)))
        except metadata.CheckpointError:
            continue
        return reading_workdir.vocabulary_of(workdir, config, about["vocabulary"])[0]
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def _unigram(opened, words):
    """[V] how often the training text has each id; all equal if there are no rows."""
    # Only a generator that samples by these frequencies needs them, and without rows nothing is
    # sampled.
    return np.ones(words.size) if opened is None else opened.unigram()[0]


def _restore(plan, part, directory, steps):
    """(shardings of the parameters, the newest good checkpoint of these steps).

    Of the checkpoint only one part is read: `params`, or `ema` for the averages.
    """
    shapes = jax.eval_shape(plan.objective.init, plan.key)
    where = sharding.shardings({part: shapes}, plan.mesh)
    abstract = trees.shapes_at({part: shapes}, where)
    return where[part], _newest(directory, steps, abstract)


def _longest_row(config, about):
    """How many tokens of a row the trained model can read."""
    if config.model.positions != "learned":
        return config.model.max_positions

    # A checkpoint at the border of two stages names the next one, which has not taken any row yet,
    # so the lengths that were trained are those of the stages with rows.
    rows_by_stage = about.get("rows_by_stage", ())
    return max(
        (kind.sequence_length for kind, rows in zip(stages.of(config), rows_by_stage) if rows),
        default=config.data.sequence_length,
    )


def _newest(directory, found, abstract):
    """The newest of these checkpoints that can be restored. Raises CheckpointError if none can."""
    for number in reversed(found):
        try:
            return checkpoint.restore(os.path.join(directory, str(number)), abstract)
        except metadata.CheckpointError as error:
            logging.error("checkpoint %d cannot be used: %s", number, error)
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def _as_trained(config, workdir):
    """Returns the given configuration if its data, model and objective are those of the run.

    Devices and other settings that a continuation may change are free. Raises ConfigError.
    """
    # The copy in the checkpoint comes first: it is protected by a digest, config.json is not.
    _, trained = saved_config.of_newest_checkpoint(workdir)
    trained = trained or saved_config.of_run(workdir)
    if trained is None:
        raise config_lib.ConfigError(
            f"{workdir} has no {saved_config.NAME} and no checkpoint that says how it was trained;"
            " give the workdir of a run"
        )

    _, refused = config_lib.differences(trained, config)
    if refused:
        raise config_lib.ConfigError(
            f"workdir {workdir} was trained with other settings: {'; '.join(refused)}; leave"
            f" --config out to use its own, and delete its {saved_config.NAME} if that is what"
            " differs: the checkpoint has the settings too"
        )
    return config
