# SPDX-License-Identifier: Apache-2.0
"""Converted folders in transformers, live: models, tokenizers, and what it and torch write."""

import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import electra_jax
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.objectives import scoring
from electra_jax.step import plans
from electra_jax.weights import exporting, reading, trained_weights
from electra_jax.weights.formats import tensor_files, tokenizer_files
from support import many_scripts, workdirs
from support.corpus import ROOT

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SHAPES = {  # odd ones; who projects: both networks, neither, the generator alone
    "sentencepiece": (14, (3, 20, 4, 44), (2, 12, 2, 20)),
    "wordpiece": (12, (1, 12, 3, 28), (2, 12, 2, 20)),
    "tokenizer_json": (18, (2, 18, 2, 30), (1, 10, 1, 26)),
}
FIELDS = ("layers", "width", "heads", "feed_forward")


@pytest.fixture(scope="module", params=SHAPES)
def case(request, tmp_path_factory):
    """(workdir, its Hugging Face folder, its vocabulary)."""
    base, words = tmp_path_factory.mktemp("case"), many_scripts.made(request.param)
    size, discriminator, generator = SHAPES[request.param]
    workdirs.made(
        base / "run", words, model__embedding_size=size, model__max_positions=45,
        model__discriminator=dict(zip(FIELDS, discriminator)),
        model__generator=dict(zip(FIELDS, generator)),
    )  # fmt: skip
    exporting.to_hugging_face(reading.open(base / "run"), str(base / "hf"))
    return base / "run", base / "hf", words


def loaded(kind, folder):
    """A model in float64, with no tensor missing and none too many."""
    import transformers

    model, about = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(about[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.double().eval()


def test_the_tokenizer_gives_the_ids_of_training(case):
    import transformers

    _, folder, words = case
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "discriminator")
    lines = many_scripts.LINES
    for line, ids in zip(lines, words.encode(lines)):
        found = tokenizer(line)["input_ids"]
        assert found == [words.cls_id, *ids.tolist(), words.sep_id], line
    special = ("pad", "unk", "cls", "sep", "mask")
    for role in special:
        assert getattr(tokenizer, f"{role}_token_id") == getattr(words, f"{role}_id")
    assert tokenizer.model_max_length == 45


@pytest.mark.parametrize("side", ["right", "left"])
def test_outputs_agree_with_pairs_and_padding_on_either_side(case, side):
    import torch
    import transformers

    run, folder, _ = case
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        folder / "discriminator", padding_side=side
    )
    lines = [line[:12] for line in many_scripts.LINES[:6]]
    given = tokenizer(lines[:3] + ["a"], lines[3:] + ["b c"], padding=True, return_tensors="pt")
    assert given["token_type_ids"].any() and not given["attention_mask"].all()
    ids_BL, types_BL, mask_BL = (
        given[name].numpy() for name in ("input_ids", "token_type_ids", "attention_mask")
    )
    with torch.no_grad():
        judged = loaded("ElectraForPreTraining", folder / "discriminator")(
            **given, output_hidden_states=True
        )
        predicted = loaded("ElectraForMaskedLM", folder / "generator")(**given).logits.numpy()
    apply, params, _ = electra_jax.load_encoder(run)
    found = apply(params, ids_BL, mask_BL, types_BL)
    np.testing.assert_allclose(found.tokens_BLD, judged.hidden_states[-1], atol=1e-5, rtol=0)

    place_BL = np.broadcast_to(np.arange(ids_BL.shape[1]), ids_BL.shape)
    lanes = (ids_BL, types_BL, place_BL, mask_BL)
    batch = batch_lib.Batch(
        *(jnp.asarray(x, jnp.int32) for x in lanes),
        row_B=jnp.zeros(len(ids_BL)),
        word_starts_BL=jnp.zeros(ids_BL.shape, bool),
    )
    ours = reading.open(run)
    logits_BL = networks.discriminate(ours.networks, ours.params, batch)
    np.testing.assert_allclose(logits_BL, judged.logits, atol=1e-5, rtol=0)
    logits_BLV = networks.generator_logits(ours.networks, ours.params, batch, jnp.array(place_BL))
    size = ours.vocabulary.size
    np.testing.assert_allclose(logits_BLV[..., :size], predicted, atol=1e-5, rtol=0)


