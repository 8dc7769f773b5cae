# SPDX-License-Identifier: Apache-2.0
"""A discriminator says P(replaced) of each token of a text, from wherever its weights are."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.model import networks
from electra_jax.weights import exporting, reading
from support import workdirs
from support.many_scripts import made

TEXTS = ["The  Fox!", "", "a lazy dog jumps over the quick brown fox, twice", "dog"]


@pytest.fixture(scope="module")
def words():
    return made("wordpiece")


@pytest.fixture(scope="module")
def workdir(words, tmp_path_factory):
    """A run whose networks have tables of their own."""
    path = tmp_path_factory.mktemp("runs") / "made"
    workdirs.made(path, words, model__sharing="gdes")
    return path


def p_replaced(path, text):
    """The sigmoid of the logits of the run's own networks for the row of one text."""
    run = reading.open(path)
    words, (ids,) = run.vocabulary, run.vocabulary.encode([text])
    ids_BL = jnp.array([[words.cls_id, *ids.tolist(), words.sep_id]])
    marks_BL = jnp.zeros_like(ids_BL).at[0, 0].set(batch_lib.DOCUMENT_START)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, jnp.zeros(1, jnp.uint32), words.pad_id)
    logits_L = np.asarray(networks.discriminate(run.networks, run.params, batch))[0, 1:-1]
    return 1 / (1 + np.exp(-logits_L))


@pytest.mark.parametrize("kind", ["workdir", "checkpoint", "hugging_face", "orbax"])
def test_a_judge_says_what_the_discriminator_says_of_the_same_row(workdir, tmp_path, kind):
    path = {"workdir": workdir, "checkpoint": workdir / "checkpoints" / str(workdirs.STEP)}.get(
        kind, tmp_path / "export"
    )
    if not path.exists():
        getattr(exporting, f"to_{kind}")(reading.open(workdir), str(path))

    for text, tokens in zip(TEXTS, electra_jax.load_discriminator(path)(TEXTS), strict=True):
        found_N = [token["p_replaced"] for token in tokens]
        np.testing.assert_allclose(found_N, p_replaced(workdir, text), atol=1e-6)


def test_a_token_has_its_piece_and_its_characters(workdir, words):
    (tokens,) = electra_jax.load_discriminator(workdir)(TEXTS[:1])
    assert [(x["text"], x["span"]) for x in tokens[-1:]] == [("!", (8, 9))]
    assert "".join(token["text"] for token in tokens) == "TheFox!"
    (ids,) = words.encode(TEXTS[:1])
    assert [token["piece"] for token in tokens] == [words.piece(id_) for id_ in ids]


def test_many_texts_are_judged_as_each_alone(workdir):
    """More than share a batch, the longest in the middle."""
    judge = electra_jax.load_discriminator(workdir)
    texts = ["dog", *["a fox"] * 40, "the quick brown fox " * 3, *["x"] * 40]
    found = judge(texts)
    for number in (0, 1, 41, 81):
        (alone,) = judge([texts[number]])
        assert [token["text"] for token in found[number]] == [token["text"] for token in alone]
        given, wanted = ([x["p_replaced"] for x in one] for one in (found[number], alone))
        np.testing.assert_allclose(given, wanted, atol=1e-6)
    assert judge([]) == []


def test_texts_that_can_be_read_only_once_are_judged(workdir):
    judge = electra_jax.load_discriminator(workdir)
    assert judge(text for text in TEXTS) == judge(TEXTS)


def test_texts_that_cannot_be_judged_are_named(workdir):
    judge = electra_jax.load_discriminator(workdir)
    with pytest.raises(ValueError, match="^texts is one string; give a list of texts$"):
        judge("dog")
    long = "dog " * 100
    with pytest.raises(
        ValueError, match=r"^text 1 has \d+ tokens, more than the 30 that fit a row"
    ):
        judge(["dog", long])
    (tokens,) = judge([long], truncate=True)
    assert len(tokens) == 30


@pytest.mark.parametrize(
    ("objective", "does"), [("electric", "gives energies"), ("masked_lm", "predicts")]
)
def test_what_does_not_judge_is_refused(words, tmp_path, objective, does):
    workdirs.made(tmp_path / "run", words, objective__name=objective)
    with pytest.raises(config_lib.ConfigError) as refusal:
        electra_jax.load_discriminator(tmp_path / "run")
    line = str(refusal.value)
    assert f"{tmp_path / 'run'} has no discriminator, its main network {does}; give a run" in line
    assert "\n" not in line


@pytest.mark.parametrize("name", ["ElectraModel", "ElectraForSequenceClassification"])
def test_a_network_without_the_head_or_with_that_of_a_task_is_refused(workdir, tmp_path, name):
    exporting.to_hugging_face(reading.open(workdir), str(tmp_path))
    folder = tmp_path / "discriminator"
    tensors = numpy.load_file(folder / "model.safetensors")
    kept = {path: x for path, x in tensors.items() if "discriminator_predictions" not in path}
    tuned = {"classifier.out_proj.bias": np.zeros(2, np.float32)} if name != "ElectraModel" else {}
    numpy.save_file(kept | tuned, folder / "model.safetensors")
    about = json.loads((folder / "config.json").read_text()) | {"architectures": [name]}
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(config_lib.ConfigError, match="has no discriminator, its main network "):
        electra_jax.load_discriminator(folder)


def test_a_discriminator_of_the_chosen_places_judges_too(words, tmp_path):
    workdirs.made(tmp_path / "run", words, objective__name="masked_token_detection")
    (tokens,) = electra_jax.load_discriminator(tmp_path / "run")(["dog"])
    np.testing.assert_allclose(
        [token["p_replaced"] for token in tokens], p_replaced(tmp_path / "run", "dog"), atol=1e-6
    )
