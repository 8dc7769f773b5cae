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
from electra_jax.data import pipeline, records, streaming
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import processes
from electra_jax.report import samples
from electra_jax.step import evaluation, plans, train_step
from electra_jax.training import budget, feed, provenance, run_data, saved_state, streamed_data
from electra_jax.weights import checkpoint, starting_weights, warm_start
from electra_jax.workdir import metadata


@dataclasses.dataclass(frozen=True)
class RunStage:
    """What the steps of one stage use. Within a stage row length and batch size are constant."""

    sequence_length: int  # tokens per row
    batch_size: int  # rows per step
    records: records.Records
    objective: Any
    update: Callable
    evaluator: evaluation.Evaluator
    intermediates: Callable


@dataclasses.dataclass
class Run:
    """One run: first the parts that stay the same, then what changes from step to step."""

    config: config_lib.Config
    workdir: str
    plan: plans.Plan
    mesh: Mesh
    vocabulary: vocabulary_lib.Vocabulary
    stages: tuple[RunStage, ...]
    abstract_state: train_step.TrainState  # shapes and shardings of the state
    restored: bool  # whether it continues from a checkpoint of this workdir
    environment: dict[str, Any]  # what this start is made with

    # Changed by the loop, and by what the loop calls: `output.log` and `spikes.go_back`.
    state: train_step.TrainState
    interval: metrics.Sums  # added up since the last log line
    step: int  # the number of the last step taken
    # Rows taken so far in all stages; also the number of the next row in the order of its stage.
    rows_seen: int
    stage_number: int  # the stage of the next step
    rows_by_stage: list[int]  # rows taken so far in each stage
    rollbacks: list[dict]  # each time that the run went back, see `spikes.go_back`
    evaluation_due: bool  # the evaluation of this step is still to be made, see `loop`

    @property
    def stage(self) -> RunStage:
        """The stage of the next step."""
        return self.stages[self.stage_number]

    @property
    def order(self) -> feed.AnyOrder:
        """The order of the training rows of the stage."""
        rows, seed = self.stage.records, self.config.seed
        if isinstance(rows, streaming.StreamedRecords):
            return streaming.StreamedOrder(rows, seed)
        return pipeline.Order(rows, seed)

    def unmap_other_rows(self) -> None:
        """Closes the files of rows that the present stage does not read, until they are read again.

        Those of many stages would be more files than a process may open.
        """
        for stage in self.stages:
            if stage.records is not self.stage.records:
                stage.records.unmap()


def start(config: config_lib.Config, workdir: str) -> Run:
    """Returns the run before the first step of this start.

    Its state comes from the first of these that exists:

    1. the newest good checkpoint of this workdir, exactly where it stopped, including the position
       in the data;
    2. the weights that the section `init` names, at step 0, with their optimizer's moments if
       `init.optimizer` is 'restored';
    3. fresh weights.

    The settings were compared with those of the workdir before (`before_the_run.py`).
    """
    for line in config_lib.unread(config):
        logging.warning("%s", line)
    # First, so that a wrong batch size, or attention that these devices cannot compute, is refused
    # before text is read for hours.
    mesh = plans.make_mesh(config, evaluates=True)
    for stage in stages.distinct(config):
        plans.networks_config(config, 1, mesh, stage.sequence_length)

    records_by_stage = _records_by_stage(config, workdir)
    try:
        return _build_run(config, workdir, mesh, records_by_stage)
    except BaseException:
        for found in records_by_stage:
            found.close()
        raise


def _records_by_stage(config, workdir) -> list[records.Records]:
    """The rows of each stage; with data.streaming=on as soon as the first are prepared."""
    if config.data.streaming == "on":
        return [streamed_data.open_rows(config, workdir)]
    folders = run_data.prepare(config, workdir)
    by_folder = {folder: records.open(folder) for folder in set(folders)}  # stages may share one
    return [by_folder[folder] for folder in folders]


