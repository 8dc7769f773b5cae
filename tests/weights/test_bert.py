# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's BERT as a beginning: what is read of it, and what a run takes."""

import json

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.step import plans, train_step
from electra_jax.weights import importing, reading, starting_checks, starting_weights, warm_start
from electra_jax.weights.formats import hugging_face, tensor_files
from support import odd, workdirs
from support.bert_folder import CONFIG, EMBEDDINGS, FORMS, SHAPE, WORDS, tensors, write
from support.corpus import small_run


def begin(folder, generator_from="", **changes):
    """(the first parameters of a run that begins with a folder, paths of those that are fresh)."""
    shapes = dict(
        model__embedding_size=8, model__max_positions=16, data__sequence_length=16,
        model__discriminator=SHAPE, model__generator=SHAPE,
    )  # fmt: skip
    tree = small_run(workdirs.NO_SOURCE, "", **shapes | changes)
    tree.init["from"], tree.init.generator_from = folder, generator_from
    config = config_lib.parse(tree)
    objective = plans.make_objective(config, WORDS, np.ones(WORDS.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))
    before = odd.flat(params)
    fresh = train_step.state_of(objective, plans.make_optimizer(config), params)
    run = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, objective.phases, WORDS, plans.make_mesh(config)
    )
    after = odd.flat(warm_start.state(run).params)
    return after, {path for path in after if np.array_equal(before[path], after[path])}


@pytest.mark.parametrize("form", FORMS)
def test_the_main_network_begins_with_bert(tmp_path, caplog, form):
    caplog.set_level("INFO")
    found, fresh = begin(write(tmp_path / "bert", form))
    assert fresh == {path for path in found if path.startswith(("generator/", "discriminator/h"))}

    theirs = tensors()
    for ours, name in (
        ("token", "word_embeddings.weight"),
        ("position", "position_embeddings.weight"),
        ("type", "token_type_embeddings.weight"),
        ("norm/scale", "LayerNorm.weight"),
        ("norm/bias", "LayerNorm.bias"),
    ):
        x = theirs[EMBEDDINGS + name]
        np.testing.assert_array_equal(found[f"embeddings/{ours}"][: len(x)], x)

    layer, trunk = "bert.encoder.layer.1.", "discriminator/encoder/"
    query = theirs[layer + "attention.self.query.weight"]  # 2 heads of 4 side by side
    assert found[trunk + "attention/query/kernel"][1, 7, 1, 3] == query[1 * 4 + 3, 7]
    output = theirs[layer + "attention.output.dense.weight"]
    assert found[trunk + "attention/output/kernel"][1, 1, 3, 7] == output[7, 1 * 4 + 3]
    for ours, name in (
        ("attention/norm/scale", "attention.output.LayerNorm.weight"),
        ("feed_forward/in/kernel", "intermediate.dense.weight"),
        ("feed_forward/out/bias", "output.dense.bias"),
        ("feed_forward/norm/bias", "output.LayerNorm.bias"),
    ):
        np.testing.assert_array_equal(found[trunk + ours][1], theirs[layer + name].T)

    behind = [x.partition(": ")[2] for x in caplog.messages if x.endswith("stays behind")]
    assert sorted(behind) == sorted(FORMS[form][2])


@pytest.mark.parametrize("form", ["with all heads", "the first files", "a second name", "no class"])
@pytest.mark.parametrize(
    "head", ["generator/head", "discriminator/head", "discriminator/correction"]
)
def test_the_head_goes_to_a_network_that_predicts_tokens(tmp_path, head, form):
    folder = write(tmp_path / "bert", form)
    if head == "generator/head":
        found, fresh = begin(folder, generator_from=folder)
        assert fresh == {path for path in found if path.startswith("discriminator/head/")}
    elif head == "discriminator/correction":
        found, fresh = begin(folder, objective__name="corrective_lm")
        assert fresh == {
            path for path in found if path.startswith(("generator/", "discriminator/head/"))
        }
    else:
        found, fresh = begin(folder, objective__name="masked_lm")
        assert not fresh

    theirs, transform = tensors(), "cls.predictions.transform."
    for ours, name in (
        ("dense/kernel", transform + "dense.weight"),
        ("dense/bias", transform + "dense.bias"),
        ("norm/scale", transform + "LayerNorm.weight"),
        ("norm/bias", transform + "LayerNorm.bias"),
        ("bias", "cls.predictions.bias"),
    ):
        x = theirs[name]
        np.testing.assert_array_equal(found[f"{head}/{ours}"][: len(x)], x.T)


def test_a_generator_may_begin_as_the_lowest_layers_of_bert(tmp_path):
    """And with BERT's head, which predicts from them what it can."""
    one = SHAPE | dict(layers=1)
    found, fresh = begin(
        write(tmp_path / "bert"), init__missing_generator="discriminator", model__generator=one
    )
    assert fresh == {path for path in found if path.startswith("discriminator/head/")}
    bias = tensors()["cls.predictions.bias"]
    np.testing.assert_array_equal(found["generator/head/bias"][: len(bias)], bias)
    wide = tensors()["bert.encoder.layer.0.intermediate.dense.weight"]
    np.testing.assert_array_equal(found["generator/encoder/feed_forward/in/kernel"], [wide.T])


NARROW = SHAPE | dict(width=4)


