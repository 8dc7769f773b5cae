# SPDX-License-Identifier: Apache-2.0
"""Weights go out and come back bit for bit, and strangers read them."""

import io
import json
import os
import re
import shutil
import subprocess
import sys

import huggingface_hub
import jax
import numpy as np
import pytest
import sentencepiece
from jax import export as jax_export
from safetensors.numpy import load_file

import electra_jax
from electra_jax import config as config_lib
from electra_jax import convert as convert_command
from electra_jax.core import trees
from electra_jax.data import vocabulary
from electra_jax.model import networks
from electra_jax.step import plans, train_step
from electra_jax.weights import (
    exporting,
    importing,
    reading,
    starting_weights,
    trained_weights,
    warm_start,
)
from electra_jax.weights.formats import card, tensor_files
from electra_jax.workdir import metadata
from support import odd, workdirs
from support.changed_files import json_change, tensor_change
from support.commands import convert
from support.corpus import small_run, write_corpus
from support.exported import equal, flat
from support.workdirs import recipe

TEXTS = ["the cat sees a letter.", "a bird", "my sister paints the river every day."]


def in_several_files(folder, out):
    """A copy of a Hugging Face folder, its networks' tensors in three files each and an index."""
    shutil.copytree(folder, out)
    for whole in out.glob(f"**/{tensor_files.SAFETENSORS}"):
        tensors = tensor_files.read_file(str(whole))
        whole.unlink()
        names = [f"model-{n + 1:05}-of-00003.safetensors" for n in range(3)]
        places = {tensor: names[n % 3] for n, tensor in enumerate(sorted(tensors))}
        for name in names:
            here = {tensor: tensors[tensor] for tensor in tensors if places[tensor] == name}
            tensor_files.write(str(whole.parent / name), here)
        index = json.dumps({"metadata": {}, "weight_map": places})
        (whole.parent / (whole.name + tensor_files.INDEX)).write_text(index)
    return out


# Hugging Face, there and back


def test_the_command_there_and_back_is_bitwise(workdir, tmp_path):
    there = convert(
        f"--workdir={workdir}", "--to=hugging_face", f"--out={tmp_path / 'hf'}", "--json"
    )
    assert there.returncode == 0, there.stderr[-2000:]
    assert json.loads(there.stdout)["networks"] == {
        "discriminator": {"class": "ElectraForPreTraining", "parameters": 20_321},
        "generator": {"class": "ElectraForMaskedLM", "parameters": 4_192},
    }
    back = convert(
        f"--from={tmp_path / 'hf'}",
        f"--workdir={tmp_path / 'run'}",
        "--config=configs/tiny_paper.py",
    )
    assert back.returncode == 0, back.stderr[-2000:]
    assert f"electra_jax.main --workdir={tmp_path / 'run'}" in back.stdout
    for network in trained_weights.NETWORKS:
        equal(flat(workdir, network), flat(tmp_path / "run", network))
    assert (
        reading.open(tmp_path / "run").vocabulary.sha256 == reading.open(workdir).vocabulary.sha256
    )


def test_several_processes_would_write_one_folder_and_are_refused(monkeypatch):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(config_lib.ConfigError, match="convert runs in one process, here are 4"):
        convert_command.main(None, None)


def test_the_folder_says_everything_that_others_need(folder):
    for network in ("discriminator", "generator"):
        names = {path.name for path in (folder / network).iterdir()}
        assert {
            "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
            "README.md", "vocab",
        } <= names  # fmt: skip
    about = json.loads((folder / "discriminator" / "config.json").read_text())
    assert about["hidden_size"] == 32 and about["vocab_size"] == 64
    text = (folder / "generator" / "README.md").read_text()
    assert text.startswith('---\nlicense: "other"\n') and 'pipeline_tag: "fill-mask"' in text
    assert "| steps | 7 |" in text and "literal `[MASK]`" in text


