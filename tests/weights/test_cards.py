# SPDX-License-Identifier: Apache-2.0
"""What the model card says of the training, for weights that nothing was read for."""

import pytest

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.report import writers
from electra_jax.step import plans
from electra_jax.weights import card_facts, trained_weights
from support.corpus import small_run

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "sun", "moon")).encode(), True, True)
STAGES = dict(data__sequence_length=16, data__batch_size=8, schedule__stages=((0.9, 32, 4),))


def weights(source="run", step=10, stage_rows=(), **settings):
    config = config_lib.parse(small_run("builtin", "", **settings))
    shape = plans.networks_config(config, WORDS.size)
    return trained_weights.Weights(
        str(source), step, shape, {}, WORDS, config, stage_rows=stage_rows
    )


def test_every_stage_is_named_with_its_rows():
    facts = card_facts.training_facts(weights(stage_rows=(72, 4), **STAGES))
    assert facts["batch"] == "8 rows of 16 tokens (72 rows in all); then 4 rows of 32 tokens" + (
        " (4 rows in all)"
    )
    objectives = plans.make_plan(weights(**STAGES).config, WORDS).objectives
    expected = sum(
        rows * objectives[length].flops(length).train for rows, length in ((72, 16), (4, 32))
    )
    assert facts["FLOPs"].startswith(f"{expected:.3g} in matrix products")


def test_stages_whose_rows_are_not_known_are_named_with_their_share():
    facts = card_facts.training_facts(weights(**STAGES))
    assert facts["batch"] == ("8 rows of 16 tokens; from 90 % of the budget on 4 rows of 32 tokens")
    assert "FLOPs" not in facts


@pytest.mark.parametrize("stage_rows", [(), (80,)])
def test_a_run_of_one_stage_has_one_batch(stage_rows):
    found = weights(stage_rows=stage_rows, data__batch_size=8, data__sequence_length=16)
    facts = card_facts.training_facts(found)
    assert facts["batch"] == "8 rows of 16 tokens"
    flops = plans.make_plan(found.config, WORDS).objective.flops(16).train
    assert facts["FLOPs"].startswith(f"{80 * flops:.3g} in matrix products")


def test_a_run_that_began_with_weights_says_whose():
    settings = {"objective__name": "frozen_generator", "model__sharing": "none"}
    both = {"init__from": "runs/first", "init__generator_from": "runs/first"}
    assert card_facts.training_facts(weights(**settings, **both))["began with"] == (
        "weights of first"
    )
    for path, named in (("runs/first/", "first"), ("runs/first/checkpoints/7000", "first")):
        facts = card_facts.training_facts(weights(init__from=path))
        assert facts["began with"] == f"weights of {named}"
    assert "began with" not in card_facts.training_facts(weights())
    assert "began with" not in card_facts.training_facts(weights("imported", init__from="imported"))


def test_rates_that_differ_are_named_apart():
    assert card_facts.training_facts(weights())["optimizer"] == "reference_adamw, peak rate 0.001"
    rates = {"optimizer__gen_learning_rate": 0.002, "optimizer__disc_learning_rate": 0.0005}
    assert card_facts.training_facts(weights(**rates))["optimizer"] == (
        "reference_adamw, peak rate of generator and embeddings 0.002,"
        " peak rate of the discriminator 0.0005"
    )


def test_the_step_of_an_evaluation_is_not_rounded(tmp_path):
    rows = writers.JsonLines(tmp_path / "metrics.jsonl")
    rows.write(123_456, "eval", {"disc_auc": 0.912345, "tokens_seen": 7})
    rows.write(123_457, "eval", {"disc_auc": 0.5})
    found = weights(tmp_path, step=123_456)
    assert card_facts.last_evaluation(found) == {"step": "123,456", "disc_auc": "0.9123"}
