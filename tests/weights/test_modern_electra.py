# SPDX-License-Identifier: Apache-2.0
"""Modern layers in a Hugging Face folder: names, fields, there and back, and what the card says."""

import dataclasses
import hashlib
import json
import shutil

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.model import networks
from electra_jax.weights import exporting, importing, publishing, reading, trained_weights
from electra_jax.weights.formats import hugging_face, modern_electra
from support import odd, workdirs
from support.changed_files import tensor_change
from support.exported import equal, flat

MODERN = {f"model__{name}": value for name, value in odd.MODERN.items()}
ALL = MODERN | {"model__discriminator_head": "cls_context"}
TYPE = modern_electra.MODEL_TYPE
CODE = "modeling_modern_electra.py"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return workdirs.small_vocabulary(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory, words):
    """(workdir, folder) of a run with modern layers everywhere, and [CLS] in the head."""
    base = tmp_path_factory.mktemp("modern")
    workdirs.made(base / "run", words, **ALL)
    exporting.to_hugging_face(reading.open(base / "run"), str(base / "hf"))
    return base / "run", base / "hf"


def about_of(folder):
    return json.loads((folder / "config.json").read_text())


# Names and layouts

SHAPES = dataclasses.replace(
    odd.NETWORKS,
    max_positions=0,
    generator=odd.trunk(2, 8, 2, 12, **odd.MODERN),
    discriminator=odd.trunk(2, 12, 3, 14, **odd.MODERN),
    discriminator_head="cls_context",
)


def network(name):
    """One network's arrays by path, every number another one, without padded rows."""
    found = odd.flat(jax.device_get(networks.alone(SHAPES, odd.weights(SHAPES), name)))
    return {
        path: x[: SHAPES.vocab_size] if path in hugging_face.BY_TOKEN else x
        for path, x in found.items()
    }


@pytest.mark.parametrize(("name", "role"), [("discriminator", "judges"), ("generator", "predicts")])
def test_there_and_back_is_bitwise(name, role):
    ours = network(name)
    theirs = hugging_face.to_tensors(ours, role, SHAPES.vocab_size, TYPE)
    shapes = {path: x.shape for path, x in ours.items()}
    equal(ours, hugging_face.from_tensors(theirs, shapes, role, TYPE))


def test_what_transformers_electra_does_not_have_by_eye():
    ours = network("discriminator")
    theirs = hugging_face.to_tensors(ours, "judges", SHAPES.vocab_size, TYPE)
    gate = theirs["electra.encoder.layer.1.intermediate.gate.weight"]  # [feed-forward, width]
    np.testing.assert_array_equal(gate, ours["encoder/feed_forward/gate/kernel"][1].T)
    np.testing.assert_array_equal(theirs["electra.encoder.norm.weight"], ours["encoder/norm/scale"])
    heard = theirs["discriminator_predictions.norm.bias"]
    np.testing.assert_array_equal(heard, ours["head/norm/bias"])
    assert not [name for name in theirs if name.startswith("electra.encoder") and "bias" in name]
    assert "electra.embeddings.position_embeddings.weight" not in theirs


# config.json

TRUNK = modern_electra.trunk_of(SHAPES.discriminator)
SHAPE = hugging_face.HuggingFaceShape(
    "judges", 37, 6, 13, 2, 12, 3, 14, model_type=TYPE, trunk=TRUNK, head="cls_context"
)


def config_json(**changes):
    made = hugging_face.to_config(
        SHAPE, dropout=0.1, attention_dropout=0.1, initial_scale=0.02, pad_id=0
    )
    return made | changes


