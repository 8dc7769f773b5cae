# SPDX-License-Identifier: Apache-2.0
"""A run before its first step: data, networks, compiled functions, and the state to go on from."""

import dataclasses
import json
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from electra_jax import (
    budget,
    build,
    checkpoint,
    evaluation,
    initial,
    metrics,
    processes,
    safe_files,
    sharding,
    stages,
    train_step,
)
from electra_jax import config as config_lib
from electra_jax.data import pipeline, preparation, records, vocabulary

SPENT = "spent.json"  # in the workdir of a run that went back: `note_spent`


@dataclasses.dataclass(frozen=True)
class Stage:
    """What steps work with while rows have one length and come so many a step."""

    config: config_lib.Config  # of a run that has such rows from its first step on
    records: records.Records
    objective: Any
    update: Callable
    evaluate: Callable


@dataclasses.dataclass
class Run:
    """The parts of one run. What moves is `state`, what was added up since the last log, and
    `number`, the stage that the next step belongs to."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    vocabulary: vocabulary.Vocabulary
    stages: tuple[Stage, ...]
    number: int
    rows_by_stage: list[int]  # taken so far
    rollbacks: list[dict]  # behind which spikes the run went back, see `bad_steps`
    abstract: train_step.TrainState
    state: train_step.TrainState
    interval: metrics.Sums
    restored: bool

    @property
    def stage(self) -> Stage:
        """That of the next step."""
        return self.stages[self.number]

    @property
    def records(self) -> records.Records:
        """Of the stage."""
        return self.stage.records

    @property
    def objective(self) -> Any:
        """With the slots that rows of the stage have."""
        return self.stage.objective

    @property
    def update(self) -> Callable:
        """One step on rows of the stage."""
        return self.stage.update

    @property
    def evaluate(self) -> Callable:
        """The same without learning."""
        return self.stage.evaluate


def start(config: config_lib.Config, workdir: str) -> Run:
    """Everything before the first step: data, parts, and a state from the first of these:

    1. this workdir's newest good checkpoint (exactly where it stopped, data position included);
    2. the weights that `init` names, and their optimizer's moments if it says so, at step 0;
    3. fresh weights.
    """
    for line in config_lib.unread(config):
        logging.warning("%s", line)
    mesh = build.mesh(config)  # refuses a batch that does not divide before any data is touched
    folders = prepare(config, workdir)
    words = vocabulary.load(os.path.join(folders[0], preparation.VOCABULARY))
    parts, step = _stages(config, folders, words, mesh)
    real = [1 - part.records.manifest.wasted_fraction for part in parts]
    counts = stages.steps(config, real)
    if line := build.peak_not_reached(config, counts and sum(counts)):
        logging.warning("%s", line)
    abstract = _placed(step.shapes, step.where)
    interval = _zero_interval(step.update, step.shapes, config, mesh)
    with checkpoints_of(config, workdir) as saved:
        like = saved_tree(abstract, placed_like(interval))
        restored = saved.restore_latest(like, optional="interval")  # it may be from before a metric
    if restored is not None:
        initial.check_vocabulary(restored.metadata, words, workdir)
        tree = dict(restored.tree)
        interval = interval | tree.pop("interval")
        state = train_step.TrainState(**tree)
        logging.info("resuming from step %d of %s", restored.step, workdir)
        state = _with_spent(state, restored.step, workdir)
    else:
        state = jax.jit(step.init, out_shardings=step.where)()
        if config.init.from_ or config.init.generator_from:
            state = initial.state(config, state, step.objective.phases, words, mesh)
    seen = train_step.words_to_int(jax.device_get(state.rows_seen))
    metadata = {} if restored is None else restored.metadata
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        vocabulary=words,
        stages=parts,
        number=budget.stage_of(config.schedule, state),
        rows_by_stage=list(metadata.get("rows_by_stage", [seen] + [0] * (len(parts) - 1))),
        rollbacks=list(metadata.get("rollbacks", [])),
        abstract=abstract,
        state=state,
        interval=interval,
        restored=restored is not None,
    )


def prepare(config: config_lib.Config, workdir: str) -> list[str]:
    """The folders of prepared data, one a stage, made now if they are not there; one process makes
    them.

    Without a shared file system every process makes its own, which comes out equal.
    """
    root = data_root(config, workdir)
    return [_prepared(settings, root) for settings in data_settings(config, workdir)]


def data_root(config: config_lib.Config, workdir: str) -> str:
    """Where prepared data lies, a folder for each hash of settings."""
    return config.data.dir or os.path.join(workdir, "data")


def data_settings(config: config_lib.Config, workdir: str) -> Iterator[preparation.Settings]:
    """How the rows of each stage are made: all with the vocabulary of the first, which has to be
    prepared before the second is asked for."""
    first = preparation.Settings.from_config(config)
    yield first
    for number, stage in enumerate(stages.of(config)[1:], 1):
        settings = preparation.Settings.from_config(stages.config_of(config, number))
        if stage.sequence_length != first.sequence_length and first.vocab.startswith("train:"):
            folder = preparation.folder_of(first, data_root(config, workdir))
            words = os.path.join(folder, preparation.VOCABULARY)
            settings = dataclasses.replace(settings, vocab=words)
        yield settings


def heldout(run_records: records.Records, limit: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, ids, marks) of each source's first held-out rows."""
    sources = []
    for index, source in enumerate(run_records.manifest.sources):
        rows = pipeline.heldout(run_records, index, limit)
        if len(rows.ids):
            sources.append((source.name, rows.ids, rows.marks))
    return sources


