# SPDX-License-Identifier: Apache-2.0
"""A finished or running workdir, opened to look at: its newest good weights and its data.

Where the run keeps averages of its weights, these are what is looked at, as in its evaluations.
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
    """What `show` and `evaluate` work on."""

    config: config_lib.Config  # with the rows of the stage in which the run was
    records: records.Records | None  # None: not asked for
    vocabulary: vocabulary.Vocabulary
    objective: Any
    mesh: Any
    params_shardings: Any
    params: dict
    step: int
    longest_row: int  # tokens; more positions than these have not been learnt


def open_workdir(
    config: config_lib.Config, workdir: str, step: int | None = None, with_rows: bool = True
) -> Opened:
    """Reads, never writes: a run that is under way is not disturbed.

    Args:
      step: which checkpoint; None is the newest that can be read.
      with_rows: without them the vocabulary alone has to be there, and `records` is None.

    Raises:
      ConfigError, CheckpointError: nothing trained here yet, the step is not there, or the
        prepared data is gone.
    """
    directory = os.path.join(workdir, "checkpoints")
    if not os.path.isdir(workdir):
        raise config_lib.ConfigError(
            f"there is no workdir {workdir}; train first: python -m electra_jax.main"
            f" --workdir={workdir}"
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
    config = _as_trained(config, workdir)
    opened, folders = None, []
    if with_rows:
        folders = prepared_data.folders(config, workdir)
        opened = records.open(folders[0])
        words = vocabulary.load(os.path.join(folders[0], records.VOCABULARY))
    else:
        words = _vocabulary(config, workdir, directory, found)
    # What a fixed generator draws by needs the text; without rows nothing is drawn.
    unigram_V = np.ones(words.size) if opened is None else opened.unigram()[0]
    mesh = plans.mesh(config)
    plan = plans.of(config, words, unigram_V, mesh)
    shapes = jax.eval_shape(plan.objective.init, plan.key)
    part = "ema" if config.optimizer.ema_decay else "params"
    where = sharding.shardings({part: shapes}, mesh)
    abstract = trees.shapes_at({part: shapes}, where)
    restored = _newest(directory, found if step is None else [step], abstract)
    stage = restored.metadata.get("stage", 0)
    # At the border of two stages `stage` is the one that comes next, of which no row was taken yet.
    rows_by_stage = restored.metadata.get("rows_by_stage", ())
    longest = max(
        (kind.sequence_length for kind, rows in zip(stages.of(config), rows_by_stage) if rows),
        default=config.data.sequence_length,
    )
    if config.model.positions != "learned":
        longest = config.model.max_positions
    if stage:
        config = stages.config_of(config, stage)
        if with_rows:
            opened = records.open(folders[stage])
            unigram_V = opened.unigram()[0]
        plan = plans.of(config, words, unigram_V, mesh)
    return Opened(
        config=config,
        records=opened,
        vocabulary=words,
        objective=plan.objective,
        mesh=mesh,
        params_shardings=where[part],
        params=restored.tree[part],
        step=restored.step,
        longest_row=longest,
    )


def check_settings(config: config_lib.Config, workdir: str) -> None:
    """Refuses what a run in this workdir would refuse: another configuration than it has."""
    _, trained = saved_config.of_newest_checkpoint(workdir)
    if trained is not None or os.path.exists(os.path.join(workdir, saved_config.NAME)):
        _as_trained(config, workdir)


def evaluate(opened: Opened) -> dict[str, float | None]:
    """All metrics of its objective on the held-out rows, as a run's own evaluations have them."""
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
        values["ema_decay"] = c.optimizer.ema_decay  # says what was evaluated
    return values


def _vocabulary(config, workdir, directory, found):
    """The one that the newest checkpoint was trained with, wherever a copy of it lies."""
    for number in reversed(found):
        try:
            about = metadata.read(os.path.join(directory, str(number)))
        except metadata.CheckpointError:
            continue
        return reading_workdir.vocabulary_of(workdir, config, about["vocabulary"])[0]
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def _newest(directory, found, abstract):
    for number in reversed(found):
        try:
            return checkpoint.restore(os.path.join(directory, str(number)), abstract)
        except metadata.CheckpointError as error:
            logging.error("checkpoint %d cannot be used: %s", number, error)
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def _as_trained(config, workdir):
    """Data, model and objective as the run has them; devices and the rest as asked for now."""
    # The checkpoint's own settings are guarded by a digest, those of the file are not.
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