def test_config_json_there_and_back():
    assert hugging_face.from_config(config_json()) == SHAPE
    assert config_json()["architectures"] == ["ModernElectraForPreTraining"]
    assert {name: config_json()[name] for name in odd.MODERN} == odd.MODERN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": "alibi"}, "positions='alibi' is none of 'learned', 'rotary'$"),
        ({"feed_forward_kind": "swiglu"}, "feed_forward_kind='swiglu' is none of 'gelu', 'geglu'"),
        ({"norm_place": "both"}, "norm_place='both' is none of 'post', 'pre'"),
        ({"biases": "few"}, "biases='few' is none of True, False"),
        ({"discriminator_head": "sum"}, "discriminator_head='sum' is none of 'token', 'cls_conte"),
        ({"local_window": -1}, "local_window=-1 is no whole number of at least 0"),
        ({"global_every": 0}, "global_every=0 is no whole number of at least 1"),
        ({"classifier_head": "max"}, "classifier_head='max' is none of 'two_layer', 'linear'"),
        ({"rotary_base": 0}, "rotary_base=0 is no positive number"),
        ({"rotary_base": "big"}, "rotary_base='big' is no positive number"),
        ({"hidden_act": "relu"}, "hidden_act='relu' is not 'gelu'"),
        ({"architectures": ["ElectraModel"]}, "architectures=.'ElectraModel'. is none of Modern"),
    ],
)
def test_a_config_that_we_cannot_compute_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        hugging_face.from_config(config_json(**change))


def test_a_setting_that_is_missing_is_named():
    made = config_json()
    del made["norm_kind"]
    with pytest.raises(ValueError, match="^norm_kind is missing$"):
        hugging_face.from_config(made)


def test_every_class_that_transformers_looks_for_is_in_the_code():
    text = modern_electra.CODE.read_text(encoding="utf-8")
    for address in config_json()["auto_map"].values():
        module, name = address.split(".")
        assert f"{module}.py" == CODE and f"\nclass {name}(" in text


# Exports


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("positions", "rotary"),
        ("feed_forward_kind", "geglu"),
        ("norm_place", "pre"),
        ("norm_kind", "rms"),
        ("biases", False),
        ("local_window", 4),
    ],
)
def test_each_setting_goes_out_and_comes_back(words, tmp_path, setting, value):
    workdirs.made(tmp_path / "run", words, **{f"model__{setting}": value})
    done = exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    assert done["networks"]["generator"]["class"] == "ModernElectraForMaskedLM"
    for name in trained_weights.NETWORKS:
        equal(flat(tmp_path / "run", name), flat(tmp_path / "hf", name))
        assert about_of(tmp_path / "hf" / name)[setting] == value
        assert (tmp_path / "hf" / name / CODE).exists()


def test_all_settings_go_out_and_come_back(exported):
    run, folder = exported
    for name in trained_weights.NETWORKS:
        equal(flat(run, name), flat(folder, name))
    ours, theirs = reading.open(run).networks, reading.open(folder).networks
    assert theirs.discriminator_head == "cls_context"
    for name in trained_weights.NETWORKS:
        trunks = [modern_electra.trunk_of(getattr(x, name)) for x in (ours, theirs)]
        assert trunks[0] == trunks[1]


def test_a_network_with_the_published_layers_is_an_ordinary_electra(words, tmp_path):
    """The head that hears [CLS] is the discriminator's alone."""
    workdirs.made(tmp_path / "run", words, model__discriminator_head="cls_context")
    done = exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    assert {name: about["class"] for name, about in done["networks"].items()} == {
        "discriminator": "ModernElectraForPreTraining",
        "generator": "ElectraForMaskedLM",
    }
    assert not (tmp_path / "hf" / "generator" / CODE).exists()
    for name in trained_weights.NETWORKS:
        equal(flat(tmp_path / "run", name), flat(tmp_path / "hf", name))


def test_settings_that_nothing_reads_make_no_other_network():
    """The base of rotations without rotary positions; which layers are global without a window."""
    published = modern_electra.PUBLISHED
    for name, value in (("rotary_base", 50.0), ("global_every", 2)):
        assert modern_electra.is_published(published | {name: value})
    for name, value in odd.MODERN.items():
        if name not in ("rotary_base", "global_every"):
            assert not modern_electra.is_published(published | {name: value})