@pytest.mark.parametrize(
    ("form", "generator", "settings", "message"),
    [
        (
            "with all heads", NARROW, {"init__generator_from": "bert"},
            "has no generator of this shape: generator/encoder/.* give model.generator the shapes",
        ),
        (
            "a class without heads", SHAPE, {"init__generator_from": "bert"},
            "no generator to take: its only network has no head; .* such a class .BertForMaskedLM",
        ),
        (
            "the encoder alone", NARROW, {"init__missing_generator": "discriminator"},
            "init.missing_generator='discriminator': .* give model.generator the discriminator's",
        ),
        ("with all heads", SHAPE, {"init__generator_from": "bert"}, ""),
        (
            "with all heads", SHAPE | dict(layers=1),
            {"init__missing_generator": "discriminator"}, "",
        ),
    ],
)  # fmt: skip
def test_a_generator_that_does_not_fit_is_refused_before_text_is_prepared(
    tmp_path, form, generator, settings, message
):
    folder = write(tmp_path / "bert", form)
    tree = small_run(
        workdirs.NO_SOURCE, "", model__embedding_size=8, model__max_positions=16,
        data__sequence_length=16, model__discriminator=SHAPE, model__generator=generator,
        **settings | {name: folder for name, value in settings.items() if value == "bert"},
    )  # fmt: skip
    tree.init["from"] = folder
    config = config_lib.parse(tree)
    if not message:
        starting_checks.check_shapes(config)
        return
    with pytest.raises(config_lib.ConfigError, match=message):
        starting_checks.check_shapes(config)


def test_bert_is_converted_and_loaded_as_an_encoder(tmp_path):
    folder = write(tmp_path / "bert")
    recipe = workdirs.recipe()
    assert importing.to_workdir(folder, recipe, str(tmp_path / "run"))["objective"] == "masked_lm"
    states = []
    for path in (folder, tmp_path / "run"):
        apply, params, tokenizer = electra_jax.load_encoder(path)
        states.append(apply(params, **tokenizer(["sun moon"])).pooled_BD)
    assert states[0].shape == (1, 8)
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new' is not 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "='relative_key' is not 'absolute'"),
        ({"is_decoder": True}, "is_decoder=True is not False"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 is not 1e-12"),
        ({"layer_norm_eps": None}, "layer_norm_eps=None is not 1e-12"),
        ({"type_vocab_size": 16}, "type_vocab_size=16 is not 2"),
        ({"hidden_size": 9}, "hidden_size=9 is not divisible by num_attention_heads=2"),
        ({"architectures": ["BertForSequenceClassification"]}, "is none of BertForMaskedLM, BertF"),
        ({"model_type": ["bert"]}, "is neither 'electra' nor 'bert'"),
    ],
)
def test_a_bert_that_we_do_not_have_is_refused(tmp_path, change, message):
    folder = write(tmp_path / "bert", **change)
    with pytest.raises(config_lib.ConfigError, match=message):
        reading.open(folder)


def test_a_config_without_a_model_type_is_told_what_it_lacks(tmp_path):
    """As the first files had it; it was taken for a workdir that is to be trained first."""
    folder = write(tmp_path / "bert")
    old = {name: value for name, value in CONFIG.items() if name != "model_type"}
    (tmp_path / "bert" / "config.json").write_text(json.dumps(old))
    init = workdirs.recipe(init__from=folder).init
    for refuse in (reading.open, lambda _: starting_checks.check_paths(init)):
        with pytest.raises(
            config_lib.ConfigError,
            match='config.json names no model_type; add "model_type": "bert"',
        ):
            refuse(folder)


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (None, "bert holds neither model.safetensors nor pytorch_model.bin"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "damaged or cut off"),
        (200, "damaged or cut off"),  # the first bytes of the file
    ],
)
def test_a_folder_without_its_tensors_is_refused_before_text_is_prepared(tmp_path, left, message):
    """As after a clone without Git LFS, or a download that was interrupted."""
    path = tmp_path / "bert" / "model.safetensors"
    init = workdirs.recipe(init__from=write(tmp_path / "bert")).init
    starting_checks.check_paths(init)
    whole = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(whole[:left] if isinstance(left, int) else left)
    with pytest.raises(config_lib.ConfigError, match=message):
        starting_checks.check_paths(init)


def test_a_config_of_the_first_files_means_the_epsilon_of_transformers():
    """They say none, and transformers then takes 1e-12."""
    old = {name: value for name, value in CONFIG.items() if name != "layer_norm_eps"}
    assert hugging_face.from_config(old) == hugging_face.from_config(CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("bert.encoder.layer.1.output.dense.bias"),
            "tensor bert.encoder.layer.1.output.dense.bias is missing$",
        ),
        (
            lambda t: t.update({"bert.adapter.weight": np.zeros(2, np.float32)}),
            "tensor bert.adapter.weight is not one of BertForMaskedLM's$",
        ),
        (
            lambda t: t.update({"cls.predictions.decoder.bias": np.zeros(7, np.float32)}),
            "cls.predictions.decoder.bias differs from cls.predictions.bias, and here both are",
        ),
        (
            lambda t: t.update({"cls.predictions.decoder.weight": np.zeros((7, 8), np.float32)}),
            "decoder.weight differs from bert.embeddings.word_embeddings.weight, and here both",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named_as_theirs_are(tmp_path, change, message):
    folder, found = write(tmp_path / "bert"), tensors()
    change(found)
    tensor_files.write(f"{folder}/model.safetensors", found)
    with pytest.raises(config_lib.ConfigError, match=message):
        reading.open(folder)
