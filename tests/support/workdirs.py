# SPDX-License-Identifier: Apache-2.0
"""Workdirs with a checkpoint of random weights, made without training."""

import os

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.data import records, vocabulary, vocabulary_training
from electra_jax.step import plans
from electra_jax.training import run_data
from electra_jax.weights import checkpoint_series

from . import odd
from .corpus import small_run, write_corpus

NO_SOURCE = "text:nowhere/*.txt"
STEP = 7
# Settings of a small run with a layer for detection alone, and one layer in both networks.
TEAMS = dict(
    objective__name="multi_word_selection",
    model__discriminator_head="own_layer",
    model__generator=dict(layers=2, width=32, heads=2, feed_forward=64),
    model__shared_layers=1,
)


def small_vocabulary(folder):
    """A vocabulary of 64 pieces, trained on a corpus that is written into the folder."""
    lines = write_corpus(folder / "corpus.txt").read_text().splitlines()
    return vocabulary_training.train("sentencepiece", 64, iter(lines))


def recipe(**overrides):
    """The configuration of a small run whose text is not there."""
    return config_lib.parse(small_run(NO_SOURCE, "", **overrides))


def begin(workdir, config):
    """Makes a workdir whose run has not begun; `config` is a tree of settings."""
    os.makedirs(workdir)
    (workdir / "config.json").write_text(config_lib.to_json(config_lib.parse(config)))


def made(workdir, words, **overrides):
    """Writes a workdir whose text is not there; returns its configuration and its parameters."""
    config = recipe(**overrides)
    words.save(str(workdir / "data" / "key" / "vocab"))
    return config, _with_weights(workdir, config, words)


def with_rows(workdir, source, **overrides):
    """Writes a workdir with the rows of a source; returns the workdir."""
    config = config_lib.parse(small_run(source, "", **overrides))
    (folder,) = run_data.prepare(config, str(workdir))
    words = vocabulary.load(f"{folder}/{records.VOCABULARY}")
    _with_weights(workdir, config, words, data=records.open(folder).manifest.hash)
    return workdir


def _with_weights(workdir, config, words, **about):
    objective = plans.make_objective(config, words, np.ones(words.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))
    (workdir / "config.json").write_text(config_lib.to_json(config))
    about |= {"config": config_lib.to_tree(config), "vocabulary": words.sha256}
    with checkpoint_series.Checkpoints(str(workdir / "checkpoints"), keep_last=1) as saved:
        saved.save(STEP, {"params": params}, about)
    return params
