# SPDX-License-Identifier: Apache-2.0
"""What the model card says of the training, for weights that nothing was read for."""

import dataclasses

import pytest

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.report import writers
from electra_jax.step import plans
from electra_jax.weights import card_facts, reading_workdir, trained_weights
from electra_jax.workdir import starts
from support.corpus import small_run

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "sun", "moon")).encode(), True, True)
STAGES = dict(data__sequence_length=16, data__batch_size=8, schedule__stages=((0.9, 32, 4),))


def weights(source="run", step=10, stage_rows=(), began_with=(), **settings):
    config = config_lib.parse(small_run("builtin", "", **settings))
    shape = plans.networks_config(config, WORDS.size)
    return trained_weights.Weights(
        str(source), step, shape, {}, WORDS, config, stage_rows=stage_rows, began_with=began_with
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


def test_a_run_that_began_with_weights_says_whose(tmp_path):
    settings = {"objective__name": "frozen_generator", "model__sharing": "none"}
    both = {"init__from": "runs/first", "init__generator_from": "runs/second/checkpoints/7000"}
    for paths, named in (
        (both, ("first", "second")),
        (both | {"init__generator_from": "runs/first/"}, ("first",)),
        ({"init__from": "hf:owner/name@main"}, ("hf:owner/name@main",)),
        ({}, ()),
    ):
        config = weights(**(settings if "init__generator_from" in paths else {}), **paths).config
        assert reading_workdir.began_with(str(tmp_path), config) == named

    facts = card_facts.training_facts(weights(began_with=("first", "second")))
    assert facts["began with"] == "weights of first and second"
    assert "began with" not in card_facts.training_facts(weights())


def test_a_run_with_imported_weights_says_what_they_were_called(tmp_path):
    config = weights(init__from=str(tmp_path)).config
    moved = weights(init__from="where/it/was").config
    assert reading_workdir.began_with(str(tmp_path), config) == ()  # imported by earlier versions
    starts.note_imported(str(tmp_path), "electra-small")
    assert starts.read(str(tmp_path)) == [] and not starts.has_saved(str(tmp_path))
    for settings in (config, moved):
        assert reading_workdir.began_with(str(tmp_path), settings) == ("electra-small",)


def test_repositories_of_the_hub_are_base_models():
    began = weights(began_with=("runs", "hf:owner/name@main", "hf:owner/other"))
    assert card_facts.base_models(began) == ["owner/name", "owner/other"]
    converted = dataclasses.replace(began, config=None, source="hf:owner/name", began_with=())
    assert card_facts.base_models(converted) == ["owner/name"]
    assert card_facts.base_models(dataclasses.replace(converted, source="run")) == []


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
