# SPDX-License-Identifier: Apache-2.0
"""Google's checkpoints: files that TensorFlow wrote, read without it.

tests/golden/google_tiny.* was written by tests/support/tensorflow_writer.py;
`pytest -m tensorflow` lets it write every tensor of the published sizes.
"""

import json
import re
import shutil
import subprocess
import tempfile

import jax
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.weights import exporting, importing, judging, reading, trained_weights
from electra_jax.weights.formats import checksums, google, tensorflow_bundle
from electra_jax.workdir import metadata
from support import corpus, odd, tensorflow_writer
from support import google_layouts as layouts
from support.commands import convert

GOLDEN = corpus.ROOT / "tests" / "golden"
TINY = str(GOLDEN / "google_tiny")


def value(name, shape):
    """What the writer put there."""
    return tensorflow_writer.value_of(name, "float32", shape)


def test_every_tensor_is_what_tensorflow_wrote():
    wanted = layouts.pretraining(**layouts.TINY)
    bundle = tensorflow_bundle.Bundle(TINY)
    assert set(bundle) == set(wanted)
    for name, (dtype, shape) in wanted.items():
        np.testing.assert_array_equal(bundle[name], tensorflow_writer.value_of(name, dtype, shape))


def test_layers_are_stacked_and_heads_have_an_axis():
    found = google.read(tensorflow_bundle.Bundle(TINY))
    scope = "electra/encoder/layer_1"
    kernel = value(f"{scope}/attention/self/query/kernel", [8, 8])
    np.testing.assert_array_equal(
        found.params["discriminator/encoder/attention/query/kernel"][1], kernel.reshape(8, 1, 8)
    )
    back = value(f"{scope}/attention/output/dense/kernel", [8, 8])
    np.testing.assert_array_equal(
        found.params["discriminator/encoder/attention/output/kernel"][1], back.reshape(1, 8, 8)
    )
    scale = value("generator/encoder/layer_0/output/LayerNorm/gamma", [4])
    np.testing.assert_array_equal(
        found.params["generator/encoder/feed_forward/norm/scale"][0], scale
    )


def test_heads_lie_side_by_side():
    layout = layouts.TINY | dict(width=128)
    tensors = made(layouts.pretraining(**layout, slots=False))
    params = google.read(tensors).params
    scope = "electra/encoder/layer_0/attention"
    query, output = tensors[f"{scope}/self/query/kernel"], tensors[f"{scope}/output/dense/kernel"]
    second = slice(64, 128)  # of two heads of 64
    ours = params["discriminator/encoder/attention/query/kernel"][0]
    np.testing.assert_array_equal(ours[:, 1], query[:, second])
    ours = params["discriminator/encoder/attention/output/kernel"][0]
    np.testing.assert_array_equal(ours[1], output[second])


def test_shapes_step_and_sharing_are_read_off():
    found = google.read(tensorflow_bundle.Bundle(TINY))
    assert found.discriminator == google.GoogleShape(layers=2, width=8, heads=1, feed_forward=32)
    assert found.generator == google.GoogleShape(layers=2, width=4, heads=1, feed_forward=16)
    assert (found.vocab_size, found.embedding_size, found.max_positions) == (12, 4, 8)
    assert found.sharing == "embeddings"
    assert found.step == int(tensorflow_writer.value_of("global_step", "int64", []))
    assert "generator/projection/kernel" not in found.params  # sizes agree


def test_moments_lie_where_their_parameters_do():
    found = google.read(tensorflow_bundle.Bundle(TINY))
    assert set(found.mu) == set(found.nu) == set(found.params)
    name = "electra/embeddings/word_embeddings"
    np.testing.assert_array_equal(found.mu["embeddings/token"], value(f"{name}/adam_m", [12, 4]))
    np.testing.assert_array_equal(found.nu["embeddings/token"], value(f"{name}/adam_v", [12, 4]))


def made(layout):
    """The tensors of a layout, without files."""
    return {name: tensorflow_writer.value_of(name, *about) for name, about in layout.items()}


