# SPDX-License-Identifier: Apache-2.0
"""Names and layouts of Hugging Face's ELECTRA: by eye, and there and back."""

import dataclasses

import jax
import numpy as np
import pytest

from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.weights.formats import hugging_face
from support import odd

CONFIG = odd.NETWORKS


def network(name):
    """One network's arrays by path, every number another one."""
    params = jax.device_get(networks.alone(CONFIG, odd.weights(), name))
    return odd.flat(params)


def unpadded(arrays):
    return {
        path: x[: CONFIG.vocab_size] if path in hugging_face.BY_TOKEN else x
        for path, x in arrays.items()
    }


def shapes(arrays):
    return {path: x.shape for path, x in unpadded(arrays).items()}


SIDES = [("discriminator", "judges"), ("generator", "predicts")]


@pytest.mark.parametrize(("name", "role"), SIDES)
def test_there_and_back_is_bitwise(name, role):
    ours = network(name)
    theirs = hugging_face.to_tensors(ours, role, CONFIG.vocab_size)
    back = hugging_face.from_tensors(theirs, shapes(ours), role)
    assert set(back) == set(ours)
    for path, x in unpadded(ours).items():
        assert back[path].tobytes() == x.tobytes(), path


def test_every_tensor_is_contiguous():
    """safetensors writes the values of others in another order, without a word."""
    for name, role in SIDES:
        for x in hugging_face.to_tensors(network(name), role, CONFIG.vocab_size).values():
            assert x.flags.c_contiguous and x.dtype == np.float32


def test_layouts_by_eye():
    ours = network("discriminator")
    theirs = hugging_face.to_tensors(ours, "judges", CONFIG.vocab_size)
    layer = "electra.encoder.layer.1."
    query_LDHK = ours["encoder/attention/query/kernel"]  # 2 layers, width 10, 2 heads of 5
    query = theirs[layer + "attention.self.query.weight"]
    assert query.shape == (10, 10)
    assert query[1 * 5 + 3, 7] == query_LDHK[1, 7, 1, 3]  # row: head 1, channel 3; column: input 7
    output = theirs[layer + "attention.output.dense.weight"]
    assert output[7, 1 * 5 + 3] == ours["encoder/attention/output/kernel"][1, 1, 3, 7]
    bias = theirs[layer + "attention.self.value.bias"]
    assert bias[1 * 5 + 3] == ours["encoder/attention/value/bias"][1, 1, 3]
    wide = theirs[layer + "intermediate.dense.weight"]
    assert wide[13, 2] == ours["encoder/feed_forward/in/kernel"][1, 2, 13]
    assert theirs["electra.embeddings_project.weight"].shape == (10, 6)  # width, embedding size
    assert theirs["electra.embeddings.word_embeddings.weight"].shape == (37, 6)  # no padded tail
    assert theirs["discriminator_predictions.dense_prediction.weight"].shape == (1, 10)


def test_the_tied_table_is_not_written_twice():
    theirs = hugging_face.to_tensors(network("generator"), "predicts", CONFIG.vocab_size)
    assert "generator_lm_head.weight" not in theirs
    assert theirs["generator_lm_head.bias"].shape == (37,)


def theirs_of(name="generator", role="predicts"):
    ours = network(name)
    return hugging_face.to_tensors(ours, role, CONFIG.vocab_size), shapes(ours)


def test_what_old_versions_wrote_besides_is_left_aside():
    theirs, wanted = theirs_of()
    table = theirs["electra.embeddings.word_embeddings.weight"]
    more = {
        "electra.embeddings.position_ids": np.arange(13)[None],
        "generator_lm_head.weight": table,
    }
    found = hugging_face.from_tensors(theirs | more, wanted, "predicts")
    assert found["embeddings/token"].tobytes() == table.tobytes()
    more["generator_lm_head.weight"] = table + 1
    with pytest.raises(ValueError, match="generator_lm_head.weight differs from electra.embed"):
        hugging_face.from_tensors(theirs | more, wanted, "predicts")


def test_a_bare_encoder_needs_no_prefix():
    theirs, wanted = theirs_of("discriminator", "judges")
    bare = {
        name.removeprefix("electra."): x
        for name, x in theirs.items()
        if not name.startswith("discriminator_predictions")
    }
    wanted = {path: shape for path, shape in wanted.items() if not path.startswith("head/")}
    assert set(hugging_face.from_tensors(bare, wanted, "encodes")) == set(wanted)


