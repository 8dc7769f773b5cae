# SPDX-License-Identifier: Apache-2.0
"""A run before its first step: data, compiled functions, and the state to go on from."""

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
    """What steps work with as long as rows have one length and each step takes as many of them."""

    config: config_lib.Config  # of a run that has such rows from its first step on
    records: records.Records
    objective: Any
    update: Callable
    evaluate: Callable


@dataclasses.dataclass
class Run:
    """One run: its parts, which stay, and what changes from step to step."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    vocabulary: vocabulary.Vocabulary
    stages: tuple[Stage, ...]
    abstract: train_step.TrainState  # shapes and shardings of the state
    restored: bool  # whether it goes on from a checkpoint

    # What changes; the loop alone writes it.
    state: train_step.TrainState
    interval: metrics.Sums  # added up since the last log line
    step: int  # the last one that was taken
    rows_seen: int
    number: int  # the stage that the next step belongs to
    rows_by_stage: list[int]  # taken so far
    rollbacks: list[dict]  # spikes behind which the run went back, see `spikes.go_back`

    @property
    def stage(self) -> Stage:
        """The stage of the next step."""
        return self.stages[self.number]

    @property
    def records(self) -> records.Records:
        """The rows of the stage."""
        return self.stage.records

    @property
    def objective(self) -> Any:
        """The objective with as many slots as the rows of the stage have."""
        return self.stage.objective

    @property
    def update(self) -> Callable:
        """One step on rows of the stage."""
        return self.stage.update

    @property
    def evaluate(self) -> Callable:
        """The metrics of rows of the stage, without learning."""
        return self.stage.evaluate


def start(config: config_lib.Config, workdir: str) -> Run:
    """Everything before the first step: data, parts, and a state from the first of these:

    1. this workdir's newest good checkpoint (exactly where it stopped, data position included);
    2. the weights that `init` names, with their optimizer's moments if it says so, at step 0;
    3. fresh weights.
    """
    for line in config_lib.unread(config):
        logging.warning("%s", line)
    mesh = plans.mesh(config)  # refuses a batch that cannot be split before any data is read

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
        restored = saved.restore_latest(like, optional="interval")  # may be older than a metric
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
        number=budget.stage_of(config.schedule, state),
        rows_by_stage=list(about.get("rows_by_stage", [rows_seen] + [0] * (len(parts) - 1))),
        rollbacks=list(about.get("rollbacks", [])),
    )


def metadata_of(run: Run) -> dict:
    """The JSON beside a checkpoint: what it was made with."""
    return {
        "config": config_lib.to_tree(run.config),
        "stage": run.number,
        "rows_by_stage": list(run.rows_by_stage),  # a copy: it is written while the run goes on
        "rollbacks": run.rollbacks,
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


# Compiled programs. A run like one before it in this process, as in a notebook that goes on with a
# stopped run, takes the programs of that one and does not trace and compile again.

_PROGRAMS_KEPT = 4  # per process; a run has one for each length of its rows


@dataclasses.dataclass(frozen=True)
class _Programs:
    """The jitted functions for one row length, and the warnings from making them."""

    plan: plans.Plan
    init: Callable
    update: Callable
    evaluate: Callable
    warnings: tuple[str, ...]


_kept_programs: collections.OrderedDict[tuple, _Programs] = collections.OrderedDict()


def forget_programs() -> None:
    """Drops the programs that are kept for later runs of this process."""
    _kept_programs.clear()


def _stages(config, folders, words, mesh) -> tuple[tuple[Stage, ...], _Programs]:
    """The parts of each stage, and the programs of the first."""
    stages_found, programs_by_length = [], {}
    for number, folder in enumerate(folders):
        opened = records.open(folder)
        _check_records(opened, words)
        settings = stages.config_of(config, number)
        length = settings.data.sequence_length

        if length not in programs_by_length:  # another batch is the same program for other shapes
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
    """The jitted functions for these settings, perhaps those of an earlier run."""
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
    key = (plans.objective, made_of, about_data, mesh)  # tests put others in its place
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
    """Warns where the whole run stays far below the peak of the learning rate."""
    real = [1 - part.records.manifest.wasted_fraction for part in parts]
    counts = stages.steps(config, real)
    if line := plans.peak_not_reached(config, counts and sum(counts)):
        logging.warning("%s", line)


def _check_records(opened: records.Records, words: vocabulary.Vocabulary) -> None:
    manifest = opened.manifest
    if manifest.vocabulary["sha256"] != words.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {words.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _with_own_weights(config, workdir):
    """Weights that were converted into this workdir are its beginning, wherever it was moved."""
    own = processes.of_first(lambda: metadata.steps(os.path.join(workdir, "checkpoints")))
    if not (own and config.init.from_):
        return config
    return dataclasses.replace(config, init=dataclasses.replace(config.init, from_=workdir))


def _zero_interval(plan, config) -> metrics.Sums:
    """Sums of no step, in the form of those that a step returns."""
    size = (config.data.batch_size, config.data.sequence_length)
    lanes = {
        "ids": jax.ShapeDtypeStruct(size, jnp.uint16),
        "marks": jax.ShapeDtypeStruct(size, jnp.uint8),
    }
    sums = jax.eval_shape(plan.update, plan.shapes, lanes)[1].sums

    def zeros():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    return jax.jit(zeros, out_shardings=sharding.replicated(plan.mesh))()