def test_one_network_for_both_is_seen():
    found = google.read(made(layouts.pretraining(**layouts.TINY, tied=True, slots=False)))
    assert found.sharing == "all" and found.generator == found.discriminator
    assert "encoder/attention/query/kernel" in found.params
    assert "encoder/projection/kernel" in found.params
    assert not any(path.startswith("discriminator/encoder") for path in found.params)
    assert not found.mu and not found.nu


def test_a_discriminator_alone_has_no_generator():
    tensors = made(layouts.pretraining(**layouts.TINY, slots=False))
    alone = {name: x for name, x in tensors.items() if not name.startswith("generator")}
    found = google.read(alone)
    assert found.generator is None and found.sharing == "embeddings"


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg")


def folder(tmp_path):
    """As their archives are: a checkpoint and its vocabulary."""
    copy(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    return str(tmp_path)


def test_a_folder_of_theirs_opens_as_weights(tmp_path):
    found = reading.open(folder(tmp_path))
    assert found.role("discriminator") == "judges" and found.role("generator") == "predicts"
    table = np.asarray(found.params["embeddings"]["token"])
    assert table.shape == (128, 4)  # V is a multiple of 128
    np.testing.assert_array_equal(table[:12], value("electra/embeddings/word_embeddings", [12, 4]))
    assert not table[12:].any()


def test_an_encoder_of_theirs_in_three_lines(tmp_path):
    apply, params, tokenizer = reading.load_encoder(folder(tmp_path))
    found = apply(params, **tokenizer(["a b", "c d e"]))
    assert found.pooled_BD.shape == (2, 8) and np.isfinite(found.tokens_BLD).all()


def test_a_discriminator_of_theirs_judges(tmp_path):
    (tokens,) = judging.load(folder(tmp_path))(["a b"])
    assert [token["text"] for token in tokens] == ["a", "b"]
    assert all(0 < token["p_replaced"] < 1 for token in tokens)


def test_another_vocabulary_is_refused(tmp_path):
    path = folder(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS[:-1]))
    with pytest.raises(config_lib.ConfigError, match="12 rows for a vocabulary of 11"):
        reading.open(path)


def equal(found, wanted):
    """The same networks, bit for bit, but for the padded tail."""
    for network in trained_weights.NETWORKS:
        ours, theirs = (trees.flat(x.alone(network).params) for x in (found, wanted))
        assert set(ours) == set(theirs)
        for path, x in ours.items():
            np.testing.assert_array_equal(x, theirs[path], err_msg=path)


def test_a_folder_of_theirs_becomes_a_workdir(tmp_path):
    """By the command: its shapes, its vocabulary, its weights; the rest is the recipe's."""
    (tmp_path / "theirs").mkdir()
    path, run = folder(tmp_path / "theirs"), tmp_path / "run"
    done = convert(f"--from={path}", f"--workdir={run}", "--config=configs/tiny_paper.py")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Adam's moments stay behind; init.optimizer='restored' takes them" in done.stderr
    equal(reading.open(run), reading.open(path))
    config = reading.open(run).config
    assert (config.model.generator.width, config.model.discriminator.width) == (4, 8)
    assert (config.model.max_positions, config.data.sequence_length) == (8, 8)
    assert config.data.vocab == str(run / "vocab" / "vocab.txt")
    assert config.objective.name == "replaced_token_detection"