def test_licence_and_languages_go_to_the_card(workdir, tmp_path):
    done = convert(
        f"--workdir={workdir}", "--to=hugging_face", f"--out={tmp_path / 'hf'}", "--only=generator",
        "--license=mit", "--language=de,nds",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "hf").iterdir()] == ["generator"]
    found = huggingface_hub.ModelCard.load(tmp_path / "hf" / "generator" / "README.md").data
    assert found.license == "mit" and found.language == ["de", "nds"]


@pytest.mark.parametrize("language", ["German", "DE", "d", "", "de_DE"])
def test_what_is_no_code_of_a_language_is_refused(language):
    with pytest.raises(ValueError, match=f"'{language}' is no code of a language; give those of"):
        card.Publication(languages=["nds", language])
    card.Publication(languages=["nds", "zh-Hans", "multilingual"])


VARIANTS = {
    "none": dict(model__sharing="none"),
    "gdes": dict(objective__name="decoupled_detection", model__sharing="gdes"),
    "all": dict(
        model__sharing="all",
        model__generator=dict(layers=2, width=32, heads=2, feed_forward=64),
    ),
    "masked_token_detection": dict(objective__name="masked_token_detection"),
    "multi_word_selection": dict(objective__name="multi_word_selection"),
    "corrective_lm": dict(objective__name="corrective_lm"),
    "frozen_generator": dict(
        objective__name="frozen_generator", model__sharing="none", init__generator_from="runs/first"
    ),
    "uniform_generator": dict(objective__name="uniform_generator"),
    "masked_lm": dict(objective__name="masked_lm"),
    "replace_mlm": dict(objective__name="replace_mlm"),
    "all_tokens_mlm": dict(objective__name="all_tokens_mlm"),
    "adversarial_generator": dict(objective__name="adversarial_generator"),
    "electric": dict(objective__name="electric"),
}
FOLDERS = {
    "uniform_generator": {"discriminator"},
    "masked_lm": {"masked_lm"},
    "replace_mlm": {"masked_lm", "generator"},
    "all_tokens_mlm": {"masked_lm", "generator"},
    "electric": {"discriminator"},
}
LEFT_OUT = {
    "multi_word_selection": "finds the original among a few tokens",
    "corrective_lm": "corrects replaced tokens",
    "all_tokens_mlm": "copy gate",
    "adversarial_generator": "baseline",
    "electric": "two towers",
}
JUDGES = "A logit above 0 says that the token was replaced"
FILLS = "Predicts what stands at [MASK]"
SAID = {  # on the cards: what the output of a head means
    "none": {"discriminator": JUDGES, "generator": FILLS},
    "gdes": {"discriminator": JUDGES, "generator": FILLS},
    "all": {"discriminator": JUDGES, "generator": FILLS},
    "masked_token_detection": {
        "discriminator": "Its head was trained at the chosen places alone",
        "generator": FILLS,
    },
    "multi_word_selection": {"discriminator": JUDGES, "generator": FILLS},
    "corrective_lm": {"discriminator": JUDGES, "generator": FILLS},
    "frozen_generator": {
        "discriminator": JUDGES,
        "generator": "a masked language model that was trained before",
    },
    "uniform_generator": {"discriminator": JUDGES},
    "masked_lm": {"masked_lm": FILLS},
    "replace_mlm": {"masked_lm": "Training showed it no [MASK]", "generator": FILLS},
    "all_tokens_mlm": {"masked_lm": "Training showed it no [MASK]", "generator": FILLS},
    "adversarial_generator": {"discriminator": JUDGES, "generator": "trained by REINFORCE"},
    "electric": {"discriminator": "score = -energies[words].sum()"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_objective_and_sharing_goes_out_and_comes_back(words, tmp_path, variant):
    """Tables that `gdes` keeps apart are folded; what has no place there is named."""
    workdirs.made(tmp_path / "run", words, **VARIANTS[variant])
    done = exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    assert set(done["networks"]) == FOLDERS.get(variant, {"discriminator", "generator"})
    equal(flat(tmp_path / "run"), flat(tmp_path / "hf"))
    if "generator" in done["networks"]:
        equal(flat(tmp_path / "run", "generator"), flat(tmp_path / "hf", "generator"))
    assert LEFT_OUT.get(variant, "") in " ".join(done["left_out"])
    assert bool(done["left_out"]) == (variant in LEFT_OUT)

    assert set(SAID[variant]) == set(done["networks"])
    for name, said in SAID[variant].items():
        text = (tmp_path / "hf" / name / "README.md").read_text()
        assert said in text and "It was converted" not in text
        assert (JUDGES in text) == (said == JUDGES)
        assert ('"fill-mask"' in text) == (name == "generator" or variant == "masked_lm")
        detects = variant not in ("masked_lm", "replace_mlm", "all_tokens_mlm", "electric")
        assert ('"replaced-token-detection"' in text) == detects


def test_a_head_with_a_layer_of_its_own_stays_behind_and_shared_layers_go_out_twice(
    words, tmp_path
):
    _, params = workdirs.made(tmp_path / "run", words, **workdirs.TEAMS)
    done = exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    assert set(done["networks"]) == {"encoder", "generator"}
    assert len(done["left_out"]) == 2

    there = {name: flat(tmp_path / "hf" / name) for name in done["networks"]}
    kernels = {name: x["discriminator/encoder/feed_forward/in/kernel"] for name, x in there.items()}
    main, own = (
        np.asarray(params[name][part]["feed_forward"]["in"]["kernel"])
        for name, part in (("discriminator", "encoder"), ("generator", "upper_layers"))
    )
    np.testing.assert_array_equal(kernels["encoder"], main)
    np.testing.assert_array_equal(kernels["generator"], np.concatenate([main[:1], own]))


def test_an_export_of_it_for_orbax_judges_as_the_run_does(words, tmp_path):
    workdirs.made(tmp_path / "run", words, **workdirs.TEAMS)
    found = reading.open(tmp_path / "run")
    exporting.to_orbax(found, str(tmp_path / "both"))
    exporting.to_orbax(found, str(tmp_path / "one"), "discriminator")
    sentence = ["the cat sees a letter."]
    expected = electra_jax.load_discriminator(tmp_path / "run")(sentence)
    for name in ("both", "one"):
        assert str(electra_jax.load_discriminator(tmp_path / name)(sentence)) == str(expected)


def test_folded_tables_are_the_sum(words, tmp_path):
    _, params = workdirs.made(tmp_path / "run", words, **VARIANTS["gdes"])
    delta = params["discriminator"]["embeddings_delta"]["type"]
    exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    np.testing.assert_array_equal(
        flat(tmp_path / "hf")["embeddings/type"], params["embeddings"]["type"] + delta
    )


def test_the_folded_network_says_what_the_unfolded_one_does(words, tmp_path):
    workdirs.made(tmp_path / "run", words, **VARIANTS["gdes"])
    exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "hf"))
    ids_BL = np.array([[words.cls_id, 9, 8, 7, words.sep_id]])
    marks_BL = np.array([[odd.D, 0, 0, 0, 0]])
    batch = odd.batch(ids_BL, marks_BL)
    apart, folded = (reading.open(tmp_path / name) for name in ("run", "hf"))
    assert (apart.networks.sharing, folded.networks.sharing) == ("gdes", "none")
    for read in (networks.discriminate, every_logit):
        run = odd.jit(read, static_argnums=0)
        here, there = (run(x.networks, x.params, batch) for x in (apart, folded))
        np.testing.assert_allclose(here, there, atol=1e-5)


