# SPDX-License-Identifier: Apache-2.0
"""Nothing but the text tells replaced tokens apart."""

import shutil

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.checks import shuffled_text
from electra_jax.data import planning, preparation, records
from support.corpus import load_config


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tiny_paper", marks=pytest.mark.learning),
        pytest.param("tiny", marks=pytest.mark.exhaustive),
    ],
)
def test_nothing_but_the_text_tells_replaced_tokens_apart(name, tmp_path):
    """Leak control: on text whose tokens are shuffled across the whole corpus there is nothing to
    learn beyond frequency. Whatever beats chance here leaks: a [MASK], a position, padding, a
    generator that does not sample from what it believes. [CLS] and [SEP] are counted and never
    replaced, which alone gives a row of 64 an AUC of 0.527 and a row of 128 half of that excess."""
    config = load_config(name)
    config.data.update(sequence_length=128, batch_size=32)
    config.model.max_positions = 128
    config.data.heldout_fraction = 0.1  # enough held-out tokens that their entropy is not biased
    config.schedule.steps = 1500
    config.optimizer.learning_rate = 3e-3  # nothing to learn but frequencies: learn them well
    config.evaluation.rows = 2048
    parsed = config_lib.parse(config)
    settings = planning.DataSettings.of(parsed.data, parsed.seed)
    ordered = preparation.prepare(settings, str(tmp_path / "ordered"))
    shutil.copytree(tmp_path / "ordered", tmp_path / "shuffled")
    shuffled = ordered.replace("ordered", "shuffled")
    entropy = shuffled_text.shuffle_tokens(shuffled)
    records.verify(shuffled)
    before, after = (records.open(folder).manifest for folder in (ordered, shuffled))
    assert before.totals == after.totals and before.hash != after.hash
    config.data.dir = str(tmp_path / "shuffled")
    final = electra_jax.train(config, tmp_path / "run")
    assert abs(final["gen_masked_loss"] - entropy) < 0.05
    assert 0.47 < final["disc_auc"] < 0.53