BIAS = "electra.encoder.layer.0.output.dense.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(BIAS), rf"tensor {BIAS} is missing$"),
        (
            lambda t: [t.pop(name) for name in list(t) if ".layer.1." in name],
            r"tensor electra.encoder.layer.1.attention.output.LayerNorm.bias is missing \(and 15",
        ),
        (
            lambda t: t.update(classifier=np.zeros(3, np.float32)),
            "tensor classifier is not one of ElectraForMaskedLM's$",
        ),
        (
            lambda t: t.update({BIAS: np.zeros(9, np.float32)}),
            rf"tensor {BIAS} has shape \(9,\), but config.json makes it \(8,\)",
        ),
        (lambda t: t.update({BIAS: np.zeros(8, np.int64)}), "holds int64, no weights"),
        (
            lambda t: t.update({BIAS: np.array([0, 0, np.nan, 0, 0, np.inf, 0, 0], np.float16)}),
            rf"tensor {BIAS} has 2 values that are not finite, of 8; take another copy",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    theirs, wanted = theirs_of()
    change(theirs)
    with pytest.raises(ValueError, match=message):
        hugging_face.from_tensors(theirs, wanted, "predicts")


def test_a_parameter_without_a_place_is_refused():
    with pytest.raises(ValueError, match="encoder/feed_forward/gate/kernel has no place"):
        hugging_face.to_tensors(
            {"encoder/feed_forward/gate/kernel": np.zeros((1, 2, 3))}, "judges", 37
        )


@pytest.mark.parametrize(
    ("name", "role", "parameters"),
    [("discriminator", "judges", 13_549_057), ("generator", "predicts", 4_620_026)],
)
def test_electra_small_has_as_many_parameters_as_theirs(name, role, parameters):
    """As counted in google/electra-small's classes, vocabulary 30,522."""
    config = dataclasses.replace(
        CONFIG,
        vocab_size=30_522,
        embedding_size=128,
        max_positions=512,
        discriminator=odd.trunk(12, 256, 4, 1024),
        generator=odd.trunk(12, 64, 1, 256),
    )
    shapes = jax.eval_shape(lambda: networks.init(config, jax.random.key(0)))
    one = jax.eval_shape(lambda params: networks.alone(config, params, name), shapes)
    zeros = {path: np.broadcast_to(np.float32(0), x.shape) for path, x in trees.flat(one).items()}
    theirs = hugging_face.to_tensors(zeros, role, config.vocab_size)
    assert sum(x.size for x in theirs.values()) == parameters


SHAPE = hugging_face.HuggingFaceShape("judges", 37, 6, 13, 2, 10, 2, 14)


def config_json(**changes):
    made = hugging_face.to_config(
        SHAPE, dropout=0.1, attention_dropout=0.1, initial_scale=0.02, pad_id=0
    )
    return made | changes


def test_config_json_there_and_back():
    assert hugging_face.from_config(config_json()) == SHAPE
    assert config_json()["architectures"] == ["ElectraForPreTraining"]


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (
            "discriminator_predictions.dense.bias discriminator_predictions.dense_prediction.bias",
            "judges",
        ),
        ("generator_predictions.dense.bias generator_predictions.LayerNorm.weight", "predicts"),
        ("classifier.dense.bias classifier.out_proj.bias", "classifies"),
        ("classifier.bias classifier.weight", "tags"),
        ("qa_outputs.bias", "answers"),
        ("embeddings.LayerNorm.bias", "encodes"),
    ],
)
def test_a_config_without_a_class_gets_it_from_the_tensors(names, role):
    made = config_json()
    del made["architectures"]
    assert hugging_face.from_config(made, names.split()).role == role


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type='gpt2' is neither 'electra' nor 'bert'"),
        (
            {"architectures": ["ElectraForMultipleChoice"]},
            "architectures=.'ElectraForMultipleChoice'. is none of ElectraForPreTraining",
        ),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new' is not 'gelu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 is not 1e-12"),
        ({"type_vocab_size": 1}, "type_vocab_size=1 is not 2"),
        ({"hidden_size": 11}, "hidden_size=11 is not divisible by num_attention_heads=2"),
        ({"hidden_size": -4}, "hidden_size=-4 is no positive number"),
        ({"vocab_size": "many"}, "vocab_size='many' is no positive number"),
    ],
)
def test_a_config_that_we_do_not_have_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        hugging_face.from_config(config_json(**change))


def test_a_config_without_a_field_is_refused():
    made = config_json()
    del made["intermediate_size"]
    with pytest.raises(ValueError, match="intermediate_size is missing"):
        hugging_face.from_config(made)