def every_logit(config, params, batch):
    return networks.generator_logits(config, params, batch, np.arange(5)[None])


@pytest.mark.parametrize("network", trained_weights.NETWORKS)
def test_one_folder_of_the_two_begins_a_run_too(folder, tmp_path, network):
    done = importing.to_workdir(str(folder / network), recipe(), str(tmp_path / "run"))
    alone = {"discriminator": "replaced_token_detection", "generator": "masked_lm"}
    assert done["objective"] == alone[network]
    equal(flat(folder, network), flat(tmp_path / "run"))


def test_a_generator_out_of_the_discriminator_is_asked_for_at_conversion(folder, tmp_path):
    """A generator of another shape would be refused when the run begins; here it is already."""

    def asked(**overrides):
        tree = small_run(workdirs.NO_SOURCE, "", init__missing_generator="discriminator")
        tree.init["from"] = str(folder)
        tree.model.generator.update(layers=1, **overrides)
        return config_lib.parse(tree)

    source = str(folder / "discriminator")
    with pytest.raises(config_lib.ConfigError, match="--from=.*give model.generator the discrimi"):
        importing.to_workdir(source, asked(width=16), str(tmp_path / "run"))
    assert not list(tmp_path.iterdir())
    importing.to_workdir(source, asked(width=32, heads=2, feed_forward=64), str(tmp_path / "run"))
    assert reading.open(tmp_path / "run").config.init.missing_generator == "discriminator"


