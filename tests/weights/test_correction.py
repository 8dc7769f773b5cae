# SPDX-License-Identifier: Apache-2.0
"""The head by which a discriminator corrects, in runs that begin with weights."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from electra_jax.data import vocabulary_training
from electra_jax.step import plans, train_step
from electra_jax.weights import resizing, starting_weights, warm_start
from support import corpus, odd, workdirs

CORRECTS, PREDICTS = ({"objective__name": name} for name in ("corrective_lm", "masked_lm"))


@functools.cache
def words(size, folder):
    lines = corpus.write_corpus(folder / "corpus.txt").read_text().splitlines()
    return vocabulary_training.train("sentencepiece", size, iter(lines))


def begun(path, vocabulary):
    """(first parameters of a run that corrects and begins with the weights there, those before)."""
    config = workdirs.recipe(**CORRECTS)
    init = dataclasses.replace(config.init, from_=str(path), new_tokens="mean")
    config = dataclasses.replace(config, init=init)
    objective = plans.make_objective(config, vocabulary, np.ones(vocabulary.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)), seed=4)
    fresh = train_step.state_of(objective, plans.make_optimizer(config), params)
    run = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, objective.phases, vocabulary,
        plans.make_mesh(config),
    )  # fmt: skip
    return odd.flat(warm_start.state(run).params), odd.flat(params)


@pytest.mark.parametrize(
    ("settings", "head"), [(CORRECTS, "correction"), (PREDICTS, "head")], ids=["run", "predictor"]
)
def test_its_bias_follows_another_vocabulary(settings, head, tmp_path):
    old, new = words(64, tmp_path), words(60, tmp_path)
    (tmp_path / "run").mkdir()
    before = odd.flat(workdirs.made(tmp_path / "run", old, **settings)[1])
    after, fresh = begun(tmp_path / "run", new)

    plan = resizing.tokens(old, new)
    for ours, theirs in (
        ("embeddings/token", "embeddings/token"),
        ("discriminator/correction/bias", f"discriminator/{head}/bias"),
    ):
        expected = resizing.rows(before[theirs], fresh[ours], plan)
        np.testing.assert_array_equal(after[ours], expected)
        assert not np.array_equal(after[ours][: new.size], before[theirs][: new.size])
    for part in ("dense/kernel", "dense/bias", "norm/scale", "norm/bias"):
        np.testing.assert_array_equal(
            after[f"discriminator/correction/{part}"], before[f"discriminator/{head}/{part}"]
        )


def test_a_head_that_only_detects_leaves_it_fresh(tmp_path):
    vocabulary = words(64, tmp_path)
    (tmp_path / "run").mkdir()
    workdirs.made(tmp_path / "run", vocabulary, objective__name="replaced_token_detection")
    after, fresh = begun(tmp_path / "run", vocabulary)
    correction = [path for path in fresh if path.startswith("discriminator/correction/")]
    assert len(correction) == 5
    for path in correction:
        np.testing.assert_array_equal(after[path], fresh[path])
    assert not np.array_equal(after["embeddings/token"], fresh["embeddings/token"])
