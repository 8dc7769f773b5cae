# SPDX-License-Identifier: Apache-2.0
"""What the model card says of the training, for weights that nothing was read for."""

import dataclasses

import pytest

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.report import writers
from electra_jax.step import plans
from electra_jax.weights import card_facts, reading, reading_workdir, trained_weights
from electra_jax.workdir import starts
from support.corpus import small_run

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "sun", "moon")).encode(), True, True)
STAGES = dict(data__sequence_length=16, data__batch_size=8, schedule__stages=((0.9, 32, 4),))


def weights(source="run", step=10, stage_rows=(), began_with=None, **settings):
    config = config_lib.parse(small_run("builtin", "", **settings))
    shape = plans.networks_config(config, WORDS.size)
    return trained_weights.Weights(
        str(source), step, shape, {}, WORDS, config, stage_rows=stage_rows,
        began_with=began_with or {},
    )  # fmt: skip


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


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ({}, {}),
        ({"init__from": "runs/first/"}, {"main": "first"}),
        ({"init__from": "runs/first/checkpoints/7000"}, {"main": "first"}),
        ({"init__from": "hf:owner/name@main"}, {"main": "hf:owner/name@main"}),
        ({"init__generator_from": "runs/first/."}, {"generator": "first"}),
        (
            {"init__from": "runs/first", "init__generator_from": "runs/second"},
            {"main": "first", "generator": "second"},
        ),
    ],
)
def test_a_run_that_began_with_weights_knows_whose(paths, names, tmp_path):
    settings = {"model__sharing": "none"} if "init__generator_from" in paths else {}
    config = weights(**settings, **paths).config
    assert reading_workdir.began_with(str(tmp_path), config) == names


def test_a_run_with_imported_weights_knows_what_they_were_called(tmp_path):
    config = weights(init__from=str(tmp_path)).config
    moved = weights(init__from="where/it/was").config
    assert reading_workdir.began_with(str(tmp_path), config) == {}  # imported by earlier versions
    starts.note_imported(str(tmp_path), "electra-small")
    assert starts.read(str(tmp_path)) == [] and not starts.has_saved(str(tmp_path))
    for settings in (config, moved):
        assert reading_workdir.began_with(str(tmp_path), settings) == {"main": "electra-small"}


def test_an_export_of_an_earlier_version_has_its_settings_alone():
    config = weights(init__from="runs/first").config
    assert reading._began_with("export", {}, config) == {"main": "first"}
    assert reading._began_with("export", {"began_with": {}}, config) == {}
    assert reading._began_with("export", {}, None) == {}


def test_the_card_names_weights_that_a_run_began_with_each_once():
    for names, said in (
        ({"main": "first", "generator": "second"}, "weights of first and second"),
        ({"main": "first", "generator": "first"}, "weights of first"),
    ):
        assert card_facts.training_facts(weights(began_with=names))["began with"] == said
    assert "began with" not in card_facts.training_facts(weights())


@pytest.mark.parametrize(
    ("names", "of_discriminator", "of_generator"),
    [
        ({}, [], []),
        ({"main": "runs"}, [], []),
        ({"main": "hf:owner/name@main"}, ["owner/name"], ["owner/name"]),
        ({"generator": "hf:owner/name"}, [], ["owner/name"]),
        ({"main": "hf:owner/name", "generator": "runs"}, ["owner/name"], []),
    ],
)
def test_a_repository_is_the_base_of_the_networks_that_it_gave(
    names, of_discriminator, of_generator
):
    found = weights(began_with=names)
    assert card_facts.base_models(found, "discriminator") == of_discriminator
    assert card_facts.base_models(found, "generator") == of_generator
    alone = dataclasses.replace(found, only="generator")  # which is then the main network
    assert card_facts.base_models(alone, "discriminator") == of_generator


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
