# SPDX-License-Identifier: Apache-2.0
"""Fine-tuned weights go out with their heads: names, numbers, cards, refusals; transformers live.

Three tasks are really tuned, if not for long; other heads are set on the encoder of the first.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax import convert as convert_command
from electra_jax.core import trees
from electra_jax.finetuning.tuning import export, kept_weights, run_folder
from electra_jax.model import task_heads
from electra_jax.weights import encoding, reading
from electra_jax.weights.formats import card, hugging_face, tensor_files
from support import finetunings
from support.commands import convert_flags

CLASSES = {
    "classification": "ElectraForSequenceClassification",
    "tagging": "ElectraForTokenClassification",
    "plain": "ElectraForQuestionAnswering",
}
HEADS = {  # name and shape in the file
    "classification": {
        "classifier.dense.weight": (32, 32),
        "classifier.dense.bias": (32,),
        "classifier.out_proj.weight": (2, 32),
        "classifier.out_proj.bias": (2,),
    },
    "tagging": {"classifier.weight": (3, 32), "classifier.bias": (3,)},
    "plain": {"qa_outputs.weight": (2, 32), "qa_outputs.bias": (2,)},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return finetunings.make_places(tmp_path_factory.mktemp("tuned"), rows=32)


@pytest.fixture(scope="module")
def folders(places):
    """{kind of task: folder of its weights}, tuned when it is asked for."""
    found = {}

    def folder(kind):
        if kind not in found:
            finetunings.run(
                places, kind, kind, seeds=2 if kind == "classification" else 1,
                recipe__epochs=1, evaluation__times=1, recipe__head="two_layer",
                recipe__head_dropout=0.25,
            )  # fmt: skip
            found[kind] = os.path.join(places[0], "finetune", kind, "custom")
        return found[kind]

    return folder


@pytest.fixture(scope="module")
def set_on(folders, tmp_path_factory):
    """Writes a task's folder beside the first one, with another head on its encoder."""

    def made(name, task="classification", labels=("no", "yes"), **head):
        first = folders("classification")
        found = export.open(first)
        config = dataclasses.replace(found.head_config, **{"outputs": len(labels) or 1} | head)
        own = jax.jit(lambda key: task_heads.init(config, key))(jax.random.key(1))
        run = os.path.join(os.path.dirname(os.path.dirname(first)), name)
        shutil.rmtree(run, ignore_errors=True)
        where = os.path.join(run, "custom")
        shutil.copytree(os.path.join(first, "seed_0"), os.path.join(where, "seed_0"))
        shutil.copy(os.path.join(os.path.dirname(first), "settings.json"), run)
        about = dict(found.about) | {
            "kind": task, "labels": list(labels), "scale": [1.0, 5.0], "seed": 0,
            "head": dataclasses.asdict(config),
        }  # fmt: skip
        del about["digest"], about["step"]
        kept_weights.save_weights(
            os.path.join(where, "weights"), found.encoder.params | {"head": own}, about
        )
        return where

    return made


def about_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("kind", CLASSES)
def test_names_shapes_and_numbers_are_those_of_their_class(folders, tmp_path, kind):
    found = export.open(folders(kind))
    done = export.to_hugging_face(found, str(tmp_path / "hf"))
    assert done["networks"]["custom"]["class"] == CLASSES[kind]
    assert about_of(tmp_path / "hf")["architectures"] == [CLASSES[kind]]
    tensors = tensor_files.read(str(tmp_path / "hf"))
    head = {name: x for name, x in tensors.items() if not name.startswith("electra.")}
    assert {name: x.shape for name, x in head.items()} == HEADS[kind]
    output = next(name for name in head if re.search("(out_proj|classifier|outputs).weight", name))
    np.testing.assert_array_equal(head[output].T, found.head["output"]["kernel"])
    table = np.asarray(found.encoder.params["embeddings"]["token"])
    name = "electra.embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(tensors[name], table[: found.encoder.vocabulary.size])


def test_what_was_tuned_comes_back_bit_for_bit(folders, tmp_path):
    found = export.open(folders("classification"))
    export.to_hugging_face(found, str(tmp_path / "hf"))
    ours = trees.flat(jax.device_get(found.params))
    ours = {path.removeprefix("discriminator/"): np.asarray(x) for path, x in ours.items()}
    ours["embeddings/token"] = ours["embeddings/token"][: found.encoder.vocabulary.size]
    shapes = {path: x.shape for path, x in ours.items()}
    tensors = tensor_files.read(str(tmp_path / "hf"))
    theirs = hugging_face.from_tensors(tensors, shapes, "classifies")
    assert {path: x.tobytes() for path, x in ours.items()} == {
        path: x.tobytes() for path, x in theirs.items()
    }