def test_names_of_folders_do_not_matter(folder, tmp_path):
    shutil.copytree(folder / "generator", tmp_path / "both" / "electra-small-generator")
    shutil.copytree(folder / "discriminator", tmp_path / "both" / "electra-small-discriminator")
    for network in trained_weights.NETWORKS:
        equal(flat(folder, network), flat(tmp_path / "both", network))


def test_a_recipe_that_does_not_go_with_the_weights_is_refused(folder, tmp_path):
    for bad, message in (
        (recipe(model__positions="rotary"), "model.positions='rotary' does not go with these"),
        (recipe(objective__name="masked_lm"), "objective.name='masked_lm' has another main"),
        (recipe(init__weights="ema"), "holds no averages; leave out --config.init.weights"),
    ):
        with pytest.raises(config_lib.ConfigError, match=message):
            importing.to_workdir(str(folder), bad, str(tmp_path / "run"))
    assert not list(tmp_path.iterdir())


def test_what_was_trained_here_needs_no_conversion(workdir, tmp_path):
    with pytest.raises(config_lib.ConfigError, match="begin with it directly: --config.init.from="):
        importing.to_workdir(str(workdir), recipe(), str(tmp_path / "run"))


def test_rows_that_no_token_has_stay_behind(folder, tmp_path):
    """Others pad the table of tokens in the file as well."""
    copy = tmp_path / "padded"
    shutil.copytree(folder / "discriminator", copy)
    json_change(vocab_size=70)(copy / "config.json")
    name = "electra.embeddings.word_embeddings.weight"

    def pad(tensors):
        tensors[name] = np.pad(tensors[name], [(0, 6), (0, 0)], constant_values=9)

    tensor_change(pad)(copy / "model.safetensors")
    equal(flat(copy), flat(folder))
    table = np.asarray(reading.open(copy).params["embeddings"]["token"])
    assert table.shape == (128, 16) and not table[64:].any()


def test_a_vocabulary_that_they_cannot_say_goes_with_orbax(tmp_path):
    model = io.BytesIO()
    corpus = write_corpus(tmp_path / "corpus.txt").read_text().splitlines()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, vocab_size=80, model_type="bpe",
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, pad_piece="[PAD]", unk_piece="[UNK]",
        control_symbols="[CLS],[SEP],[MASK]", minloglevel=2,
    )  # fmt: skip
    words = vocabulary.Vocabulary("sentencepiece", model.getvalue(), True, True)
    workdirs.made(tmp_path / "run", words)
    found = reading.open(tmp_path / "run")
    with pytest.raises(config_lib.ConfigError, match="kind 'bpe' cannot be written .*--to=orbax"):
        exporting.to_hugging_face(found, str(tmp_path / "hf"))
    exporting.to_orbax(found, str(tmp_path / "orbax"))
    assert not (tmp_path / "orbax" / "tokenizer").exists()
    assert reading.open(tmp_path / "orbax").vocabulary.sha256 == words.sha256


# Going on


