# SPDX-License-Identifier: Apache-2.0
"""What settings make of tasks and of the encoder, and what is refused, before anything is tuned."""

import json
import os
import shutil
import subprocess
import sys
import types

import jax
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.data import vocabulary
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tasks import built_in
from electra_jax.finetuning.tuning import choices, datasets, encoders, forecast, task_by_task
from electra_jax.host import cluster, error_causes
from support import corpus, finetunings, odd
from support.finetunings import KINDS, folder, settings


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return finetunings.make_places(tmp_path_factory.mktemp("settings"))


def test_a_busy_tpu_is_said_before_anything_asks_for_devices(places, monkeypatch):
    def busy():
        raise cluster.BusyError("the chips are taken")

    monkeypatch.setattr(cluster, "check_chips_are_free", busy)
    monkeypatch.setattr(jax, "process_count", lambda: pytest.fail("it opens the devices"))
    for begin in (electra_jax.fine_tune, forecast.text):
        with pytest.raises(error_causes.MayPass, match="the chips are taken"):
            begin(finetuning_config.parse(settings(places, "x")), places[0])


def test_files_of_a_later_task_are_missed_before_the_first_is_trained(places):
    config = settings(places, "later")
    config.custom.update(**KINDS["classification"])
    config.tasks = "custom,wnli"
    with pytest.raises(ValueError, match="task wnli: "):
        electra_jax.fine_tune(config, places[0])
    assert not os.path.exists(os.path.join(folder(places, "later"), "custom"))


def test_an_answer_that_moves_to_another_place_is_another_label(places, tmp_path):
    """`is` stands twice in the text, which stays the same, as does the answer's text."""
    shutil.copytree(places[1], tmp_path / "tasks")
    tree = settings((places[0], str(tmp_path / "tasks")), "x")
    tree.custom.update(**KINDS["joint"])
    config = finetuning_config.parse(tree)
    encoder = encoders.read(config, places[0], choices.mesh(config))

    def fingerprint(find):
        path = tmp_path / "tasks" / "train.json"
        content = json.loads(path.read_text())
        for paragraph in content["data"][0]["paragraphs"]:
            for question in paragraph["qas"]:
                place = find(paragraph["context"], "is")
                question["answers"] = [{"text": "is", "answer_start": place}]
                question["is_impossible"] = False
        path.write_text(json.dumps(content))
        task = datasets.task_named(config, "custom")
        return datasets.prepare(config, task, encoder.vocabulary, 48).fingerprint

    assert fingerprint(str.index) == fingerprint(str.index) != fingerprint(str.rindex)


@pytest.mark.parametrize(("setting", "rows"), [("published", 80), ("off", 40)])
def test_pairs_of_stsb_train_in_both_orders(places, setting, rows):
    config = finetuning_config.parse(settings(places, "x", recipe__both_orders=setting))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words)
    assert prepared.counts["train"] == rows == len(prepared.train.rows)
    assert prepared.scale == (0.0, 5.0)  # the head learns a fifth of the score
    assert max(prepared.train.rows.labels["label"]) == 1


@pytest.mark.parametrize(
    ("task", "setting", "kind"),
    [
        ("stsb", "mean", "matched_means"),
        ("custom", "mean", "mean"),
        ("stsb", "linear", "linear"),
    ],
)
def test_pairs_are_judged_by_the_means_of_both_texts(places, task, setting, kind):
    tree = settings(places, "x", recipe__head=setting)
    tree.custom.update(KINDS["classification"])
    config = finetuning_config.parse(tree)
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, datasets.task_named(config, task), words)
    encoder = types.SimpleNamespace(networks=odd.NETWORKS, vocabulary=words)
    setup = choices.setup(config, encoder, prepared, seeds=1)
    assert setup.head.kind == kind


def test_texts_longer_than_the_encoder_reads_are_cut_and_said(places):
    config = finetuning_config.parse(settings(places, "x"))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words, max_tokens=12)
    assert prepared.length == 12 == prepared.buckets[-1]
    assert max(prepared.train.rows.lengths) == 12
    lines = "\n".join(prepared.report.lines())
    assert "rows of 12 tokens instead of 128: the encoder has no more positions" in lines
    assert "texts cut to 12 tokens" in lines


@pytest.mark.parametrize(
    ("max_tokens", "said"),
    [
        (64, "the 12 tokens of pre-training; positions beyond have their initial values"),
        (0, "the 12 tokens of pre-training; tokens so far from each other are new to it"),  # rotary
    ],
)
def test_rows_longer_than_those_of_pre_training_are_said(places, max_tokens, said):
    config = finetuning_config.parse(settings(places, "x"))
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    prepared = datasets.prepare(config, built_in.named("stsb"), words, max_tokens, 12)
    assert max(prepared.train.rows.lengths) > 12
    (line,) = (line for line in prepared.report.lines() if "of pre-training" in line)
    assert line.endswith(said)


