# SPDX-License-Identifier: Apache-2.0
"""An export goes to the Hub and comes back, through a server on loopback that speaks its protocol.

The weights are those of a real short run. Nothing here asks the real Hub.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import time

import huggingface_hub
import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax import convert as convert_command
from electra_jax.data import servers
from electra_jax.host import error_causes
from electra_jax.weights import exporting, hub, importing, publishing, reading, trained_weights
from electra_jax.weights.formats import card
from support import hub_server, model_hub
from support.commands import command, convert_flags, free_port
from support.corpus import finished_config

NAME = "owner/electra"
TEXTS = ["the cat sees a letter.", "a bird"]


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    """The Hugging Face folder of the finished run, as --push writes it."""
    out = tmp_path_factory.mktemp("exported") / "out"
    publication = card.Publication(repository=NAME)
    exporting.to_hugging_face(reading.open(finished[0]), str(out), publication=publication)
    return out


@pytest.fixture(scope="module")
def files(exported, tmp_path_factory):
    """The files of the repository that --push makes of it, {path: content}."""
    folder = tmp_path_factory.mktemp("repository")
    publishing.as_repository(str(exported), str(folder))
    return contents(folder)


@pytest.fixture
def server(tmp_path):
    """An empty Hub, with an empty cache on this machine."""
    with model_hub.serving() as running, pytest.MonkeyPatch.context() as patch:
        model_hub.reach(patch, running.url, tmp_path / "cache")
        hub._listed.cache_clear()
        yield running
    hub._listed.cache_clear()


def contents(folder):
    """{path: content} of all files below a folder."""
    folder = pathlib.Path(folder)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(work, kind=config_lib.ConfigError):
    """The one line of an error."""
    with pytest.raises(kind) as raised:
        work()
    line = str(raised.value)
    assert "\n" not in line
    return line


# Up


def test_a_pushed_run_comes_back_byte_for_byte(server, finished, tmp_path):
    out = tmp_path / "out"
    result = command(
        f"--workdir={finished[0]}", "--to=hugging_face", f"--push={NAME}", f"--out={out}",
        module="electra_jax.convert",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"pushed: {server.url}/{NAME} (private)" in result.stdout
    calls = (f"{method} {path}" for method, path in server.requests)
    calls = (re.sub("[0-9a-f]{64}", "HASH", call) for call in calls)
    assert [call for call, _ in itertools.groupby(calls)] == [
        "GET /api/whoami-v2",
        f"GET /api/models/{NAME}",
        "POST /api/repos/create",
        f"GET /api/models/{NAME}/tree/main",
        "POST /api/validate-yaml",
        f"POST /api/models/{NAME}/preupload/main",
        f"POST /{NAME}.git/info/lfs/objects/batch",
        "PUT /lfs/HASH",
        f"POST /api/models/{NAME}/commit/main",
    ]
    assert server.repositories[NAME].private and len(server.repositories[NAME].commits) == 2
    assert len(server.large) > 1, "no weights came by git-lfs"

    publishing.as_repository(str(out), str(tmp_path / "as_repository"))
    back = contents(huggingface_hub.snapshot_download(NAME))
    assert back.pop(".gitattributes")
    assert back == contents(tmp_path / "as_repository")
    assert {"config.json", "model.safetensors", "README.md", "generator/config.json"} <= back.keys()
    card = back["README.md"].decode()
    assert f'AutoModel.from_pretrained("{NAME}")' in card and f"# {NAME}" in card
    assert f'"{NAME}", subfolder="generator")' in back["generator/README.md"].decode()

    both = reading.open(f"hf:{NAME}"), reading.open(finished[0])
    for network in trained_weights.NETWORKS:
        trained_weights.check_same(both[0], network, both[1], network)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub
def test_without_out_only_the_repository_is_left(server, exported):
    mine = ("notes.txt", "lora/adapter_model.safetensors", "generator/notes.md")
    old = (
        "generator/model.safetensors",
        "generator/README.md",
        "vocab/old.model",
        "model-00001-of-00002.safetensors",
    )
    server.add(NAME, dict.fromkeys((*mine, *old), b"x"), private=True)
    given = {"from": str(exported / "discriminator"), "to": "hugging_face", "push": NAME}
    with convert_flags(**given):
        done = convert_command.export_weights(None, None)
    assert "out" not in done and done["pushed"] == f"{server.url}/{NAME}"
    found = server.repositories[NAME].files("main")
    # What the export lacks now is gone, what its owner put there stays.
    assert set(mine) <= set(found) and not set(old) & set(found)
    assert found["model.safetensors"] == (exported / "discriminator/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "token", "repository", "public", "words"),
    [
        (NAME, "", None, False, "needs a token of the Hub .* HF_TOKEN, or log in with `hf auth"),
        (NAME, "hf_other", None, False, "refuses or does not answer .* look at HF_TOKEN"),
        ("electra", model_hub.TOKEN, None, False, "--push=electra is not OWNER/NAME"),
        (NAME, model_hub.TOKEN, {"private": False}, False, "is public; add --public, or name"),
        (NAME, model_hub.TOKEN, {"private": True}, True, "is private; leave --public out"),
    ],
)
def test_what_the_hub_would_refuse_is_refused_before_the_export(
    server, exported, tmp_path, name, token, repository, public, words
):
    if repository:
        server.add(NAME, {}, **repository)
    out = tmp_path / "out"
    given = {"from": str(exported), "to": "hugging_face", "push": name, "out": str(out)}
    with pytest.MonkeyPatch.context() as patch, convert_flags(**given, public=public):
        patch.setenv("HF_TOKEN", token)
        line = refused(lambda: convert_command.export_weights(None, None))
    assert re.search(words, line) and not out.exists()
    assert not any(method != "GET" for method, _ in server.requests)


def test_a_push_without_an_answer_ends_in_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        model_hub.reach(patch, f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        patch.setattr(servers, "SECONDS", 0.5)
        begun = time.monotonic()
        assert "does not answer" in refused(
            lambda: publishing.check(NAME, False), error_causes.MayPass
        )
        assert time.monotonic() - begun < 5


def test_an_upload_that_fails_is_one_line_and_the_export_stays(server, exported, tmp_path):
    server.refuses = "the storage of this account is full"
    out = tmp_path / "out"
    given = {"from": str(exported), "to": "hugging_face", "push": NAME, "out": str(out)}
    with convert_flags(**given):
        line = refused(lambda: convert_command.export_weights(None, None), error_causes.MayPass)
    assert line.startswith(f"--push={NAME}: the upload failed (")
    assert (out / "discriminator" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"to": "orbax", "push": NAME}, "--push=owner/electra goes with --to=hugging_face"),
        ({"to": "hugging_face", "out": "x", "public": True}, "--public goes with --push"),
        ({"to": "hugging_face"}, "--out names no folder"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(given, words):
    with convert_flags(**given):
        assert words in refused(lambda: convert_command.export_weights(None, None))


# Down


def test_load_encoder_takes_a_repository(server, files, finished):
    server.add(NAME, files, private=True)
    apply, params, tokenizer = electra_jax.load_encoder(f"hf:{NAME}")
    theirs = apply(params, **tokenizer(TEXTS)).pooled_BD
    apply, params, tokenizer = electra_jax.load_encoder(finished[0])
    np.testing.assert_array_equal(theirs, apply(params, **tokenizer(TEXTS)).pooled_BD)


def test_a_revision_is_read_as_it_was(server, files):
    old = server.add(NAME, files)
    server.repositories[NAME].commit({"README.md": b"nothing left"})
    assert "no config.json, so neither an ELECTRA" in refused(lambda: reading.open(f"hf:{NAME}"))
    assert reading.open(f"hf:{NAME}@{old}").source == f"hf:{NAME}@{old}"


def test_only_what_is_read_is_downloaded(server, files):
    others = {"tf_model.h5": b"x", "onnx/config.json": b"{}", "generator/pytorch_model.bin": b"x"}
    server.add(NAME, files | others)
    local = hub.folder(f"hf:{NAME}")
    assert contents(local) == {
        path: data for path, data in files.items() if not path.endswith((".md", ".png"))
    }


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("config.json model.safetensors pytorch_model.bin vocab.txt", [0, 3, 1]),
        ("config.json pytorch_model.bin.index.json pytorch_model-00001-of-00001.bin", [0, 1, 2]),
        ("a/config.json a/model.safetensors b/config.json b/x.h5 README.md", [0, 1, 2]),
        ("config.json a/config.json vocab/spm.model vocab/x/y", [0, 2]),
        ("a/b/config.json model.safetensors", []),
    ],
)
def test_which_files_are_needed(present, expected):
    present = present.split()
    assert hub.needed(present) == [present[number] for number in expected]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf:electra", "hf:electra names no repository of the Hub; write hf:OWNER/NAME"),
        (f"hf:{NAME}@", "names no repository of the Hub"),
        ("hf:owner/nothing", "the Hub knows no repository owner/nothing, or it needs an account"),
        (f"hf:{NAME}@old", f"{NAME} has no revision 'old'"),
        ("hf:owner/gpt2", "config.json: model_type='gpt2' is neither 'electra' nor 'bert'; take a"),
        ("hf:owner/empty", "hf:owner/empty holds no config.json, so neither an ELECTRA nor a BERT"),
    ],
)
def test_what_cannot_be_read_is_one_line(server, address, words):
    server.add(NAME, {"config.json": b"{}"})
    gpt2 = {"config.json": json.dumps({"model_type": "gpt2"}).encode(), "model.safetensors": b"x"}
    server.add("owner/gpt2", gpt2)
    server.add("owner/empty", {"README.md": b"x"})
    assert words in refused(lambda: electra_jax.load_encoder(address))
    assert not [path for _, path in server.requests if path.endswith("model.safetensors")]


def test_a_repository_with_conditions_says_how_to_agree_and_not_to_wait(server, files):
    server.add(NAME, files)
    server.repositories[NAME].gated = True
    line = refused(lambda: electra_jax.load_encoder(f"hf:{NAME}"))
    assert f"the Hub refuses its files; agree to the conditions on the page of {NAME}" in line
    assert "HF_TOKEN" in line


@pytest.mark.parametrize(
    "listing", [(403, {"X-Error-Code": "GatedRepo"}), (401, hub_server.EXPIRED)]
)
def test_a_list_that_is_refused_says_how_to_agree_and_not_to_wait(server, files, listing):
    server.add(NAME, files)
    server.repositories[NAME].listing = listing
    line = refused(lambda: electra_jax.load_encoder(f"hf:{NAME}"))
    assert f"the Hub refuses its files; agree to the conditions on the page of {NAME}" in line


def test_a_hub_that_is_silent_is_given_up_in_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        model_hub.reach(patch, f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        patch.setattr(servers, "SECONDS", 0.5)
        begun = time.monotonic()
        line = refused(lambda: electra_jax.load_encoder(f"hf:{NAME}"))
        assert time.monotonic() - begun < 5
    assert "cannot be reached" in line and "give the folder" in line


def test_what_was_downloaded_is_used_without_a_network(server, files, tmp_path, caplog):
    server.add(NAME, files)
    before = reading.open(f"hf:{NAME}")
    hub._listed.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        model_hub.reach(patch, f"http://127.0.0.1:{free_port()}", tmp_path / "cache")
        after = reading.open(f"hf:{NAME}")
    (warning,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert "cannot be reached" in warning and "downloaded before is used" in warning
    jax.tree.map(np.testing.assert_array_equal, before.params, after.params)


def test_a_workdir_is_made_of_a_repository(server, files, text, tmp_path):
    server.add(NAME, files)
    recipe = config_lib.parse(finished_config(text))
    done = importing.to_workdir(f"hf:{NAME}", recipe, str(tmp_path / "run"))
    assert done["networks"] == ["discriminator", "generator"]


def test_cards_name_the_repository_that_the_weights_come_from(server, files, text, tmp_path):
    server.add(NAME, files)
    recipe = config_lib.parse(finished_config(text))
    importing.to_workdir(f"hf:{NAME}", recipe, str(tmp_path / "run"))
    exporting.to_orbax(reading.open(tmp_path / "run"), str(tmp_path / "params"))
    exporting.to_orbax(reading.open(f"hf:{NAME}"), str(tmp_path / "copied"))
    importing.to_workdir(str(tmp_path / "copied"), recipe, str(tmp_path / "again"))

    folders = [tmp_path / name for name in ("run", "params", "copied", "again")]
    for number, source in enumerate((f"hf:{NAME}", *folders)):
        out = tmp_path / f"out{number}"
        exporting.to_hugging_face(reading.open(source), str(out), only="discriminator")
        written = (out / "discriminator" / "README.md").read_text()
        assert f'base_model: ["{NAME}"]' in written
        assert "electra_jax, which did not train it" in written
        if source in (tmp_path / "run", tmp_path / "again"):
            assert f"which did not train it; these are weights of hf:{NAME}." in written


def test_a_run_begins_with_a_repository_and_goes_on_without_the_network(
    server, files, text, tmp_path
):
    server.add(NAME, files)
    config = finished_config(text)
    config.init["from"] = f"hf:{NAME}"
    electra_jax.train(config, tmp_path / "run")
    assert (
        f"starting from the weights of init.from='hf:{NAME}'"
        in (tmp_path / "run" / "log.txt").read_text()
    )

    exporting.to_hugging_face(reading.open(tmp_path / "run"), str(tmp_path / "out"))
    written = (tmp_path / "out" / "discriminator" / "README.md").read_text()
    assert f"pre-trained with electra_jax; its run began with weights of hf:{NAME}." in written
    assert f'base_model: ["{NAME}"]' in written

    shutil.rmtree(tmp_path / "run" / "checkpoints" / "6")
    shutil.rmtree(tmp_path / "cache")
    hub._listed.cache_clear()
    asked = len(server.requests)
    final = electra_jax.train(config, tmp_path / "run")
    assert len(server.requests) == asked and final["disc_loss"] > 0


@pytest.mark.parametrize(
    "path, hint",
    [
        ("google/electra-small", "; did you mean hf:google/electra-small?"),
        ("here/small", ""),  # `here` is a folder, so a name in it is a mistyped path
        ("google/electra/small", ""),
        ("./small", ""),
    ],
)
def test_a_repository_without_hf_is_answered_with_it(path, hint, text, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    line = refused(lambda: reading.open(path))
    assert line == f"there is no workdir or folder of weights {os.path.normpath(path)}{hint}"
    config = finished_config(text)
    config.init["from"] = path
    line = refused(lambda: electra_jax.train(config, tmp_path / "run"))
    assert line.endswith(f"nor a TensorFlow checkpoint{hint}")


def test_a_run_from_a_repository_that_is_not_there_is_refused_before_text_is_read(
    server, text, tmp_path
):
    config = finished_config(text)
    config.init["from"], config.data.dir = "hf:owner/nothing", ""
    line = refused(lambda: electra_jax.train(config, tmp_path / "run"))
    assert "knows no repository owner/nothing" in line
    assert not (tmp_path / "run" / "data").exists()