def test_every_class_of_theirs_opens_the_folder(case):
    import transformers

    _, folder, _ = case
    for kind in ("AutoModel", "AutoModelForPreTraining", "AutoModelForSequenceClassification",
                 "AutoModelForTokenClassification", "AutoModelForQuestionAnswering"):  # fmt: skip
        getattr(transformers, kind).from_pretrained(folder / "discriminator")
    transformers.AutoModelForMaskedLM.from_pretrained(folder / "generator")


def test_the_card_of_electric_scores_a_sentence_as_we_do(tmp_path, monkeypatch):
    words = many_scripts.made("wordpiece")
    workdirs.made(tmp_path / "run", words, objective__name="electric")
    found = reading.open(tmp_path / "run")
    exporting.to_hugging_face(found, str(tmp_path / "hf"))
    card = (tmp_path / "hf" / "discriminator" / "README.md").read_text()
    monkeypatch.chdir(tmp_path / "hf")
    read = {}
    exec(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], read)

    objective = plans.make_objective(found.config, words, np.ones(words.size))
    (ours,) = scoring.Scorer(objective, found.params, words, 32).scores(["A sentence."])
    assert float(read["score"]) == pytest.approx(ours, rel=1e-4)


@pytest.mark.parametrize("form", ["save_pretrained", "zip", "old"])
def test_what_they_write_is_read_bit_for_bit(case, tmp_path, form):
    import torch
    import transformers

    run, folder, _ = case
    for network, kind in (
        ("discriminator", "ElectraForPreTraining"),
        ("generator", "ElectraForMaskedLM"),
    ):
        model = getattr(transformers, kind).from_pretrained(folder / network)
        target = tmp_path / network
        if form == "save_pretrained":
            model.save_pretrained(target)
        else:
            target.mkdir()
            (target / "config.json").write_bytes((folder / network / "config.json").read_bytes())
            torch.save(
                model.state_dict(), target / "pytorch_model.bin",
                _use_new_zipfile_serialization=form == "zip",
            )  # fmt: skip
        transformers.AutoTokenizer.from_pretrained(folder / network).save_pretrained(target)
    ours, theirs = reading.open(run), reading.open(tmp_path)
    size = ours.vocabulary.size
    for network in trained_weights.NETWORKS:
        found = trees.flat(jax.device_get(theirs.alone(network).params))
        for path, x in trees.flat(jax.device_get(ours.alone(network).params)).items():
            rows = size if path.endswith(("embeddings/token", "head/bias")) else None
            assert found[path][:rows].tobytes() == x[:rows].tobytes(), path


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForPreTraining"])
@pytest.mark.parametrize("form", ["save_pretrained", "old"])
def test_a_bert_of_theirs_computes_the_same_here(tmp_path, kind, form):
    """Random weights in every parameter; pairs, and padding on the right."""
    import torch
    import transformers

    words, draw = many_scripts.made("wordpiece"), torch.Generator().manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=words.size, hidden_size=20, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=44, max_position_embeddings=45, architectures=[kind],
    )  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    for name, x in model.named_parameters():
        is_scale = name.endswith("LayerNorm.weight")
        x.data = is_scale + 0.3 * torch.randn(x.shape, generator=draw)

    tokenizer_files.write(words, str(tmp_path), 45)
    if form == "save_pretrained":
        model.save_pretrained(tmp_path)
    else:
        config.save_pretrained(tmp_path)
        tensors = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma"): x
            for name, x in model.state_dict().items()
        }
        torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)

    lines = [line[:12] for line in many_scripts.LINES[:6]]
    apply, params, tokenizer = electra_jax.load_encoder(tmp_path)
    ids_BL, mask_BL, types_BL = tokenizer(lines[:3] + ["a"], lines[3:] + ["b c"]).values()
    assert types_BL.any() and not mask_BL.all()
    given = dict(input_ids=ids_BL, attention_mask=mask_BL, token_type_ids=types_BL)
    with torch.no_grad():
        theirs = model.double()(
            **{name: torch.tensor(x, dtype=torch.int64) for name, x in given.items()},
            output_hidden_states=True,
        )
    found = apply(params, ids_BL, mask_BL, types_BL)
    np.testing.assert_allclose(found.tokens_BLD, theirs.hidden_states[-1], atol=1e-5, rtol=0)
    if kind == "BertModel":
        return

    ours = reading.open(tmp_path)
    place_BL = np.broadcast_to(np.arange(ids_BL.shape[1]), ids_BL.shape)
    lanes = (ids_BL, types_BL, place_BL, mask_BL)
    batch = batch_lib.Batch(
        *(jnp.asarray(x, jnp.int32) for x in lanes),
        row_B=jnp.zeros(len(ids_BL)),
        word_starts_BL=jnp.zeros(ids_BL.shape, bool),
    )
    vectors_BLE = networks.predictor_vectors(ours.networks, ours.params, batch, place_BL)
    token_VE, bias_V = networks.predictor_table(ours.networks, ours.params)
    logits_BLV = (vectors_BLE @ token_VE.T + bias_V)[..., : words.size]
    predicted = theirs.logits if kind == "BertForMaskedLM" else theirs.prediction_logits
    np.testing.assert_allclose(logits_BLV, predicted, atol=1e-5, rtol=0)