def test_their_moments_go_into_the_workdir_too(tmp_path):
    (tmp_path / "theirs").mkdir()
    done = convert(
        f"--from={folder(tmp_path / 'theirs')}", f"--workdir={tmp_path / 'run'}",
        "--config=configs/tiny_paper.py", "--config.init.optimizer=restored",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    saved = set(metadata.read(str(tmp_path / "run" / "checkpoints" / "0"))["digest"])
    found = google.read(tensorflow_bundle.Bundle(TINY))
    assert saved == {f"params/{path}" for path in found.params} | {
        f"optimizer/1/{kind}/{path}" for kind in ("mu", "nu") for path in found.params
    }


def test_a_folder_of_theirs_goes_out(tmp_path):
    (tmp_path / "theirs").mkdir()
    found = reading.open(folder(tmp_path / "theirs"))
    exporting.to_hugging_face(found, str(tmp_path / "hf"))
    exporting.to_orbax(found, str(tmp_path / "orbax"))
    exporting.to_stablehlo(found, str(tmp_path / "program"))
    equal(reading.open(tmp_path / "hf"), found)
    equal(reading.open(tmp_path / "orbax"), found)
    card = (tmp_path / "hf" / "discriminator" / "README.md").read_text()
    assert "| parameters |" in card and "It was converted with electra_jax" in card


def without(name):
    return lambda path: (path / name).unlink()


def cut(path):
    data = path / "google_tiny.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("vocab.txt"), "holds neither vocab.txt nor tokenizer.json"),
        (without("google_tiny.data-00000-of-00001"), "of-00001 is not there; it belongs beside"),
        (without("google_tiny.index"), "is neither a workdir with checkpoints, nor an export"),
        (cut, "ends inside "),
        (lambda path: flip(path / "google_tiny.index", 1000), "no TensorFlow checkpoint index"),
        (lambda path: (path / "vocab.txt").write_text("a\nb"), "has no pad token"),
    ],
    ids=("no vocabulary", "no data", "no index", "cut off", "flipped bit", "another vocabulary"),
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, damage, message):
    (tmp_path / "theirs").mkdir()
    path = folder(tmp_path / "theirs")
    damage(tmp_path / "theirs")
    recipe = config_lib.parse(corpus.load_config("tiny_paper"))
    with pytest.raises(config_lib.ConfigError, match=message) as error:
        importing.to_workdir(path, recipe, str(tmp_path / "run"))
    assert "\n" not in str(error.value)
    assert [part.name for part in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parity
@pytest.mark.parametrize("width, heads", ((8, 1), (128, 2)))
def test_logits_are_those_of_hugging_face_with_the_same_tensors(tmp_path, width, heads):
    import torch
    import transformers

    layout = layouts.TINY | dict(width=width)
    tensors = {
        name: (x - 0.5) * 0.4 if name != "global_step" else x
        for name, x in made(layouts.pretraining(**layout, slots=False)).items()
    }
    theirs = transformers.ElectraForPreTraining(
        transformers.ElectraConfig(
            vocab_size=12, embedding_size=4, hidden_size=width, num_hidden_layers=2,
            num_attention_heads=heads, intermediate_size=4 * width, max_position_embeddings=8,
        )
    ).eval()  # fmt: skip
    state = {}
    for name, x in tensors.items():  # their names by Hugging Face's rules for them
        if name.startswith("generator") or name == "global_step":
            continue
        name = name.replace("dense_1/", "dense_prediction/").replace("/", ".")
        name = re.sub(r"layer_(\d+)", r"layer.\1", name)
        name = re.sub(r"(gamma|kernel|_embeddings)$", lambda m: _HF[m[1]], name)
        x = x.T if name.endswith("weight") and x.ndim == 2 and "_embeddings" not in name else x
        state[re.sub(r"beta$", "bias", name)] = torch.tensor(np.array(x))
    theirs.load_state_dict(state)
    ids = np.array([[2, 5, 7, 3, 9, 3], [2, 11, 3, 0, 0, 0]])
    types = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]])
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor((ids > 0) * 1),
            token_type_ids=torch.tensor(types),
        ).logits.numpy()
    found = google.read(tensors)
    trunk = odd.trunk(2, width, heads, 4 * width, dropout=0.0, attention_dropout=0.0)
    shape = odd.pair(12, 4, 8, generator=trunk, discriminator=trunk)
    params: dict = {}
    for path, x in found.params.items():
        node = params
        for part in path.split("/")[:-1]:
            node = node.setdefault(part, {})
        node[path.split("/")[-1]] = x
    marks = np.where(ids == 2, 1, 0) + np.where(np.diff(types, axis=1, prepend=0) == 1, 2, 0)
    batch = batch_lib.from_lanes(jax.numpy.asarray(ids), jax.numpy.asarray(marks),
                                 jax.numpy.arange(2), 0)  # fmt: skip
    params["embeddings"]["token"] = np.pad(params["embeddings"]["token"], ((0, 116), (0, 0)))
    ours = networks.discriminate(shape, params, batch)
    np.testing.assert_allclose(ours[ids > 0], wanted[ids > 0], atol=1e-5)