def test_config_and_card_say_what_the_task_is(folders, tmp_path):
    publication = card.Publication("mit", ["de", "nds"])
    export.to_hugging_face(
        export.open(folders("classification")), str(tmp_path / "hf"), publication
    )
    about = about_of(tmp_path / "hf")
    assert about["id2label"] == {"0": "0", "1": "1"} and about["label2id"] == {"0": 0, "1": 1}
    assert about["problem_type"] == "single_label_classification"
    assert about["classifier_dropout"] == 0.25 and about["hidden_dropout_prob"] == 0.0
    text = (tmp_path / "hf" / "README.md").read_text()
    assert text.startswith('---\nlicense: "mit"\nlanguage: ["de", "nds"]\n')
    assert 'pipeline_tag: "text-classification"' in text and "fine-tuned with electra_jax" in text
    for row in (
        "| task | custom |", "| learning rate | 0.003 |", "| head | two_layer |", "| epochs | 1 |",
    ):  # fmt: skip
        assert row in text
    records = run_folder.records(folders("classification"))
    values = [100 * record["scores"]["dev"]["accuracy"] for record in records]
    median, mean = np.median(values), np.mean(values)
    said = f"| dev accuracy | median {median:.2f}, mean {mean:.2f} ± "
    assert said in text and f", 2 seeds; these weights {max(values):.2f} |" in text


def test_the_card_names_the_repository_that_the_encoder_began_with(folders, tmp_path):
    found = export.open(folders("classification"))
    began = dataclasses.replace(found.encoder, began_with={"main": "hf:owner/name"})
    for name, encoder, said in (("own", found.encoder, False), ("named", began, True)):
        export.to_hugging_face(dataclasses.replace(found, encoder=encoder), str(tmp_path / name))
        text = (tmp_path / name / "README.md").read_text()
        assert ('base_model: ["owner/name"]' in text) == said
        assert ("base_model" in text) == said


@pytest.mark.parametrize(
    ("kind", "labels", "problem", "names", "note"),
    [
        ("regression", (), "regression", ["score"], "The output o means 1 + 4 o"),
        ("multi_label", ("a", "b", "c"), "multi_label_classification", ["a", "b", "c"],
         "A label is said where its logit is above 0"),
    ],
)  # fmt: skip
def test_other_problems_of_that_class(set_on, tmp_path, kind, labels, problem, names, note):
    folder = set_on("other", kind, labels)
    export.to_hugging_face(export.open(folder), str(tmp_path / "hf"))
    about = about_of(tmp_path / "hf")
    assert about["problem_type"] == problem
    assert list(about["id2label"].values()) == names
    assert note in (tmp_path / "hf" / "README.md").read_text()


OWN_HEADS = {  # kind -> what the card says it reads
    "linear": "one layer on the state of the first token",
    "mean": "on the mean of the states of all tokens",
    "matched_means": "on u, v, |u - v| and u v",
}


@pytest.mark.parametrize("kind", OWN_HEADS)
def test_heads_that_they_do_not_have_go_with_their_code(set_on, tmp_path, kind):
    where = set_on("odd", kind=kind)
    found = export.open(where)
    assert export.form(where) == "hugging_face"
    done = export.to_hugging_face(found, str(tmp_path / "hf"))
    assert done["networks"]["custom"]["class"] == "ModernElectraForSequenceClassification"
    about = about_of(tmp_path / "hf")
    assert (about["classifier_head"], about["positions"]) == (kind, "learned")
    assert (tmp_path / "hf" / "modeling_modern_electra.py").exists()
    text = (tmp_path / "hf" / "README.md").read_text()
    assert OWN_HEADS[kind] in text and "trust_remote_code=True" in text

    tensors = tensor_files.read(str(tmp_path / "hf"))
    np.testing.assert_array_equal(
        tensors["classifier.out_proj.weight"].T, found.head["output"]["kernel"]
    )
    assert reading.open(tmp_path / "hf").role("discriminator") == "encodes"


