# SPDX-License-Identifier: Apache-2.0
"""It learns, and from nothing but the text: minutes of training on two cores."""

import json
import shutil

import numpy as np
import pytest
from corpus import load_config

import electra_jax
from electra_jax import config as config_lib
from electra_jax.data import preparation, records, vocabulary

pytestmark = pytest.mark.learning


def test_tiny_leaves_the_unigram_plateau(tmp_path):
    """The README's run. Knowing only how frequent tokens are, it would end at `unigram_entropy`."""
    final = electra_jax.train(load_config("tiny"), tmp_path)
    assert final["unigram_entropy"] - final["gen_masked_loss"] > MARGIN
    assert final["disc_auc"] > AUC
    assert final["disc_auc_unigram"] > 0.53
    assert final["disc_loss"] < constant_guess(final["replaced_rate"])


def test_nothing_but_the_text_tells_replaced_tokens_apart(tmp_path):
    """Leak control: on text whose tokens are shuffled across the whole corpus there is nothing to
    learn beyond frequency. Whatever beats chance here leaks: a [MASK], a position, padding, a
    generator that does not sample from what it believes. [CLS] and [SEP] are counted and never
    replaced, which alone gives a row of 64 an AUC of 0.527 and a row of 128 half of that excess."""
    config = load_config("tiny")
    config.data.update(sequence_length=128, batch_size=32)
    config.model.max_positions = 128
    config.data.heldout_fraction = 0.1  # enough held-out tokens that their entropy is not biased
    config.schedule.steps = 1500
    config.optimizer.learning_rate = 3e-3  # nothing to learn but frequencies: learn them well
    config.evaluation.rows = 2048
    settings = preparation.Settings.from_config(config_lib.parse(config))
    ordered = preparation.prepare(settings, str(tmp_path / "ordered"))
    shutil.copytree(tmp_path / "ordered", tmp_path / "shuffled")
    entropy = shuffle_tokens(ordered.replace("ordered", "shuffled"))
    config.data.dir = str(tmp_path / "shuffled")
    final = electra_jax.train(config, tmp_path / "run")
    assert abs(final["gen_masked_loss"] - entropy) < 0.05
    assert 0.47 < final["disc_auc"] < 0.53


# What is asked for. Three seeds gave margins of 1.07, 1.35 and 0.55 nats and an AUC of 0.568, 0.567
# and 0.574 (docs/LOG.md); when a seed leaves the plateau varies so much that the mean less three
# deviations is no bound for the margin (-0.2). For the AUC it is 0.559.
MARGIN = 0.15
AUC = 0.559


def constant_guess(rate):
    """The loss of always saying how frequent replaced tokens are."""
    return -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))


def shuffle_tokens(folder):
    """Permutes all text tokens of a prepared folder over all its rows; the held-out entropy."""
    opened = records.open(folder)
    words = vocabulary.load(f"{folder}/vocab")
    paths = [
        f"{folder}/records/{split}/{shard.name}.ids"
        for split in records.SPLITS
        for shard in opened.manifest.sources[0].shards[split]
    ]
    dtype = np.dtype(opened.manifest.lanes["ids"])
    arrays = [np.fromfile(path, dtype) for path in paths]
    text = [~np.isin(array, words.special_ids) for array in arrays]
    tokens = np.concatenate([array[places] for array, places in zip(arrays, text, strict=True)])
    np.random.default_rng(0).shuffle(tokens)
    for path, array, places in zip(paths, arrays, text, strict=True):
        array[places], tokens = tokens[: places.sum()], tokens[places.sum() :]
        array.tofile(path)
    heldout = np.concatenate(
        [array[places] for path, array, places in zip(paths, arrays, text, strict=True)
         if "/heldout/" in path]
    )  # fmt: skip
    share = np.bincount(heldout) / len(heldout)
    entropy = float(-(share[share > 0] * np.log(share[share > 0])).sum())
    with open(f"{folder}/manifest.json", encoding="utf-8") as file:
        assert json.load(file)["hash"] == opened.manifest.hash  # sizes and counts are as they were
    return entropy
