# SPDX-License-Identifier: Apache-2.0
"""Opens the workdir of a finished or running run for reading: its weights and its prepared data.

    workdir -> settings it was trained with -> rows, vocabulary -> objective -> newest good weights

`show` and `evaluate` work on what comes out. If the run keeps averages of its weights, these are
read, because the run evaluates them too.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import meshes, sharding, trees
from electra_jax.data import background, records
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import cluster, compile_cache, processes, program
from electra_jax.objectives import scoring
from electra_jax.objectives.objective import Objective
from electra_jax.step import evaluation, plans
from electra_jax.training import run_data
from electra_jax.weights import checkpoint, reading_workdir
from electra_jax.workdir import metadata, prepared_data, saved_config


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A checkpoint of a run, and everything that is needed to evaluate it."""

    config: config_lib.Config
    stage: stages.Stage  # that the run was in
    records: records.Records | None  # None if rows were not asked for
    vocabulary: vocabulary_lib.Vocabulary
    plan: plans.Plan
    params: dict
    step: int
    longest_row: int  # tokens; learned positions beyond it were never trained
    # How often the text has each id by which `disc_auc_unigram` draws; None: as the training text.
    drawn_by_V: np.ndarray | None = None

    @property
    def objective(self) -> Objective:
        """The objective for rows of the stage."""
        return self.plan.objectives[self.stage.sequence_length]

    def scorer(self, by: str | None = None) -> scoring.Scorer:
        """What scores sentences on one device, in a way of `scoring`; None is the usual one."""
        return scoring.Scorer(
            self.objective.placed(), self.params, self.vocabulary, self.longest_row, by
        )

    @functools.cached_property
    def evaluator(self) -> evaluation.Evaluator:
        """What computes metrics as the run does; the rows must have been asked for."""
        unigram_V = self.records.unigram()[0] if self.drawn_by_V is None else self.drawn_by_V
        compiled = self.plan.compile_evaluate(self.stage.sequence_length, unigram_V)
        return plans.make_evaluator(self.config, self.plan, self.stage, compiled)


def of_workdir(
    workdir: str | os.PathLike, step: int | None = None, with_rows: bool = True
) -> TrainedRun:
    """`open` with the run's own settings. Raises ConfigError if there is no run."""
    workdir = os.fspath(workdir)
    config = saved_config.of_run(workdir)
    if config is None:
        raise config_lib.ConfigError(f"{workdir} has no {saved_config.NAME}; give that of a run")
    return open(config, workdir, step, with_rows)


def open(
    config: config_lib.Config,
    workdir: str,
    step: int | None = None,
    with_rows: bool = True,
    evaluates: bool = False,
) -> TrainedRun:
    """Opens a workdir for reading only, so that a run in progress is not disturbed.

    Args:
      config: devices and the like are taken from here. Settings that define the trained model must
        equal those of the run.
      step: the step of the checkpoint; None means the newest that can be read.
      with_rows: whether to open the prepared rows. If False, only the vocabulary must be present,
        and `records` is None.
      evaluates: whether batches of `evaluation.batch_size` rows follow, which all devices share.
        Otherwise one device of this process is used, however the run was divided.

    Raises:
      ConfigError, CheckpointError: if nothing was trained here yet, if the run has other settings,
        if the devices do not divide a batch, if there is no checkpoint of this step, or if the
        prepared data is gone or other than the run was trained on.
    """
    cluster.check_chips_are_free()
    compile_cache.keep()
    directory = metadata.directory(workdir)
    steps = _steps_found(workdir, directory, step)
    config = _as_trained(config, workdir)

    if with_rows:
        folders = _checked_folders(config, workdir)
        vocabulary = vocabulary_lib.load(os.path.join(folders[0], records.VOCABULARY))
    else:
        folders, vocabulary = [], _vocabulary(config, workdir, directory)

    # Only a generator that samples by frequency needs frequencies, and without rows nothing is
    # sampled.
    records_by_stage = [_rows(config, folder) for folder in folders]
    unigrams = {found.manifest.sequence_length: found.unigram()[0] for found in records_by_stage}

    if evaluates:
        mesh = plans.make_mesh(config, evaluates=True)
    else:  # the kernels of accelerators cannot be divided without the mesh of a step
        mesh = meshes.make_mesh(1, devices=jax.local_devices()[:1])
    plan = plans.make_plan(config, vocabulary, unigrams, mesh)
    part = _part(directory, step)
    restored = _restore(plan, part, directory, steps, step)

    number = restored.metadata.get("stage", 0)
    return TrainedRun(
        config=config,
        stage=plan.stages[number],
        records=records_by_stage[number] if with_rows else None,
        vocabulary=vocabulary,
        plan=plan,
        params=restored.tree[part],
        step=restored.step,
        longest_row=longest_row(config, restored.metadata),
    )