def test_answers_that_are_scored_jointly_go_with_orbax(set_on, tmp_path):
    where = set_on("odd", "span", kind="span_joint", hidden=8, impossible=True)
    found = export.open(where)
    assert export.form(where) == "orbax"
    message = "head 'span_joint', for which .* no class; .*--config.span.head=plain, or take --to="
    with pytest.raises(config_lib.ConfigError, match=message):
        export.to_hugging_face(found, str(tmp_path / "hf"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [*OWN_HEADS, "span_joint"])
def test_every_head_goes_with_orbax(set_on, tmp_path, kind):
    task = "span" if kind == "span_joint" else "classification"
    found = export.open(set_on("odd", task, kind=kind, hidden=8, impossible=True))
    export.to_orbax(found, str(tmp_path / "params"))
    about = json.loads((tmp_path / "params" / "metadata.json").read_text())
    assert about["fine_tuning"]["head"]["kind"] == kind
    answers = {"n_best", "longest_answer"} <= about["fine_tuning"].keys()
    assert answers == (task == "span")
    assert {path for path in about["parameters"] if path.startswith("head/")} == {
        f"head/{path}" for path in trees.flat(found.head)
    }


def test_an_export_without_its_settings_is_no_task_that_answers(folders, tmp_path):
    export.to_orbax(export.open(folders("classification")), str(tmp_path / "params"))
    path = tmp_path / "params" / "metadata.json"
    about = json.loads(path.read_text())
    del about["fine_tuning"]["config"]
    path.write_text(json.dumps(about))
    with pytest.raises(config_lib.ConfigError, match="by an earlier version, .*; export it again"):
        electra_jax.load_tuned(tmp_path / "params")


def test_a_stranger_reads_encoder_and_head(folders, tmp_path):
    found = export.open(folders("classification"))
    export.to_orbax(found, str(tmp_path / "params"))
    readme = (tmp_path / "params" / "README.md").read_text()
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    assert len(code.strip().splitlines()) <= 5 and "of the head of its task" in readme
    lines = (
        f"import sys\nsys.modules['electra_jax'] = None\n{code}\n"
        "print(params['head']['output']['kernel'].tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path / "params", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == np.asarray(found.head["output"]["kernel"]).tobytes().hex()


@pytest.mark.parametrize("form", ["hugging_face", "orbax"])
def test_the_encoder_of_such_a_folder_is_read_without_its_head(folders, tmp_path, form):
    found = export.open(folders("classification"))
    write = {"hugging_face": export.to_hugging_face, "orbax": export.to_orbax}[form]
    write(found, str(tmp_path / "out"))
    again = reading.open(tmp_path / "out")
    assert again.role("discriminator") == "encodes"
    size = found.encoder.vocabulary.size
    ours, theirs = (
        trees.flat(jax.device_get(x.alone("discriminator").params)) for x in (found.encoder, again)
    )
    assert set(ours) == set(theirs)
    for path in ours:
        rows = slice(size) if path == "embeddings/token" else slice(None)
        np.testing.assert_array_equal(ours[path][rows], theirs[path][rows])


def test_one_seed_of_many_can_be_named(folders):
    first = folders("classification")
    saved, about = kept_weights.best_weights(first)
    one = os.path.join(first, f"seed_{about['seed']}")
    shutil.copytree(os.path.dirname(saved), os.path.join(one, "weights"))
    try:
        found = export.open(one)
    finally:
        shutil.rmtree(os.path.join(one, "weights"))
    assert found.about["score"] == about["score"]
    assert len(found.records) == 2 and not found.is_best  # somebody chose it


def test_a_seed_that_the_results_leave_out_can_be_named(folders):
    """As after a command with fewer seeds."""
    first = folders("classification")
    one = export.open(first)
    run = os.path.join(os.path.dirname(os.path.dirname(first)), "left_out")
    shutil.copytree(os.path.dirname(first), run)
    with open(os.path.join(run, "settings.json")) as file:
        settings = json.load(file)
    assert settings["seeds"] == {"custom": 2}
    with open(os.path.join(run, "settings.json"), "w") as file:
        json.dump(settings | {"seeds": {"custom": 1}}, file)

    about = dict(one.about) | {"seed": 1}
    del about["digest"], about["step"]
    where = os.path.join(run, "custom", "seed_1")
    kept_weights.save_weights(
        os.path.join(where, "weights"), one.encoder.params | {"head": one.head}, about
    )
    found = export.open(where)
    assert found.about["seed"] == 1 and len(found.records) == 2 and not found.is_best


def test_weights_of_a_seed_that_is_not_finished_are_refused(set_on):
    where = set_on("unfinished")
    shutil.rmtree(os.path.join(where, "seed_0"))
    with pytest.raises(config_lib.ConfigError, match="is of seed 0, which is not finished; run"):
        export.open(where)


def test_a_label_with_a_comma_is_one_label_in_config_and_card(set_on, tmp_path):
    labels = ("news, old", "art")
    export.to_hugging_face(export.open(set_on("commas", labels=labels)), str(tmp_path / "hf"))
    assert list(about_of(tmp_path / "hf")["label2id"]) == list(labels)
    assert '"news, old", art' in (tmp_path / "hf" / "README.md").read_text()


def test_what_cannot_be_taken_is_one_line(places, folders, tmp_path):
    first = folders("classification")
    for path, message in (
        (os.path.dirname(first), r"is a whole fine-tuning; name a task's folder in it: custom"),
        (os.path.join(first, "seed_1"), "no tuned weights in .*seed_1; fine-tune that task first"),
    ):
        with pytest.raises(config_lib.ConfigError, match=message) as refused:
            export.open(path)
        assert "\n" not in str(refused.value)
        assert export.form(path) is None
    assert export.form(first) == "hugging_face"
    assert not export.is_tuned(places[0]) and not export.is_tuned(str(tmp_path))


def test_weights_whose_encoder_is_gone_say_so(folders, tmp_path):
    run = os.path.dirname(folders("classification"))
    shutil.copytree(run, tmp_path / "moved" / "finetune" / "run")
    with pytest.raises(config_lib.ConfigError, match="has shape and vocabulary of its encoder, wh"):
        export.open(str(tmp_path / "moved" / "finetune" / "run" / "custom"))


def test_what_fails_halfway_leaves_nothing(folders, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(tensor_files, "write", fail)
    with pytest.raises(OSError, match="no space left"):
        export.to_hugging_face(export.open(folders("classification")), str(tmp_path / "hf"))
    assert not list(tmp_path.iterdir())


def test_a_file_that_does_not_hold_what_was_tuned_is_not_left(folders, tmp_path, monkeypatch):
    write = tensor_files.write

    def wrongly(path, tensors):
        write(path, {name: x + 1 if "out_proj" in name else x for name, x in tensors.items()})

    monkeypatch.setattr(tensor_files, "write", wrongly)
    with pytest.raises(OSError, match="head/output/.* came back different; nothing was written"):
        export.to_hugging_face(export.open(folders("classification")), str(tmp_path / "hf"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "hugging_face", "only": "generator"}, "--only=generator: a tuned task has one"),
        ({"to": "stablehlo"}, "--to=stablehlo writes encoders without a head"),
    ],
)
def test_flags_that_a_tuned_task_does_not_take(folders, tmp_path, given, message):
    given = given | {"from": folders("classification"), "out": str(tmp_path / "out")}
    with convert_flags(**given), pytest.raises(config_lib.ConfigError, match=message):
        convert_command.main(None, None)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_task(folders, tmp_path, capsys):
    given = {"to": "hugging_face", "from": folders("classification"), "out": str(tmp_path / "hf")}
    with convert_flags(**given):
        convert_command.main(None, None)
    assert "custom, class ElectraForSequenceClassification, parameters" in capsys.readouterr().out
    assert (tmp_path / "hf" / "model.safetensors").exists()


def test_a_program_writes_a_task_and_its_encoder(folders, places, tmp_path):
    tuned = electra_jax.export(folders("classification"), tmp_path / "tuned")
    assert set(tuned["networks"]) == {"custom"}
    assert electra_jax.export(places[0], tmp_path / "both")["networks"].keys() == {
        "discriminator", "generator"
    }  # fmt: skip
    assert (tmp_path / "tuned" / "model.safetensors").exists()
    assert (tmp_path / "both" / "generator" / "model.safetensors").exists()
    for source in (places[0], folders("classification")):
        with pytest.raises(config_lib.ConfigError, match="^to='onnx' is unknown; use one of hugg"):
            electra_jax.export(source, tmp_path / "onnx", to="onnx")


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", CLASSES)
def test_logits_are_those_of_transformers(folders, tmp_path, kind):
    import torch
    import transformers

    found = export.open(folders(kind))
    export.to_hugging_face(found, str(tmp_path / "hf"))
    model, about = getattr(transformers, CLASSES[kind]).from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not any(about[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    labels = list(found.about["labels"]) or ["LABEL_0", "LABEL_1"]
    assert [model.config.id2label[n] for n in range(model.config.num_labels)] == labels
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    firsts, seconds = ["the cat is kind", "who is bad ?"], ["a dog", "Ann is good . Bob is bad ."]
    lanes = tokenizer(firsts, seconds, padding=True, return_tensors="np")
    with torch.no_grad():
        said = model.double().eval()(**{name: torch.tensor(x) for name, x in lanes.items()})
    mask_BL = lanes["attention_mask"]

    @jax.jit
    def hidden(params):
        with jax.default_matmul_precision("highest"):
            return encoding.encode(
                found.encoder.networks, params, lanes["input_ids"], mask_BL,
                lanes["token_type_ids"],
            ).tokens_BLD  # fmt: skip

    hidden_BLD = hidden(found.encoder.params)
    if kind == "plain":
        ours = task_heads.span_plain(found.head, hidden_BLD, np.ones(mask_BL.shape, bool))
        theirs = said.start_logits, said.end_logits
    else:
        head = task_heads.SCORES[found.head_config.kind]  # neither of the two asks the batch
        ours = (head(found.head_config, found.head, hidden_BLD, None, None),)
        theirs = (said.logits,)
    for mine, other in zip(ours, theirs, strict=True):
        real = mask_BL.astype(bool) if kind != "classification" else ...
        np.testing.assert_allclose(np.asarray(mine)[real], other.numpy()[real], atol=1e-5, rtol=0)
