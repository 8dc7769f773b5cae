# SPDX-License-Identifier: Apache-2.0
"""A run before its first step: data, networks, compiled functions, and the state to go on from."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from electra_jax import build, checkpoint, evaluation, initial, metrics, sharding, train_step
from electra_jax import config as config_lib
from electra_jax.data import pipeline, preparation, records, vocabulary


@dataclasses.dataclass
class Run:
    """The parts of one run. What moves is `state`, and what was added up since the last log."""

    config: config_lib.Config
    workdir: str
    mesh: Mesh
    records: records.Records
    vocabulary: vocabulary.Vocabulary
    objective: Any
    update: Callable
    evaluate: Callable
    abstract: train_step.TrainState
    state: train_step.TrainState
    interval: metrics.Sums
    restored: bool


def start(config: config_lib.Config, workdir: str) -> Run:
    """Everything before the first step: data, parts, and a state from the first of these:

    1. this workdir's newest good checkpoint (exactly where it stopped, data position included);
    2. the weights that `init` names, and their optimizer's moments if it says so, at step 0;
    3. fresh weights.
    """
    for setting in config_lib.unread(config):
        logging.warning("%s changes nothing: %s does not read it", setting, config.objective.name)
    mesh = build.mesh(config)  # refuses a batch that does not divide before any data is touched
    data = prepare(config, workdir)
    opened = records.open(data)
    words = vocabulary.load(os.path.join(data, "vocab"))
    _check_records(config, opened, words)
    unigram_V = opened.unigram()[0]
    step = build.step(config, words, mesh, unigram_V, logging.warning)
    abstract = _placed(step.shapes, step.where)
    interval = _zero_interval(step.update, step.shapes, config, mesh)
    with checkpoints_of(config, workdir) as saved:
        restored = saved.restore_latest(saved_tree(abstract, placed_like(interval)))
    if restored is not None:
        initial.check_vocabulary(restored.metadata, words, workdir)
        tree = dict(restored.tree)
        interval = tree.pop("interval")
        state = train_step.TrainState(**tree)
        logging.info("resuming from step %d of %s", restored.step, workdir)
    else:
        state = jax.jit(step.init, out_shardings=step.where)()
        if config.init.from_ or config.init.generator_from:
            state = initial.state(config, state, step.objective.phases, words, mesh)
    return Run(
        config=config,
        workdir=workdir,
        mesh=mesh,
        records=opened,
        vocabulary=words,
        objective=step.objective,
        update=train_step.compile_update(step.update, step.shapes, mesh),
        evaluate=evaluation.compile_evaluate(
            step.objective, words.pad_id, unigram_V, mesh, step.where.params
        ),
        abstract=abstract,
        state=state,
        interval=interval,
        restored=restored is not None,
    )


def prepare(config: config_lib.Config, workdir: str) -> str:
    """The folder of prepared data, made now if it is not there; one process makes it.

    Without a shared file system every process makes its own, which comes out equal.
    """
    root = config.data.dir or os.path.join(workdir, "data")
    settings = preparation.Settings.from_config(config)
    if jax.process_index() == 0:
        folder = preparation.prepare(settings, root, logging.info)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("data prepared")
        if jax.process_index() != 0:
            folder = preparation.prepare(settings, root, logging.info)
        digest = np.frombuffer(bytes.fromhex(records.open(folder).manifest.hash), np.uint32)
        multihost_utils.assert_equal(digest, "processes prepared different data")
    return folder


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
        "data": run.records.manifest.hash,
        "vocabulary": run.vocabulary.sha256,
        "jax": jax.__version__,
    }


def _check_records(config, opened: records.Records, words: vocabulary.Vocabulary) -> None:
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