def test_a_converted_run_goes_on_with_the_same_weights_and_metrics(text, finished, tmp_path):
    """Two steps without a rate: what is evaluated is what came in."""
    run, final = finished
    exporting.to_hugging_face(reading.open(run), str(tmp_path / "hf"))
    still = dict(optimizer__learning_rate=0.0, schedule__steps=2, evaluation__every=2)
    again = config_lib.parse(small_run(text[0], "", **still))
    importing.to_workdir(str(tmp_path / "hf"), again, str(tmp_path / "run"))
    config = config_lib.parse(json.loads((tmp_path / "run" / "config.json").read_text()))
    found = electra_jax.train(config, tmp_path / "run")
    assert found | {"tokens_seen": final["tokens_seen"]} == final
    for network in trained_weights.NETWORKS:
        equal(flat(run, network), flat(tmp_path / "run", network))
    assert metadata.steps(str(tmp_path / "run" / "checkpoints")) == [0, 2]


@pytest.mark.parametrize("kind", ["workdir", "hugging_face", "several_files", "orbax"])
def test_init_from_takes_workdirs_folders_and_exports(words, workdir, folder, tmp_path, kind):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "orbax"))
    config = small_run(workdirs.NO_SOURCE, "")
    places = {"workdir": workdir, "hugging_face": folder, "orbax": tmp_path / "orbax"}
    places["several_files"] = in_several_files(folder, tmp_path / "several_files")
    config.init["from"] = str(places[kind])
    config = config_lib.parse(config)
    mesh = plans.make_mesh(config)
    objective = plans.make_objective(config, words, np.ones(words.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)), seed=4)
    params = jax.tree.map(jax.numpy.asarray, params)
    fresh = train_step.state_of(objective, plans.make_optimizer(config), params)
    run = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, objective.phases, words, mesh
    )
    found = warm_start.state(run).params
    found = trees.flat(jax.device_get(found))
    for path, x in trees.flat(reading.open(workdir).params).items():
        rows = words.size if path.endswith(("embeddings/token", "head/bias")) else None
        np.testing.assert_array_equal(found[path][:rows], x[:rows])


# Orbax and StableHLO


def read_by_a_stranger(folder, then):
    """Runs the first lines of Python of the README where electra_jax cannot be imported."""
    code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[0]
    lines = f"import sys\nsys.modules['electra_jax'] = None\n{code}\n{then}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", lines], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return code, done.stdout


def test_a_stranger_reads_the_parameters_with_orbax_alone(workdir, tmp_path):
    found = reading.open(workdir)
    exporting.to_orbax(found, str(tmp_path / "params"))
    code, printed = read_by_a_stranger(
        tmp_path / "params",
        "print(params['discriminator']['encoder']['feed_forward']['in']['kernel'].tobytes().hex())",
    )
    assert len(code.strip().splitlines()) <= 5
    kernel = found.params["discriminator"]["encoder"]["feed_forward"]["in"]["kernel"]
    assert printed.strip() == np.asarray(kernel).tobytes().hex()


def test_the_readme_checks_its_checksum(workdir, tmp_path):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    text = (tmp_path / "params" / "README.md").read_text()
    check = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[2]
    assert "sha256" in check
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path / "params", check=True)


@pytest.mark.parametrize("variant", ["electric", "all_tokens_mlm"])
def test_the_readme_computes_what_the_head_means(words, tmp_path, variant):
    """Energies, and the gate that copies, are no logits of a replacement."""
    workdirs.made(tmp_path / "run", words, **VARIANTS[variant])
    found = reading.open(tmp_path / "run")
    exporting.to_orbax(found, str(tmp_path / "params"))
    text = (tmp_path / "params" / "README.md").read_text()
    assert "above 0 where the token was replaced" not in text
    part = text.partition("## The forward pass\n")[2].partition("## With electra_jax")[0]
    forward, head, *_ = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    ids_BL = np.array([[words.cls_id, 9, 8, 7, words.sep_id]])
    forward = forward.replace(f"[[{words.cls_id}, {words.sep_id}]]", str(ids_BL.tolist()))
    read = {"params": found.params}
    exec(forward + head, read)  # the lines of our own README

    batch = odd.batch(ids_BL, np.array([[odd.D, 0, 0, 0, 0]]))
    objective = plans.make_objective(found.config, words, np.ones(words.size))
    scores_BL = objective.token_scores(found.params, batch)
    if variant == "electric":
        theirs_BL = -read["energies"]
    else:
        assert read["scores"].shape[-1] == words.size, "padding of the table has no score"
        shares_BLV = jax.nn.softmax(read["scores"])
        shares_BL = np.take_along_axis(np.asarray(shares_BLV), ids_BL[..., None], -1)[..., 0]
        theirs_BL = np.log(read["copies"] + (1 - read["copies"]) * shares_BL)
    np.testing.assert_allclose(theirs_BL, scores_BL, atol=1e-4)