def _build_run(config, workdir, mesh, records_by_stage) -> Run:
    """The run on these rows of each stage, before its first step."""
    vocabulary = vocabulary_lib.load(
        os.path.join(records_by_stage[0].directory, records.VOCABULARY)
    )
    for found in records_by_stage:
        _check_vocabulary(found, vocabulary)
    processes.agree(lambda: pipeline.check_room(records_by_stage), ValueError)

    programs = _programs(config, vocabulary, mesh, records_by_stage)
    plan = programs.plan
    _warn_of_few_steps(plan, config.schedule, records_by_stage)

    abstract_state, interval = _shapes(plan, mesh), _zero_interval(plan)
    restored = _restored(config, workdir, vocabulary, abstract_state, interval)
    if restored is not None:
        tree = dict(restored.tree)
        interval = tree.pop(checkpoint.INTERVAL)
        state = saved_state.with_spent(train_step.TrainState(**tree), restored.step, workdir)
        logging.info("resuming from step %d of %s", restored.step, workdir)
    else:
        state = _first_state(config, workdir, mesh, vocabulary, programs)

    kept = {} if restored is None else restored.metadata
    rows_seen = counters.to_int(jax.device_get(state.rows_seen))
    step = int(state.step)
    # What weights know before the first step tells what the run has gained, and what is forgotten.
    begins_with_weights = step == 0 and bool(config.init.from_ or config.init.generator_from)

    return Run(
        config=config,
        workdir=workdir,
        plan=plan,
        mesh=mesh,
        vocabulary=vocabulary,
        stages=tuple(
            programs.of_stage(config, stage, found)
            for stage, found in zip(plan.stages, records_by_stage)
        ),
        abstract_state=abstract_state,
        restored=restored is not None,
        environment=provenance.of_this_start(),
        state=state,
        interval=interval,
        step=step,
        rows_seen=rows_seen,
        stage_number=budget.stage_of(config.schedule, state),
        rows_by_stage=list(kept.get("rows_by_stage", [rows_seen] + [0] * (len(plan.stages) - 1))),
        rollbacks=list(kept.get("rollbacks", [])),
        evaluation_due=kept.get("evaluation_due", begins_with_weights),
    )


def _shapes(plan, mesh) -> train_step.TrainState:
    """The shapes of the state, each with its sharding."""
    where = sharding.shardings(plan.state_shapes, mesh, lambda line: logging.warning("%s", line))
    return trees.shapes_at(plan.state_shapes, where)


def _restored(config, workdir, vocabulary, abstract_state, interval):
    """The newest good checkpoint of this workdir; None if it has none.

    Raises ConfigError if it was trained with another vocabulary.
    """
    with saved_state.checkpoints_of(config.checkpoint, workdir) as saved:
        like = saved_state.tree_of(abstract_state, trees.shapes_like(interval))
        restored = saved.restore_latest(like)
    if restored is not None:
        starting_weights.check_vocabulary(restored.metadata, vocabulary, workdir)
    return restored


def _first_state(config, workdir, mesh, vocabulary, programs) -> train_step.TrainState:
    """The state at step 0: fresh, or with the weights that the section `init` names."""
    state = programs.init()
    if not (config.init.from_ or config.init.generator_from):
        return state
    plan = programs.plan
    return warm_start.state(
        starting_weights.FreshRun(
            init=_with_own_weights(config.init, workdir),
            optimizer=config.optimizer.name,
            fresh=state,
            phases=plan.objective.phases,
            vocabulary=vocabulary,
            mesh=mesh,
            shared_layers=plan.networks.shared_layers,
        )
    )


def metadata_of(run: Run) -> dict:
    """The JSON beside a checkpoint: what the run was made with, and how far it has come."""
    return {
        "config": config_lib.to_tree(run.config),
        "stage": run.stage_number,
        "rows_by_stage": list(run.rows_by_stage),  # a copy, since it is written in the background
        "rollbacks": run.rollbacks,
        "evaluation_due": run.evaluation_due,
        "data": run.stage.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "environment": run.environment,
    }


_PROGRAMS_KEPT = 4  # runs with different settings, per process


