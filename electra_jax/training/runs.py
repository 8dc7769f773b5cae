# SPDX-License-Identifier: Apache-2.0
"""Builds a run before its first step: data, compiled functions, and the state to start from.

    config, workdir -> prepared rows of each stage -> programs of each row length -> state -> Run

Compiled programs are kept for later runs of the same process, as in a notebook that continues a
stopped run: a run with equal settings does not trace and compile again.
"""

import collections
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
from absl import logging
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import counters, metrics, sharding, trees
from electra_jax.data import records, vocabulary
from electra_jax.host import processes
from electra_jax.step import evaluation, plans, train_step
from electra_jax.training import budget, run_data, saved_state
from electra_jax.weights import starting_weights, warm_start
from electra_jax.workdir import metadata


@dataclasses.dataclass(frozen=True)
class Stage:
    """What the steps of one stage use. Within a stage row length and batch size are constant."""

    config: config_lib.Config  # with this stage's row length and batch size as those of the run
    records: records.Records
    objective: Any
    update: Callable
    evaluate: Callable


@dataclasses.dataclass
class Run:
    """One run: first the parts that stay the same, then what changes from step to step."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    vocabulary: vocabulary.Vocabulary
    stages: tuple[Stage, ...]
    abstract: train_step.TrainState  # shapes and shardings of the state
    restored: bool  # whether it continues from a checkpoint of this workdir

    # Changed by the loop, and by what the loop calls: `output.log` and `spikes.go_back`.
    state: train_step.TrainState
    interval: metrics.Sums  # added up since the last log line
    step: int  # the number of the last step taken
    rows_seen: int  # rows taken so far, and the number of the next row
    stage_number: int  # the stage of the next step
    rows_by_stage: list[int]  # rows taken so far in each stage
    rollbacks: list[dict]  # each time that the run went back, see `spikes.go_back`

    @property
    def stage(self) -> Stage:
        """The stage of the next step."""
        return self.stages[self.stage_number]

    @property
    def records(self) -> records.Records:
        """The prepared rows of the stage."""
        return self.stage.records

    @property
    def objective(self) -> Any:
        """The objective, with the number of slots that rows of this length have."""
        return self.stage.objective

    @property
    def update(self) -> Callable:
        """The compiled training step for rows of the stage."""
        return self.stage.update

    @property
    def evaluate(self) -> Callable:
        """The compiled evaluation for rows of the stage."""
        return self.stage.evaluate


def start(config: config_lib.Config, workdir: str) -> Run:
    """Returns the run before the first step of this start.

    Its state comes from the first of these that exists:

    1. the newest good checkpoint of this workdir, exactly where it stopped, including the position
       in the data;
    2. the weights that the section `init` names, at step 0, with their optimizer's moments if
       `init.optimizer` is 'restored';
    3. fresh weights.
    """
    for line in config_lib.unread(config):
        logging.warning("%s", line)
    # First, so that a wrong batch size or path is refused before text is read for hours.
    mesh = plans.mesh(config)
    _check_starting_weights(config, workdir)

    # Data and programs.
    folders = run_data.prepare(config, workdir)
    words = vocabulary.load(os.path.join(folders[0], records.VOCABULARY))
    parts, programs = _stages(config, folders, words, mesh)
    _warn_of_low_rate(config, parts)

    # The state.
    abstract = trees.shapes_at(programs.plan.shapes, programs.plan.where)
    interval = _zero_interval(programs.plan, config)
    with saved_state.checkpoints_of(config, workdir) as saved:
        like = saved_state.tree_of(abstract, trees.shapes_like(interval))
        restored = saved.restore_latest(like, optional="interval")  # older ones lack metrics

    if restored is not None:
        starting_weights.check_vocabulary(restored.metadata, words, workdir)
        tree = dict(restored.tree)
        interval = interval | tree.pop("interval")
        state = saved_state.with_spent(train_step.TrainState(**tree), restored.step, workdir)
        logging.info("resuming from step %d of %s", restored.step, workdir)
    else:
        state = programs.init()
        if config.init.from_ or config.init.generator_from:
            begins = _with_own_weights(config, workdir)
            phases = programs.plan.objective.phases
            state = warm_start.state(begins, state, phases, words, mesh)

    about = {} if restored is None else restored.metadata
    rows_seen = counters.to_int(jax.device_get(state.rows_seen))

    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        vocabulary=words,
        stages=parts,
        abstract=abstract,
        restored=restored is not None,
        state=state,
        interval=interval,
        step=int(state.step),
        rows_seen=rows_seen,
        stage_number=budget.stage_of(config.schedule, state),
        rows_by_stage=list(about.get("rows_by_stage", [rows_seen] + [0] * (len(parts) - 1))),
        rollbacks=list(about.get("rollbacks", [])),
    )


def metadata_of(run: Run) -> dict:
    """The JSON beside a checkpoint: what the run was made with, and how far it has come."""
    return {
        "config": config_lib.to_tree(run.config),
        "stage": run.stage_number,
        "rows_by_stage": list(run.rows_by_stage),  # a copy, since it is written in the background
        "rollbacks": run.rollbacks,
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


_PROGRAMS_KEPT = 4  # per process; a run needs one for each of its row lengths


@dataclasses.dataclass(frozen=True)
class _Programs:
    """The jitted functions for one row length, and the warnings that came with them."""

    plan: plans.Plan
    init: Callable
    update: Callable
    evaluate: Callable
    warnings: tuple[str, ...]


_kept_programs: collections.OrderedDict[tuple, _Programs] = collections.OrderedDict()


def _check_starting_weights(config, workdir):
    """Raises ConfigError on all processes if there are no weights where a new run would begin."""
    if processes.of_first(lambda: metadata.steps(os.path.join(workdir, "checkpoints"))):
        return
    kinds = ValueError, OSError, metadata.CheckpointError
    processes.agree(lambda: starting_weights.check_paths(config), *kinds)


def forget_programs() -> None:
    """Forgets the programs that are kept for later runs of this process."""
    _kept_programs.clear()


def _stages(config, folders, words, mesh) -> tuple[tuple[Stage, ...], _Programs]:
    """The parts of each stage, and the programs of the first."""
    stages_found, programs_by_length = [], {}
    for number, folder in enumerate(folders):
        opened = records.open(folder)
        _check_records(opened, words)
        settings = stages.config_of(config, number)
        length = settings.data.sequence_length

        if length not in programs_by_length:  # jit itself handles another batch size
            programs_by_length[length] = _programs(settings, words, mesh, opened.unigram()[0])
            if number == 0:
                for line in programs_by_length[length].warnings:
                    logging.warning("%s", line)
        programs = programs_by_length[length]
        stages_found.append(
            Stage(settings, opened, programs.plan.objective, programs.update, programs.evaluate)
        )
    return tuple(stages_found), programs_by_length[config.data.sequence_length]


def _programs(settings, words, mesh, unigram_V) -> _Programs:
    """The jitted functions for these settings, taken from an earlier run if it had equal ones."""
    c = settings
    made_of = (
        c.model,
        c.objective,
        c.optimizer,
        c.schedule,
        c.mesh,
        c.seed,
        c.data.sequence_length,
    )
    about_data = (words.sha256, unigram_V.tobytes())
    # The function `plans.objective` is part of the key because tests replace it.
    key = (plans.objective, made_of, about_data, mesh)
    if key in _kept_programs:
        _kept_programs.move_to_end(key)
        return _kept_programs[key]

    warnings: list[str] = []
    plan = plans.of(settings, words, unigram_V, mesh)
    sharding.shardings(plan.shapes, mesh, warnings.append)
    programs = _Programs(
        plan=plan,
        init=jax.jit(plan.init, out_shardings=plan.where),
        update=train_step.compile_update(plan.update, plan.shapes, mesh),
        evaluate=evaluation.compile_evaluate(
            plan.objective, plan.pad_id, unigram_V, mesh, plan.where.params
        ),
        warnings=tuple(warnings),
    )

    _kept_programs[key] = programs
    while len(_kept_programs) > _PROGRAMS_KEPT:
        _kept_programs.popitem(last=False)
    return programs


def _warn_of_low_rate(config, parts):
    """Warns if the learning rate stays far below its peak during the whole run."""
    real = [1 - part.records.manifest.wasted_fraction for part in parts]
    counts = stages.steps(config, real)
    if line := plans.peak_not_reached(config, counts and sum(counts)):
        logging.warning("%s", line)


def _check_records(opened: records.Records, words: vocabulary.Vocabulary) -> None:
    """Raises ConfigError if the rows were made with another vocabulary."""
    manifest = opened.manifest
    if manifest.vocabulary["sha256"] != words.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {words.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _with_own_weights(config, workdir):
    """The configuration, with `init.from` set to the workdir itself if it holds weights.

    Weights that were imported into this workdir are the ones to start from. `init.from` names the
    folder in which they were imported, and the workdir may have been moved since.
    """
    own = processes.of_first(lambda: metadata.steps(os.path.join(workdir, "checkpoints")))
    if not (own and config.init.from_):
        return config
    return dataclasses.replace(config, init=dataclasses.replace(config.init, from_=workdir))


def _zero_interval(plan, config) -> metrics.Sums:
    """Metric sums of zero, with the names and shapes of those that a step returns."""
    size = (config.data.batch_size, config.data.sequence_length)
    lanes = {
        "ids": jax.ShapeDtypeStruct(size, jnp.uint16),
        "marks": jax.ShapeDtypeStruct(size, jnp.uint8),
    }
    sums = jax.eval_shape(plan.update, plan.shapes, lanes)[1].sums

    def zeros():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    return jax.jit(zeros, out_shardings=sharding.replicated(plan.mesh))()