_HF = {"gamma": "weight", "kernel": "weight", "_embeddings": "_embeddings.weight"}


def damaged(change):
    tensors = made(layouts.pretraining(**layouts.TINY, slots=False))
    change(tensors)
    with pytest.raises(ValueError) as error:
        google.read(tensors)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_layer_that_is_missing_is_named():
    text = damaged(lambda t: t.pop("electra/encoder/layer_0/intermediate/dense/kernel"))
    assert text.startswith("layer 0 of discriminator/encoder/feed_forward/in/kernel is missing")


def test_values_that_are_not_finite_are_refused():
    name = "electra/encoder/layer_0/output/dense/bias"
    text = damaged(lambda t: t.update({name: np.full(t[name].shape, np.nan, np.float32)}))
    assert text.startswith(f"tensor {name} has ") and "values that are not finite" in text


def test_a_width_of_which_nobody_knows_the_heads_is_refused():
    tensors = made(layouts.pretraining(**layouts.TINY | dict(width=96), slots=False))
    with pytest.raises(ValueError, match="discriminator/encoder has a width of 96, and no array"):
        google.read(tensors)


def test_another_model_is_refused():
    line = damaged(lambda t: (t.clear(), t.update({"bert/pooler/dense/kernel": 0})))
    assert "this is a BERT checkpoint" in line and "give such a folder, or hf:OWNER/NAME" in line
    assert "not ELECTRA" in damaged(lambda t: (t.clear(), t.update({"conv/kernel": 0})))


def test_a_fine_tuned_checkpoint_is_refused():
    text = damaged(lambda t: t.update({"task_specific/cola/kernel": np.zeros((8, 2))}))
    assert text.startswith("task_specific/cola/kernel is no tensor of a pre-trained ELECTRA")