def test_questions_of_which_none_can_be_trained_on_are_refused(places, tmp_path):
    qas = [{"id": "1", "question": "who ?", "answers": [{"text": "Eve", "answer_start": 0}]}]
    content = {"data": [{"paragraphs": [{"context": "Ann sleeps", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    tree = settings((places[0], str(tmp_path)), "x")
    tree.custom.update(kind="span", train="a.json", dev="a.json")
    config = finetuning_config.parse(tree)
    words = vocabulary.load(os.path.join(places[0], "data", "made", "vocab"))
    with pytest.raises(config_lib.ConfigError, match="none of 1 questions in .*a.json has an answ"):
        datasets.prepare(config, datasets.task_named(config, "custom"), words)


@pytest.mark.parametrize(
    ("label", "columns"),
    [('"a, b",c', ("a, b", "c")), ('"a, b"', "a, b"), ("a", "a"), ("2, 3", (2, 3))],
)
def test_columns_of_several_labels_may_have_commas_in_their_names(places, label, columns):
    tree = settings(places, "x")
    tree.custom.update(kind="multi_label", train="a.csv", label=label)
    task = datasets.task_named(finetuning_config.parse(tree), "custom")
    assert task.files["train"].label == columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(tasks="colla"), "task 'colla' is none of cola"),
        (dict(tasks=""), "tasks is empty"),
        (dict(recipe__head="three_layer"), "recipe.head='three_layer' is not one of"),
        (dict(encoder__start_from="rte"), "is not TASK:OTHER; try rte:mnli"),
        (dict(recipe__batch_size=0), r"recipe.batch_size=0 is outside \[1"),
        (
            dict(run__accumulation=3),
            "recipe.batch_size=16 is not divisible by run.accumulation=3; try 4",
        ),
        (dict(run__accumulation=17), "not divisible by run.accumulation=17; try 16"),
        (dict(run__remat="some"), "run.remat='some' is not one of"),
        (
            dict(recipe__frozen_layers=3, tasks="rte"),
            "recipe.frozen_layers=3, but the encoder has 2 layers; give at most as many",
        ),
        (dict(encoder__step=7, tasks="rte"), "no checkpoint of step 7 in .*; there are 2"),
        (dict(run__devices=64, tasks="rte"), "run.devices=64, but there are 1"),
        (dict(encoder__start_from="rte:mnli,mnli:rte", tasks="rte,mnli"), "goes in a circle"),
        (dict(encoder__start_from="rte:"), "is not TASK:OTHER; try rte:mnli"),
        (
            dict(encoder__start_from="ret:mnli", tasks="rte,mnli"),
            "'ret:mnli': no task that is trained is called 'ret'; did you mean 'rte'?",
        ),
        (dict(encoder__start_from="ax:mnli", tasks="ax,mnli"), "trained is called 'ax'"),
        (dict(encoder__start_from="rte:mnli, rte:qnli"), "names rte twice; give it one encoder"),
        (
            dict(encoder__start_from="rte:mnil", tasks="mnli,rte"),
            "rte starts from 'mnil', which is none of the tasks of this command: no tuned weights",
        ),
        (dict(tasks="ax"), "ax is answered by mnli, which is none of the tasks of this command"),
    ],
)
def test_bad_settings_are_refused_in_one_line(places, change, message):
    with pytest.raises(ValueError, match=message) as refused:
        task_by_task.run(finetuning_config.parse(settings(places, "bad", **change)), places[0])
    assert "\n" not in str(refused.value)


def test_a_later_command_may_add_the_task_that_starts_from_another(places):
    config = finetuning_config.parse(
        settings(places, "later", tasks="mnli", encoder__start_from="rte: mnli,custom:a:b")
    )
    assert config.starts == {"rte": "mnli", "custom": "a:b"}


@pytest.mark.parametrize(("init", "tokens"), [("pretrained", 32), ("fresh", 0)])
def test_only_a_trained_encoder_has_places_that_it_never_saw(places, init, tokens):
    config = finetuning_config.parse(settings(places, "x", encoder__init=init))
    assert encoders.read(config, places[0], choices.mesh(config)).pretrained_tokens == tokens


@pytest.mark.parametrize(
    ("platform", "scan", "expected"),
    [
        ("cpu", "auto", ("cpu", False, True, False)),
        ("gpu", "auto", ("default", False, False, True)),
        ("tpu", "auto", ("default", True, False, True)),
        ("tpu", "off", ("default", False, False, True)),
    ],
)
def test_the_encoder_has_the_forms_of_its_devices(places, monkeypatch, platform, scan, expected):
    """Exports have plain products, with which bfloat16 is slower than float32 on a CPU."""
    monkeypatch.setattr(meshes, "platform", lambda mesh: platform)
    config = finetuning_config.parse(settings(places, "x", run__scan=scan))
    found = encoders.read(config, places[0], choices.mesh(config)).networks.discriminator
    joined = found.joined_gradients, found.joined_projections
    assert (found.products, found.scan, *joined) == expected


def test_a_dry_run_says_what_would_be_done(places):
    config = finetuning_config.parse(settings(places, "dry", tasks="stsb", recipe__epochs=2))
    text = forecast.text(config, places[0])
    assert "stsb" in text and "layer 1 0.8, layer 0 0.64" in text
    assert " 10 " in text  # 80 rows in batches of 16, twice
    assert not os.path.exists(folder(places, "dry"))


def test_the_command_refuses_a_misspelt_field_in_one_line(places):
    arguments = [f"--workdir={places[0]}", "--config.recipe.epoch=3"]
    done = subprocess.run(
        [sys.executable, "-m", "electra_jax.finetune", *arguments],
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: unknown field config.recipe.epoch; did you mean 'epochs'?"
    )


def test_the_command_needs_no_config(places):
    """configs/finetune.py is its own; the workdir's config.json is of pre-training."""
    arguments = [f"--workdir={places[0]}", f"--config.data.dir={places[1]}", "--config.tasks=rte"]
    done = subprocess.run(
        [sys.executable, "-m", "electra_jax.finetune", "--dry_run", *arguments],
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("task  train  dev")