def test_an_export_of_one_network_says_which_it_was(words, tmp_path):
    """A generator that was taken alone lies where the main network does, and is none."""
    workdirs.made(tmp_path / "run", words, **VARIANTS["replace_mlm"])
    found = reading.open(tmp_path / "run")
    assert found.learnt("discriminator") == "restores slots"
    exporting.to_orbax(found, str(tmp_path / "params"), only="generator")
    assert reading.open(tmp_path / "params").learnt("discriminator") == "predicts"


@pytest.mark.parametrize("only", [None, "discriminator", "generator"])
def test_an_export_is_read_back_as_it_was(workdir, tmp_path, only):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"), only)
    found = reading.open(tmp_path / "params")
    names = {"embeddings", "discriminator"} | ({"generator"} if only is None else set())
    assert set(found.params) == names and found.step == 7
    equal(flat(workdir, only or "discriminator"), flat(tmp_path / "params"))


def test_a_damaged_export_is_refused(workdir, tmp_path):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    about = json.loads((tmp_path / "params" / "metadata.json").read_text())
    about["digest"]["embeddings/type"] = "0" * 16
    (tmp_path / "params" / "metadata.json").write_text(json.dumps(about))
    with pytest.raises(metadata.CheckpointError, match="embeddings/type is not what was saved"):
        reading.open(tmp_path / "params")
    (tmp_path / "params" / "metadata.json").write_text("{")
    with pytest.raises(metadata.CheckpointError, match="metadata.json is damaged"):
        reading.open(tmp_path / "params")


def test_a_stranger_calls_the_program_with_jax_alone(workdir, tmp_path):
    exporting.to_stablehlo(reading.open(workdir), str(tmp_path / "program"))
    _, printed = read_by_a_stranger(
        tmp_path / "program",
        "for shape in ((1, 2), (3, 5), (2, 32)):\n"
        "    ids = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)\n"
        "    lanes = ids, np.ones_like(ids), np.zeros_like(ids)\n"
        "    found = encoder.call(load_file('params.safetensors'), *lanes)\n"
        "    print(found['pooled'].shape, float(abs(found['tokens']).sum()))\n"
        "print(encoder.platforms)",
    )
    *rows, platforms = printed.splitlines()
    assert platforms == "('cpu', 'cuda', 'tpu')"
    apply, params, _ = electra_jax.load_encoder(workdir)
    for shape, row in zip(((1, 2), (3, 5), (2, 32)), rows):
        ids_BL = np.arange(np.prod(shape)).reshape(shape)
        found = apply(params, ids_BL, np.ones_like(ids_BL))
        size, total = row.rsplit(" ", 1)
        assert size == str((shape[0], 32))
        assert float(total) == pytest.approx(float(abs(found.tokens_BLD).sum()), rel=1e-5)


def test_a_program_with_rotary_positions_takes_rows_of_any_length(words, tmp_path):
    """The table of rotations that a CPU trains with has one length."""
    workdirs.made(tmp_path / "run", words, model__positions="rotary")
    exporting.to_stablehlo(reading.open(tmp_path / "run"), str(tmp_path / "program"))
    program = jax_export.deserialize((tmp_path / "program" / "encoder.stablehlo").read_bytes())
    params = load_file(tmp_path / "program" / "params.safetensors")
    apply, own, _ = electra_jax.load_encoder(tmp_path / "run")
    for length in (3, 7):
        ids_BL = np.arange(length, dtype=np.int32)[None]
        found = program.call(params, ids_BL, np.ones_like(ids_BL), np.zeros_like(ids_BL))
        expected = apply(own, ids_BL, np.ones_like(ids_BL))
        np.testing.assert_allclose(found["tokens"], expected.tokens_BLD, atol=1e-4)