def copy(tmp_path):
    for path in GOLDEN.glob("google_tiny.*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "google_tiny"


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def read_all(prefix):
    bundle = tensorflow_bundle.Bundle(str(prefix))
    return [bundle[name] for name in bundle]


def test_a_flipped_bit_is_found(tmp_path):
    prefix = copy(tmp_path)
    flip(prefix.with_suffix(".data-00000-of-00001"), 100)
    with pytest.raises(tensorflow_bundle.BundleError, match="is damaged inside .*checksum"):
        read_all(prefix)


@pytest.mark.parametrize("place", (0, 1000, -43, -1))
def test_a_damaged_index_is_found(tmp_path, place):
    prefix = copy(tmp_path)
    flip(prefix.with_suffix(".index"), place)
    with pytest.raises(tensorflow_bundle.BundleError, match="no TensorFlow checkpoint index"):
        read_all(prefix)


@pytest.mark.parametrize("value", (b"\x08", b"\x12\xff", b"\x10\x01"))
def test_a_table_of_something_else_is_found(tmp_path, monkeypatch, value):
    """A number that ends too early, a length beyond the end, a number in the place of a shape."""
    prefix = copy(tmp_path)
    pairs = [(b"", b"\x08\x01"), (b"name", b"\x08\x01" + value)]
    monkeypatch.setattr(tensorflow_bundle, "_table", lambda data: pairs)
    with pytest.raises(tensorflow_bundle.BundleError, match="no TensorFlow checkpoint index"):
        read_all(prefix)


@pytest.mark.parametrize("end", (".index", ".data-00000-of-00001"))
@pytest.mark.parametrize("size", (0, 10, 1000))
def test_a_file_that_was_cut_off_is_found(tmp_path, end, size):
    prefix = copy(tmp_path)
    path = prefix.with_suffix(end)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(tensorflow_bundle.BundleError) as error:
        read_all(prefix)
    assert "\n" not in str(error.value)


def test_missing_files_are_named(tmp_path):
    prefix = copy(tmp_path)
    prefix.with_suffix(".data-00000-of-00001").unlink()
    with pytest.raises(tensorflow_bundle.BundleError, match="data-00000-of-00001 is not there"):
        read_all(prefix)
    with pytest.raises(tensorflow_bundle.BundleError, match="nothing.index is not there"):
        tensorflow_bundle.Bundle(str(tmp_path / "nothing"))


def test_the_newest_checkpoint_of_a_folder(tmp_path):
    for name in ("model.ckpt-900", "model.ckpt-1000"):
        (tmp_path / f"{name}.index").touch()
    assert tensorflow_bundle.prefix_of(str(tmp_path)) == str(tmp_path / "model.ckpt-1000")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-900"\n')
    assert tensorflow_bundle.prefix_of(str(tmp_path)) == str(tmp_path / "model.ckpt-900")
    path = str(tmp_path / "model.ckpt-1000")
    assert tensorflow_bundle.prefix_of(path) == tensorflow_bundle.prefix_of(path + ".index") == path
    assert tensorflow_bundle.prefix_of(str(tmp_path / "other")) is None


def test_checksums_of_the_standard():
    """RFC 3720, appendix B.4; long data must agree with the same bytes one by one."""
    assert checksums.crc32c(bytes(32)) == 0x8A9136AA
    assert checksums.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert checksums.crc32c(bytes(range(32))) == 0x46DD794E
    data = np.random.default_rng(0).bytes(10_007)
    slowly = 0xFFFFFFFF
    for byte in data:
        slowly ^= byte
        for _ in range(8):
            slowly = (slowly >> 1) ^ (0x82F63B78 if slowly & 1 else 0)
    assert checksums.crc32c(data) == slowly ^ 0xFFFFFFFF


class Compared(tensorflow_bundle.Bundle):
    """A bundle that holds each tensor against what was written, when it is read."""

    def __init__(self, prefix, tensors):
        super().__init__(prefix)
        self.tensors, self.asked = tensors, []

    def __getitem__(self, name):
        found = super().__getitem__(name)
        np.testing.assert_array_equal(
            found, tensorflow_writer.value_of(name, *self.tensors[name]), err_msg=name
        )
        self.asked.append(name)
        return found


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "layout, parts",
    [
        (dict(layouts.SMALL), 3),
        (dict(layouts.RELEASED_SMALL, slots=False), 1),
        (dict(layouts.SMALL, tied=True, slots=False), 1),
        (dict(layouts.BASE), 2),
        (dict(layouts.LARGE), 4),
    ],
    ids=("small in three files", "released small", "tied small", "base", "large"),
)
def test_every_tensor_of_the_published_sizes(tmp_path, tensorflow_python, layout, parts):
    tensors, has_slots = layouts.pretraining(**layout), layout.get("slots", True)
    asked = [{"name": "model.ckpt-7", "tensors": tensors, "parts": parts}]
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:  # pytest would keep gigabytes
        subprocess.run(
            [tensorflow_python, tensorflow_writer.__file__, folder],
            input=json.dumps(asked),
            text=True,
            check=True,
            capture_output=True,
        )
        bundle = Compared(f"{folder}/model.ckpt-7", tensors)
        found = google.read(bundle)
    assert set(bundle) == set(tensors) and sorted(bundle.asked) == sorted(tensors)  # once each
    heads = max(1, layout["width"] // 64), max(1, layout["generator_width"] // 64)
    if layout.get("tied"):
        heads = heads[0], heads[0]
    assert (found.discriminator.heads, found.generator.heads) == heads
    assert sum(x.size for x in found.params.values()) == sum(
        int(np.prod(shape)) for name, (_, shape) in tensors.items()
        if name != "global_step" and not name.endswith(("adam_m", "adam_v"))
    )  # fmt: skip
    shapes = {path: x.shape for path, x in found.params.items()}
    for moments, slot in ((found.mu, "adam_m"), (found.nu, "adam_v")):
        assert {path: x.shape for path, x in moments.items()} == (shapes if has_slots else {})
        if has_slots:
            last = f"electra/encoder/layer_{layout['layers'] - 1}/intermediate/dense/kernel/{slot}"
            ours = moments["discriminator/encoder/feed_forward/in/kernel"][-1]
            np.testing.assert_array_equal(ours, value(last, tensors[last][1]))