def check_settings(config: config_lib.Config, workdir: str) -> None:
    """Raises ConfigError for settings that a run in this workdir would refuse to continue with.

    A workdir without a run has no settings yet, so nothing is refused.
    """
    _, trained = saved_config.of_newest_checkpoint(workdir)
    # A config.json without anything that was made with it is that of a command that was refused.
    has_settings = os.path.exists(os.path.join(workdir, saved_config.NAME))
    if trained is not None or has_settings and saved_config.has_begun(workdir):
        saved_config.refuse_other(trained or saved_config.of_run(workdir), config, workdir)


def evaluate(run: TrainedRun) -> dict[str, float | None]:
    """Returns all metrics on the held-out rows, computed as in the evaluations during training."""
    rows = run_data.heldout(run.records, run.config.evaluation.rows)
    return run.evaluator.of_sources(run.params, rows)


def _steps_found(workdir, directory, step):
    """The steps of all checkpoints. Raises ConfigError if there are none, or not the one wanted."""
    if not os.path.isdir(workdir):
        raise config_lib.ConfigError(
            f"there is no workdir {workdir}; train first: {program.command('main')}"
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
            f"no checkpoint in {directory}; train first: {program.command('main')}"
            f" --workdir={workdir}"
        )
    if step is not None and step not in found:
        raise config_lib.ConfigError(
            f"no checkpoint of step {step} in {directory}; there are {', '.join(map(str, found))}"
        )
    return found


def _checked_folders(config, workdir):
    """One folder of rows per stage. Raises ConfigError if they are not those of the training."""
    prepared_data.check_folder(config.data)
    data = prepared_data.RunData.of(config, workdir)
    folders = prepared_data.folders(data)
    run_data.check_rows(data, folders)
    return folders


def _vocabulary(config, workdir, directory):
    """The vocabulary of the newest readable checkpoint, from wherever a copy of it is found."""
    for _, about in metadata.readable(directory):
        return reading_workdir.vocabulary_of(workdir, config, about["vocabulary"])[0]
    raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")


def _rows(config, folder):
    """The rows of a stage, in the order in which the run takes its held-out rows."""
    if config.data.streaming == "on":
        return background.open_whole(folder)
    return records.open(folder)


def _part(directory, step):
    """Which weights a checkpoint is judged by: `ema`, the averages, or `params` if it has none.

    A run has averages from its first step on; weights that were imported have none.
    """
    for number, about in metadata.readable(directory):
        if step in (None, number):
            return "ema" if any(path.startswith("ema/") for path in about["digest"]) else "params"
    return "params"


def _restore(plan, part, directory, steps, step):
    """The checkpoint of `step`, or for None the newest good one.

    Only one part of it is read: `params`, or `ema` for the averages.
    """
    shapes = jax.eval_shape(plan.objective.init, plan.key)
    where = sharding.shardings({part: shapes}, plan.mesh)
    abstract = trees.shapes_at({part: shapes}, where)
    if step is None:
        return _newest(directory, steps, abstract)
    try:
        return checkpoint.restore(os.path.join(directory, str(step)), abstract)
    except metadata.CheckpointError as error:
        raise metadata.CheckpointError(
            f"{error}; leave --step out for the newest checkpoint that can be read"
        ) from error


def longest_row(config: config_lib.Config, about: Mapping[str, Any]) -> int:
    """How many tokens of a row a trained model takes; `about` are the metadata of a checkpoint."""
    trained = stages.longest_row(config, about.get("rows_by_stage", ()))
    if config.model.positions == "learned":  # those beyond the trained ones were never trained
        return trained
    return max(trained, config.model.max_positions)


def _newest(directory, found, abstract):
    """The newest of these checkpoints that can be restored. Raises CheckpointError if none can."""
    newest = metadata.newest_good(directory, found, lambda path: checkpoint.restore(path, abstract))
    if newest is None:
        raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")
    return newest[0]


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