def checkpoints_of(config: config_lib.Config, workdir: str) -> checkpoint.Checkpoints:
    """The checkpoints of a workdir, kept as the configuration says."""
    c = config.checkpoint
    return checkpoint.Checkpoints(os.path.join(workdir, "checkpoints"), c.keep_last, c.keep_every)


def saved_tree(state: train_step.TrainState, interval: metrics.Sums) -> dict:
    """What a checkpoint holds: the state's fields, and the sums since the last log."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    kept = {name: value for name, value in fields.items() if value is not None}
    return kept | {"interval": interval}


def metadata_of(run: Run) -> dict:
    """The JSON beside a checkpoint: what it was made with."""
    return {
        "config": config_lib.to_tree(run.config),
        "stage": run.number,
        "rows_by_stage": list(run.rows_by_stage),  # it is written while the run goes on
        "rollbacks": run.rollbacks,
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


def note_spent(workdir: str, step: int, state: train_step.TrainState) -> None:
    """Keeps the time of a run that ends by going back to a checkpoint, which knows less of it.

    The checkpoint stays as it is; without the note the next start would train those minutes again.
    """
    if jax.process_index() == 0 and state.seconds is not None:
        note = {"step": step, "seconds": float(state.seconds)}
        note |= {"check": _check_of(note)}
        safe_files.write(os.path.join(workdir, SPENT), json.dumps(note).encode())


def _check_of(note):
    return zlib.crc32(json.dumps(note, sort_keys=True).encode())


def _with_spent(state, step, workdir):
    """The state of this checkpoint, with the time that was spent behind it in vain."""
    if state.seconds is None:
        return state

    def noted():
        path = os.path.join(workdir, SPENT)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found.pop("check", None) not in (None, _check_of(found)):  # None: an older version
                raise ValueError("a digit of it changed")
            return float(found["seconds"]) if found["step"] == step else 0.0  # later ones know it
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            logging.warning("%s cannot be read; minutes that were given up may be trained", path)
            return 0.0

    return budget.with_seconds(state, max(float(state.seconds), processes.of_first(noted)))


def _prepared(settings, root) -> str:
    """The folder of one stage's rows; when the first process has it, the others look for it."""

    def make():
        return preparation.prepare(settings, root, logging.info)

    first = jax.process_index() == 0
    made = processes.agree(lambda: make() if first else "", ValueError, OSError)
    folder = processes.agree(lambda: made or make(), ValueError, OSError)
    if jax.process_count() > 1:
        found = processes.agree(lambda: records.open(folder), ValueError, OSError)
        digest = np.frombuffer(bytes.fromhex(found.manifest.hash), np.uint32)
        multihost_utils.assert_equal(digest, "processes prepared different data")
    return folder


def _stages(config, folders, words, mesh) -> tuple[tuple[Stage, ...], build.Step]:
    """The parts of each stage, and the step of the first."""
    found, steps = [], {}
    for number, folder in enumerate(folders):
        opened = records.open(folder)
        _check_records(opened, words)
        settings = stages.config_of(config, number)
        length = settings.data.sequence_length
        if length not in steps:  # another batch is the same program for other shapes
            report = logging.warning if number == 0 else lambda line: None
            unigram_V = opened.unigram()[0]
            step = build.step(settings, words, mesh, unigram_V, report)
            steps[length] = (
                step,
                train_step.compile_update(step.update, step.shapes, mesh),
                evaluation.compile_evaluate(
                    step.objective, words.pad_id, unigram_V, mesh, step.where.params
                ),
            )
        step, update, evaluate = steps[length]
        found.append(Stage(settings, opened, step.objective, update, evaluate))
    return tuple(found), steps[config.data.sequence_length][0]


def _check_records(opened: records.Records, words: vocabulary.Vocabulary) -> None:
    manifest = opened.manifest
    if manifest.vocabulary["sha256"] != words.sha256:
        raise config_lib.ConfigError(
            f"the records were made with vocabulary {manifest.vocabulary['sha256'][:12]}, not with"
            f" {words.sha256[:12]} which lies beside them; delete the folder and prepare again"
        )


def _zero_interval(update, shapes, config, mesh) -> metrics.Sums:
    size = (config.data.batch_size, config.data.sequence_length)
    lanes = {
        "ids": jax.ShapeDtypeStruct(size, jnp.uint16),
        "marks": jax.ShapeDtypeStruct(size, jnp.uint8),
    }
    sums = jax.eval_shape(update, shapes, lanes)[1].sums

    def zeros():
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    return jax.jit(zeros, out_shardings=sharding.replicated(mesh))()


def _placed(shapes, where):
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, where
    )


def placed_like(tree):
    """Shapes with the shardings that the arrays have."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