def test_the_encoder_computes_the_same_from_the_folder(exported):
    states = []
    for path in exported:
        apply, params, tokenizer = electra_jax.load_encoder(path)
        states.append(apply(params, **tokenizer(["a short text", "one"])).tokens_BLD)
    np.testing.assert_array_equal(*states)


def test_with_rotary_positions_the_longest_row_is_that_of_training(exported):
    run, folder = exported
    limit = reading.open(run).limit
    assert about_of(folder / "discriminator")["max_position_embeddings"] == limit
    found = reading.open(folder)
    assert (found.networks.max_positions, found.limit) == (0, limit)


def test_the_card_says_what_is_computed_and_that_code_is_run(exported):
    _, folder = exported
    text = (folder / "discriminator" / "README.md").read_text()
    assert 'AutoModel.from_pretrained("discriminator", trust_remote_code=True)' in text
    digest = hashlib.sha256(modern_electra.CODE.read_bytes()).hexdigest()
    assert f"| {CODE} | {digest} |" in text
    for said in (
        "RMS norms in the layers",
        "stand before attention",
        "GeGLU",
        "Positions are rotary",
        "the base\n  is 100.0",
        "sees 2 tokens on either side, and in layers 0,\n  2, 4",
        "that of the first token of the row",
    ):
        assert said in text, said
    assert "after the residuals" not in text and "learned" not in text.partition("Forward pass")[2]


def test_the_card_of_an_ordinary_electra_runs_no_code(words, tmp_path):
    workdirs.made(tmp_path / "run", words)
    exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    text = (tmp_path / "hf" / "discriminator" / "README.md").read_text()
    assert "trust_remote_code" not in text and CODE not in text
    assert "Positions are learned" in text and "stand after the residuals, as in BERT" in text


def test_the_code_goes_to_the_hub_and_is_replaced_there(exported, tmp_path):
    publishing.as_repository(str(exported[1]), str(tmp_path))
    assert (tmp_path / CODE).exists() and (tmp_path / "generator" / CODE).exists()
    assert publishing._is_ours(CODE) and publishing._is_ours(f"generator/{CODE}")


# Beginning a run


@pytest.mark.parametrize("said", [{}, ALL], ids=["the recipe is silent", "it says the same"])
def test_a_workdir_is_made_of_such_a_folder(exported, tmp_path, said):
    run, folder = exported
    done = importing.to_workdir(str(folder), workdirs.recipe(**said), str(tmp_path / "run"))
    assert done["networks"] == ["discriminator", "generator"]
    for name in trained_weights.NETWORKS:
        equal(flat(run, name), flat(tmp_path / "run", name))
    model = reading.open(tmp_path / "run").config.model
    assert {name: getattr(model, name) for name in odd.MODERN} == odd.MODERN
    assert model.discriminator_head == "cls_context"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__rotary_base": 50.0}, r"model.rotary_base=50.0 .* are made for 100.0; leave it"),
        ({"model__global_every": 4}, "model.global_every=4 .* are made for 2"),
        ({"model__local_window": 8}, "model.local_window=8 .* are made for 2"),
    ],
)
def test_a_recipe_of_other_layers_is_refused(exported, tmp_path, change, message):
    recipe = workdirs.recipe(**ALL | change)
    with pytest.raises(config_lib.ConfigError, match=message):
        importing.to_workdir(str(exported[1]), recipe, str(tmp_path / "run"))
    assert not list(tmp_path.iterdir())


def test_a_damaged_folder_names_the_tensor(exported, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(exported[1] / "generator", folder)
    tensor_change(lambda tensors: tensors.pop("electra.encoder.norm.weight"))(
        folder / "model.safetensors"
    )
    with pytest.raises(config_lib.ConfigError, match="tensor electra.encoder.norm.weight is missi"):
        reading.open(folder)