# The encoder


def test_the_encoder_is_the_same_from_everywhere(workdir, folder, tmp_path):
    exporting.to_orbax(reading.open(workdir), str(tmp_path / "params"))
    found = []
    for path in (workdir, workdir / "checkpoints" / "7", folder, tmp_path / "params"):
        apply, params, tokenizer = electra_jax.load_encoder(path)
        found.append(apply(params, **tokenizer(TEXTS)))
    assert found[0].tokens_BLD.shape == (3, 32, 32) and found[0].pooled_BD.shape == (3, 32)
    for other in found[1:]:
        np.testing.assert_array_equal(other.tokens_BLD, found[0].tokens_BLD)


def test_paths_may_be_relative(workdir, tmp_path, monkeypatch):
    """As the docs write them; orbax takes absolute ones only."""
    monkeypatch.chdir(workdir.parent)
    out = os.path.relpath(tmp_path)
    exporting.to_orbax(reading.open(workdir.name), f"{out}/params")
    exporting.to_hugging_face(reading.open(f"{out}/params"), f"{out}/folder")
    importing.to_workdir(f"{out}/folder", recipe(), f"{out}/run")
    for path in (f"{workdir.name}/checkpoints/7", f"{out}/params", f"{out}/folder", f"{out}/run"):
        equal(flat(workdir), flat(path))


def test_padding_changes_nothing(workdir):
    apply, params, tokenizer = electra_jax.load_encoder(workdir)
    together = apply(params, **tokenizer(TEXTS)).pooled_BD
    for text, vector_D in zip(TEXTS, together):
        lanes = tokenizer([text])
        size = lanes["mask_BL"].sum()
        alone = apply(params, **{name: x[:, :size] for name, x in lanes.items()})
        np.testing.assert_allclose(alone.pooled_BD[0], vector_D, atol=1e-5)


def test_the_generator_can_be_asked_for(workdir):
    apply, params, tokenizer = electra_jax.load_encoder(workdir, network="generator")
    assert apply(params, **tokenizer(TEXTS)).pooled_BD.shape == (3, 16)


def test_rows_of_the_tokenizer(workdir, words):
    tokenizer = electra_jax.load_encoder(workdir)[2]
    a, b = (ids.tolist() for ids in words.encode(["a bird", "the cat"]))
    found = tokenizer(["a bird"], ["the cat"])
    size = len(a) + len(b) + 3
    expected = [words.cls_id, *a, words.sep_id, *b, words.sep_id]
    assert found["ids_BL"][0, :size].tolist() == expected
    assert found["types_BL"][0, :size].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert found["mask_BL"].sum() == size and (found["ids_BL"][0, size:] == words.pad_id).all()


def test_one_string_is_no_list_of_texts(workdir):
    """Its letters would be the texts: two of them beside two texts."""
    tokenizer = electra_jax.load_encoder(workdir)[2]
    with pytest.raises(ValueError, match="^texts is one string; give a list of texts$"):
        tokenizer("a bird")
    with pytest.raises(ValueError, match="^pairs is one string; give a list with the second text"):
        tokenizer(["a bird", "the cat"], "no")
    with pytest.raises(ValueError, match="^2 texts but 1 pairs; give one for each$"):
        tokenizer(["a bird", "the cat"], ["a river"])


def test_a_text_that_does_not_fit_is_named_or_cut(workdir):
    tokenizer = electra_jax.load_encoder(workdir)[2]
    long = "the cat sees the river " * 9
    with pytest.raises(ValueError, match=r"text 1 has \d+ tokens, more than the 30 that fit"):
        tokenizer(["a bird", long])
    found = tokenizer([long], ["a bird"], truncate=True)
    assert found["mask_BL"].sum() == 32 and found["types_BL"].sum() == len(
        tokenizer.vocabulary.encode(["a bird"])[0]
    ) + 1  # fmt: skip