@dataclasses.dataclass(frozen=True)
class _Programs:
    """The plan of a run and its jitted functions, those of a step by row length."""

    plan: plans.Plan
    init: Callable
    update: dict[int, Callable]  # jit itself handles another batch size
    evaluate: dict[int, Callable]
    intermediates: dict[int, Callable]

    def of_stage(
        self, config: config_lib.Config, stage: stages.Stage, rows: records.Records
    ) -> RunStage:
        """What the steps of a stage use, of one of the runs that share these programs."""
        length = stage.sequence_length
        return RunStage(
            sequence_length=length,
            batch_size=stage.batch_size,
            records=rows,
            objective=self.plan.objectives[length],
            update=self.update[length],
            evaluator=plans.make_evaluator(config, self.plan, stage, self.evaluate[length]),
            intermediates=self.intermediates[length],
        )


_kept_programs: collections.OrderedDict[tuple, _Programs] = collections.OrderedDict()


def forget_programs() -> None:
    """Forgets the programs that are kept for later runs of this process."""
    _kept_programs.clear()


def _programs(config, vocabulary, mesh, rows) -> _Programs:
    """The plan and its jitted functions, taken from an earlier run if it had equal ones.

    Args:
      config: the configuration.
      vocabulary: that of the run.
      mesh: where it trains.
      rows: those that are prepared, of each stage.
    """
    c = config
    unigrams = {found.manifest.sequence_length: found.unigram()[0] for found in rows}
    made_of = c.model, c.objective, c.optimizer, c.schedule, c.mesh, c.seed, stages.of(c)
    about_data = vocabulary.sha256, *(unigram_V.tobytes() for unigram_V in unigrams.values())
    key = (made_of, about_data, mesh)
    if key in _kept_programs:
        _kept_programs.move_to_end(key)
        return _kept_programs[key]

    plan = plans.make_plan(config, vocabulary, unigrams, mesh)
    programs = _Programs(
        plan=plan,
        init=jax.jit(plan.init, out_shardings=plan.state_shardings),
        update={length: plan.compile_update(length) for length in plan.objectives},
        evaluate={
            length: plan.compile_evaluate(length, unigrams[length]) for length in plan.objectives
        },
        intermediates={
            length: samples.compile_intermediates(objective.placed(), plan.pad_id)
            for length, objective in plan.objectives.items()
        },
    )

    _kept_programs[key] = programs
    while len(_kept_programs) > _PROGRAMS_KEPT:
        _kept_programs.popitem(last=False)
    return programs


def _warn_of_few_steps(plan, schedule, rows):
    """Warns of stages without a step, and of a learning rate that stays far below its peak."""
    real = [1 - found.manifest.wasted_fraction for found in rows]
    counts = stages.steps(schedule, plan.stages, real)
    for stage, count in zip(plan.stages, counts or ()):
        if not count:
            logging.warning(
                "the stage of %s, which begins at a share of %g, takes no step; change"
                " schedule.stages, or raise schedule.%s",
                stages.describe(stage), stage.share, schedule.budget,
            )  # fmt: skip
    if line := plan.low_peak_warning(counts and sum(counts)):
        logging.warning("%s", line)


def _check_vocabulary(rows: records.Records, vocabulary: vocabulary_lib.Vocabulary) -> None:
    """Raises ConfigError if the rows were made with another vocabulary."""
    manifest = rows.manifest
    if manifest.vocabulary["sha256"] != vocabulary.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {vocabulary.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _with_own_weights(init, workdir):
    """The section `init`, with `init.from` set to the workdir itself if it holds weights.

    Weights that were imported into this workdir are the ones to start from. `init.from` names the
    folder in which they were imported, and the workdir may have been moved since.
    """
    own = processes.of_first(lambda: metadata.steps(metadata.directory(workdir)))
    return dataclasses.replace(init, from_=workdir) if own and init.from_ else init


def _zero_interval(plan) -> metrics.Sums:
    """Metric sums of zero, with the names and shapes of those that a step returns."""
    stage = plan.stages[0]
    size = (stage.batch_size, stage.sequence_length)
    lanes = {
        "ids": jax.ShapeDtypeStruct(size, jnp.uint16),
        "marks": jax.ShapeDtypeStruct(size, jnp.uint8),
    }
    update = plan.make_update(stage.sequence_length)
    _, measured = jax.eval_shape(update, plan.state_shapes, lanes)

    def zeros():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), measured.metric_sums)

    return jax.jit(zeros, out_shardings=sharding.replicated(plan.mesh))()
