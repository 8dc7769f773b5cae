# SPDX-License-Identifier: Apache-2.0
"""On which devices a run is read, which weights of it, and that preparing text opens no device."""

import json
import os
import subprocess
import sys

import pytest

from electra_jax import config as config_lib
from electra_jax.data import preparation
from electra_jax.training import run_data, trained_run
from support import corpus, workdirs


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a process with four devices finds."""
    base = tmp_path_factory.mktemp("trained_run")
    text = corpus.write_corpus(base / "corpus.txt")
    folders = [str(corpus.ROOT), str(corpus.ROOT / "tests")]
    done = subprocess.run(
        [sys.executable, str(corpus.ROOT / "tests/workers/trained_run_worker.py"), text, base],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders), "JAX_PLATFORMS": "cpu"},
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_preparing_text_opens_no_device(found):
    """Otherwise nothing else could use the chips of a machine for hours."""
    assert found["opened_to_prepare"] is False


@pytest.mark.slow
def test_a_run_of_several_devices_is_read_on_one_and_evaluated_on_all(found):
    """Kernels of accelerators cannot be divided without the mesh of a step."""
    assert found["devices"] == [1] and found["evaluated_on"] == [4]
    assert (found["shown"], found["scores"]) == (2, 1)


def test_imported_weights_have_no_averages_and_are_read_all_the_same(tmp_path):
    """A run that averages continues from them; until it has, there is nothing else to judge."""
    words = workdirs.small_vocabulary(tmp_path)
    config, params = workdirs.made(tmp_path / "run", words, optimizer__ema_decay=0.9)
    found = trained_run.open(config, str(tmp_path / "run"), with_rows=False)
    table = found.params["embeddings"]["token"]
    assert (table == params["embeddings"]["token"]).all()


def test_settings_of_a_command_that_was_refused_bind_nobody(tmp_path):
    """It leaves a config.json behind; with anything that was made by it, other settings are."""
    run = tmp_path / "run"
    workdirs.begin(run, corpus.small_run("text:nope/*.txt", ""))
    other = config_lib.parse(corpus.small_run("text:there/*.txt", ""))
    trained_run.check_settings(other, str(run))
    (run / "starts.jsonl").touch()
    with pytest.raises(
        config_lib.ConfigError, match="holds a run with other settings: data.source"
    ):
        trained_run.check_settings(other, str(run))


def test_text_that_was_prepared_before_is_warned_about_at_each_start(tmp_path, caplog):
    """A third of its words are not in the vocabulary."""
    (tmp_path / "words.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"])
    )
    (tmp_path / "corpus.txt").write_text("\n\n".join("the cat dog " * n for n in range(1, 100)))
    config = config_lib.parse(
        corpus.small_run(
            f"text:{tmp_path}/corpus.txt", "", data__vocab=str(tmp_path / "words.txt"),
            data__heldout_fraction=0.1,
        )
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    caplog.set_level("INFO", logger="absl")
    for _ in range(2):  # it is prepared, and then found
        caplog.clear()
        run_data.prepare(config, str(tmp_path / "run"))
        assert "became [UNK]" in caplog.text


def test_a_text_that_gives_fewer_pieces_says_how_many(tmp_path):
    source = f"text:{corpus.write_corpus(tmp_path / 'corpus.txt')}"
    said = []
    settings = corpus.text_settings(source, "train:wordpiece:5000", 32, heldout_fraction=0.1)
    preparation.prepare(settings, str(tmp_path / "data"), said.append)
    (line,) = (line for line in said if line.startswith("warning: the text gives a wordpiece"))
    assert line.endswith("pieces, not of the 5,000 of data.vocab=train:wordpiece:5000")
