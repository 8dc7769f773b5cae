# SPDX-License-Identifier: Apache-2.0
"""Weights are evaluated on a text without their run, by the rows and masks of another one."""

import dataclasses
import json

import pytest

from electra_jax import config as config_lib
from electra_jax.data import evaluation_text
from electra_jax.training import other_text, trained_run, weights_alone
from electra_jax.weights import exporting, reading
from support import workdirs
from support.commands import command, complaint
from support.corpus import write_corpus


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Of a run with settings of its own for rows and masks."""
    corpus = write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")
    return workdirs.with_rows(
        tmp_path_factory.mktemp("run"),
        f"text:{corpus}",
        data__rows="packed",
        objective__mask_rate=0.3,
        evaluation__batch_size=16,
    )


@pytest.fixture(scope="module")
def config(workdir):
    return config_lib.parse(json.loads((workdir / "config.json").read_text()))


@pytest.fixture(scope="module")
def exports(workdir, tmp_path_factory):
    """The same weights for others: a folder with one of each kind."""
    folder, found = tmp_path_factory.mktemp("exports"), reading.open(workdir)
    exporting.to_hugging_face(found, str(folder / "both"))
    exporting.to_hugging_face(found, str(folder / "judge"), "discriminator")
    exporting.to_hugging_face(found, str(folder / "writer"), "generator")
    exporting.to_orbax(found, str(folder / "orbax"))
    exporting.to_orbax(found, str(folder / "one"), "discriminator")
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("other") / "other.txt", documents=20, seed=3)


def on(run, text):
    texts = other_text.read(run, evaluation_text.parse(f"text:{text}"), 0)
    run = run if run.records is not None else weights_alone.drawing_by(run, texts)
    return run, other_text.evaluate(run, texts).pooled


@pytest.fixture(scope="module")
def expected(workdir, config, text):
    """What the run itself says of the text."""
    return on(trained_run.open(config, str(workdir), evaluates=True), text)[1]


@pytest.mark.parametrize("kind", ["both", "orbax", "workdir"])
def test_whole_weights_say_of_a_text_what_their_run_says(
    kind, workdir, exports, config, text, expected
):
    """But for replacements by frequency, whose frequencies are those of the text."""
    path = workdir if kind == "workdir" else exports / kind
    run, found = on(weights_alone.open(path, config), text)
    assert run.config.objective.name == "replaced_token_detection"
    assert set(found) == set(expected)
    for name, value in expected.items():
        if name != "disc_auc_unigram":
            assert found[name] == pytest.approx(value, rel=1e-5), name
    assert found["disc_auc_unigram"] != pytest.approx(expected["disc_auc_unigram"], rel=1e-5)


@pytest.mark.parametrize("kind", ["judge", "one"])
def test_a_discriminator_alone_judges_replacements_by_frequency(kind, exports, config, text):
    run, found = on(weights_alone.open(exports / kind, config), text)
    assert run.config.objective.name == "unigram_generator"
    assert "gen_masked_loss" not in found and 0 < found["disc_auc"] < 1
    assert found["masked_rate"] == pytest.approx(0.3, abs=0.02)


def test_a_discriminator_alone_is_judged_with_the_layer_of_its_head(config, text, tmp_path):
    """Though none is trained so; and a recipe may weigh nothing of what the weights can do."""
    workdirs.made(tmp_path / "teams", workdirs.small_vocabulary(tmp_path), **workdirs.TEAMS)
    exporting.to_orbax(reading.open(tmp_path / "teams"), str(tmp_path / "one"), "discriminator")
    run, found = on(weights_alone.open(tmp_path / "one", config), text)
    assert run.config.objective.name == "unigram_generator" and 0 < found["disc_auc"] < 1

    tree = config_lib.to_tree(config)
    tree["objective"]["selection_weight"] = 0.0
    run = weights_alone.open(tmp_path / "teams", config_lib.parse(tree))
    assert run.config.objective.name == "multi_word_selection"


def test_a_generator_alone_predicts_what_it_predicts_in_its_run(exports, config, text, expected):
    run, found = on(weights_alone.open(exports / "writer", config), text)
    assert run.config.objective.name == "masked_lm"
    assert found["mlm_masked_loss"] == pytest.approx(expected["gen_masked_loss"], rel=1e-5)


def test_the_rows_and_masks_of_a_run_come_before_those_of_the_weights_own(workdir, config, text):
    data = dataclasses.replace(config.data, rows="pairs", sequence_length=16)
    objective = dataclasses.replace(config.objective, mask_rate=0.2)
    other = dataclasses.replace(config, data=data, objective=objective)
    run, found = on(weights_alone.open(workdir, other), text)
    assert (run.config.data.rows, run.stage.sequence_length) == ("pairs", 16)
    assert found["masked_rate"] == pytest.approx(0.2, abs=0.03)


def test_replacements_by_frequency_are_drawn_as_the_texts_have_them(workdir, config, text):
    run = weights_alone.open(workdir, config)
    texts = other_text.read(run, evaluation_text.parse(f"a=text:{text}; b=text:{text}"), 0)
    drawn = weights_alone.drawing_by(run, texts)
    assert (drawn.drawn_by_V == 2 * texts[0].counts_V).all() and drawn.drawn_by_V.any()


def test_without_a_run_rows_are_those_of_the_weights_or_as_long_as_they_can_be(
    workdir, exports, config
):
    own, foreign = (weights_alone.open(path) for path in (workdir, exports / "both"))
    assert own.config.data.rows == "packed" and own.config.objective.mask_rate == 0.3
    assert foreign.config.data.rows == "pairs" and foreign.config.objective.mask_rate == 0.15
    assert {run.stage.sequence_length for run in (own, foreign)} == {32}


def test_what_cannot_be_evaluated_is_one_line(exports, config, tmp_path):
    tree = config_lib.to_tree(config)
    tree["data"]["sequence_length"] = tree["model"]["max_positions"] = 64
    with pytest.raises(config_lib.ConfigError, match="rows of 32 tokens at most, and .*length=64"):
        weights_alone.open(exports / "both", config_lib.parse(tree))

    words = workdirs.small_vocabulary(tmp_path)
    workdirs.made(tmp_path / "teams", words, **workdirs.TEAMS)
    exporting.to_hugging_face(reading.open(tmp_path / "teams"), str(tmp_path / "encoder"))
    with pytest.raises(config_lib.ConfigError, match="has an encoder without a head"):
        weights_alone.open(tmp_path / "encoder/encoder", config)


def test_the_command_prints_them_beside_nothing_of_a_run(workdir, exports, text, expected):
    module = "electra_jax.evaluate"
    weights, data = f"--weights={exports}/both", f"--data=text:{text}"
    done = command(weights, data, f"--workdir={workdir}", "--characters=0", "--json", module=module)
    assert done.returncode == 0, done.stderr[-2000:]
    title, *_, line = done.stdout.strip().split("\n")
    assert f"{exports}/both, on text of --data: rows of 32 tokens" in title
    found = json.loads(line)
    assert found["weights"] == f"{exports}/both"
    assert found["gen_masked_loss"] == pytest.approx(expected["gen_masked_loss"], rel=1e-5)

    assert "give --data=text:GLOB" in complaint(weights, module=module)
    assert "--weights= is empty" in complaint("--weights=", data, module=module)
    assert "name a run, --workdir=RUN" in complaint(data, module=module)
    assert "checkpoints/STEP as --weights" in complaint(weights, data, "--step=7", module=module)