def test_a_tokenizer_that_they_saved_gives_the_same_ids(case, tmp_path):
    import transformers

    _, folder, words = case
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "generator")
    tokenizer.save_pretrained(tmp_path)
    found = tokenizer_files.read(str(tmp_path))
    lines = many_scripts.LINES
    for line, mine, other in zip(lines, words.encode(lines), found.encode(lines)):
        assert mine.tolist() == other.tolist(), line


@pytest.mark.parametrize("case", ["wordpiece"], indirect=True)
def test_the_onnx_program_of_the_docs_gives_our_states(case, tmp_path):
    """The lines of docs/weights.md as they stand there, for other rows and lengths than theirs."""
    run, _, words = case
    exporting.to_hugging_face(reading.open(run), str(tmp_path / "exports" / "small"))
    page = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page.partition("\n## ONNX\n")[2], re.DOTALL)
    draw, asked = np.random.default_rng(0), {}
    for rows, length in ((1, 1), (1, 45), (3, 7), (5, 2)):
        mask_BL = np.arange(length) < draw.integers(1, length + 1, (rows, 1))
        ids_BL = np.where(mask_BL, draw.integers(1, words.size, mask_BL.shape), words.pad_id)
        types_BL = draw.integers(0, 2, mask_BL.shape)
        asked[f"{rows} {length}"] = np.array([ids_BL, mask_BL, types_BL], np.int64)
    np.savez(tmp_path / "asked.npz", **asked)
    more = """
import numpy as np
names = ("input_ids", "attention_mask", "token_type_ids")
given = np.load("asked.npz")
found = {shape: session.run(None, dict(zip(names, given[shape])))[0] for shape in given}
np.savez("found.npz", **found)
"""
    done = subprocess.run(
        [sys.executable, "-c", lines + more], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    apply, params, _ = electra_jax.load_encoder(run)
    with np.load(tmp_path / "found.npz") as found:
        for shape, lanes in asked.items():
            ours = apply(params, *lanes).tokens_BLD
            np.testing.assert_allclose(found[shape], ours, atol=1e-5, rtol=0, err_msg=shape)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "uint8"])
def test_every_kind_of_number_of_torch_is_read(tmp_path, dtype):
    import torch

    x = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    tensors = {"x": x, "turned": x.permute(2, 0, 1), "part": x[1, :, 1:3], "one": x[0, 0, 0]}
    for new in (True, False):
        torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=new)
        found = tensor_files.read(str(tmp_path))
        for name, y in tensors.items():
            assert found[name].dtype.name == dtype
            np.testing.assert_array_equal(found[name].astype(np.float64), y.double().numpy())
