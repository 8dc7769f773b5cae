# SPDX-License-Identifier: Apache-2.0
"""A run finds its prepared data by what it recorded: moved, with other packages, without text."""

import contextlib
import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
from absl import flags as absl_flags

import electra_jax
from electra_jax import config as config_lib
from electra_jax import main, prepare, score
from electra_jax.data import builtin, records
from electra_jax.host import error_causes, lock
from electra_jax.speed import dry_run
from electra_jax.training import run_data, saved_state, trained_run
from electra_jax.weights import exporting, reading
from electra_jax.workdir import metadata, prepared_data
from support.corpus import load_config, small_run, write_corpus

STEPS = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the configuration's tree, a finished run's workdir, its last metrics); its text is gone."""
    base = tmp_path_factory.mktemp("first_place")
    corpus = write_corpus(base / "corpus.txt")
    tree = small_run(f"text:{corpus}", "", schedule__steps=STEPS)
    final = electra_jax.train(tree, base / "run")
    corpus.unlink()
    return tree, base / "run", final


@pytest.fixture
def moved(trained, tmp_path):
    """A copy of the run in another place."""
    return shutil.copytree(trained[1], tmp_path / "elsewhere" / "run")


@contextlib.contextmanager
def flags(**values):
    """Flags of a command, set while the block runs."""
    given = absl_flags.FLAGS
    given.mark_as_parsed()
    before = {name: given[name].value for name in values}
    for name, value in values.items():
        given[name].value = value
    try:
        yield
    finally:
        for name, value in before.items():
            given[name].value = value


def saved_config(workdir):
    """As a command has it that is given --workdir alone."""
    return config_lib.parse(json.loads((workdir / "config.json").read_text()))


def line_of(table, name):
    """The line of a table that begins so."""
    return next(line for line in table.splitlines() if line.startswith(name))


def test_a_moved_run_without_its_text_is_evaluated_scored_and_exported(trained, moved, caplog):
    _, first, final = trained
    hidden = first.with_name("hidden")
    first.rename(hidden)  # whatever still looked there would fail
    try:
        config = saved_config(moved)
        run = trained_run.open(config, str(moved))
        found = trained_run.evaluate(run)
        assert {name: found[name] for name in ("disc_loss", "gen_loss", "disc_auc")} == {
            name: final[name] for name in ("disc_loss", "gen_loss", "disc_auc")
        }
        assert run.records.directory.startswith(str(moved))
        assert "not known" not in line_of(dry_run.text(config, str(moved)), "epochs")
        done = exporting.to_orbax(reading.open(moved), str(moved / "export"))
        assert done["networks"]
        apply, params, tokenizer = electra_jax.load_encoder(moved)
        assert np.isfinite(apply(params, **tokenizer(["the cat sees the river."])).tokens_BLD).all()
    finally:
        hidden.rename(first)


def test_a_moved_run_goes_on_without_its_text(trained, moved, caplog):
    """Step for step as it would have in its first place."""
    shutil.rmtree(moved / "checkpoints" / str(STEPS))
    assert electra_jax.train(saved_config(moved), moved) == trained[2]
    digests = [
        metadata.read(f"{workdir}/checkpoints/{STEPS}")["digest"] for workdir in (trained[1], moved)
    ]
    assert digests[0] == digests[1]
    assert "the source or the vocabulary that the data was made of cannot be read" in caplog.text
    assert "continues with the data that was prepared for it" in caplog.text


def test_without_rows_the_vocabulary_alone_is_enough(moved, tmp_path, capsys):
    shutil.rmtree(moved / "data")
    config = saved_config(moved)
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("the cat sees the river.\n")
    with flags(input=str(sentences)):
        score.main(config, str(moved))
    assert "the cat sees the river." in capsys.readouterr().out
    assert reading.open(moved).step == STEPS
    for function in (trained_run.open, run_data.prepare):
        with pytest.raises(config_lib.ConfigError, match="is not .whole. at .*prepare --workdir="):
            function(config, str(moved))


def test_records_that_are_gone_are_made_again_where_they_come_out_equal(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(
        small_run(f"text:{corpus}", "", schedule__stages=((0.5, 16, 8),), model__max_positions=32)
    )
    workdir = tmp_path / "run"
    folders = run_data.prepare(config, str(workdir))
    assert len(set(folders)) == 2
    before = [records.read_manifest(folder).hash for folder in folders]
    moved = shutil.move(workdir, tmp_path / "other")
    shutil.rmtree(moved / "data")
    again = run_data.prepare(config, str(moved))
    assert [records.read_manifest(folder).hash for folder in again] == before


def begun(workdir):
    """Makes a workdir look like that of a run that has trained."""
    (workdir / "checkpoints" / "3").mkdir(parents=True)


@pytest.fixture
def upgraded(monkeypatch):
    """upgraded() makes the builtin corpus as if a package had another version."""
    real = builtin.identity
    monkeypatch.setattr(builtin, "parts", lambda: [builtin.CorpusPart(builtin.TOPICS)])

    def upgrade():
        monkeypatch.setattr(builtin, "identity", lambda: [*real(), ("numpy 99.0", 0)])

    return upgrade


def builtin_run():
    """tiny.py's text, with rows that are quickly made."""
    tree = load_config("tiny_paper")
    tree.data.update(vocab="train:sentencepiece:300", workers=1)
    return config_lib.parse(tree)


def test_a_package_upgrade_changes_nothing_for_a_run_that_has_begun(tmp_path, upgraded, caplog):
    config = builtin_run()
    before = run_data.prepare(config, str(tmp_path))
    upgraded()
    assert prepared_data.folders(prepared_data.RunData.of(config, str(tmp_path))) == before
    begun(tmp_path)
    assert run_data.prepare(config, str(tmp_path)) == before
    assert "builtin changed since the data was prepared" in caplog.text
    assert len(os.listdir(tmp_path / "data")) == 1


def test_a_package_upgrade_is_another_corpus_for_a_new_run(tmp_path, upgraded):
    config = builtin_run()
    (before,) = run_data.prepare(config, str(tmp_path))
    upgraded()
    (after,) = run_data.prepare(config, str(tmp_path))
    assert os.path.basename(after) != os.path.basename(before)
    assert prepared_data.folders(prepared_data.RunData.of(config, str(tmp_path))) == [after]


def test_records_that_would_come_out_otherwise_are_refused(tmp_path, upgraded):
    config = builtin_run()
    (folder,) = run_data.prepare(config, str(tmp_path))
    begun(tmp_path)
    upgraded()
    shutil.rmtree(folder)
    with pytest.raises(config_lib.ConfigError, match="builtin is not what it was prepared from"):
        run_data.prepare(config, str(tmp_path))
    assert not os.path.exists(folder)


def test_what_was_prepared_beforehand_needs_no_text(tmp_path):
    """prepare here, main there: the text stays behind."""
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(small_run(f"text:{corpus}", ""))
    run_data.prepare(config, str(tmp_path / "run"))
    corpus.unlink()
    moved = shutil.move(tmp_path / "run", tmp_path / "other")
    (folder,) = run_data.prepare(config, str(moved))
    assert folder.startswith(str(moved))


def test_text_that_changed_before_the_first_step_is_prepared_anew(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(small_run(f"text:{corpus}", ""))
    before = run_data.prepare(config, str(tmp_path / "run"))
    write_corpus(corpus, documents=310)
    assert run_data.prepare(config, str(tmp_path / "run")) != before


def test_a_vocabulary_that_was_given_by_path_may_go_too(trained, tmp_path):
    words = reading.open(trained[1]).vocabulary
    words.save(str(tmp_path / "vocab"))
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(
        small_run(f"text:{corpus}", "", data__vocab=str(tmp_path / "vocab" / "vocab.model"))
    )
    (folder,) = run_data.prepare(config, str(tmp_path / "run"))
    shutil.rmtree(tmp_path / "vocab")
    shutil.rmtree(folder)
    assert run_data.prepare(config, str(tmp_path / "run")) == [folder]
    assert (
        prepared_data.vocabulary_size(prepared_data.RunData.of(config, str(tmp_path / "run")))
        == words.size
    )


def test_a_missing_or_exchanged_record_is_named(trained, moved):
    config = saved_config(moved)
    (moved / prepared_data.RECORD).write_text("{")
    with pytest.raises(config_lib.ConfigError, match="data.json, which names .* cannot be read"):
        run_data.prepare(config, str(moved))
    (moved / prepared_data.RECORD).unlink()
    with pytest.raises(config_lib.ConfigError, match="data.json is missing.*prepare --workdir="):
        trained_run.open(config, str(moved))


def trained_on(config, workdir, folder):
    """A checkpoint as of a run that was trained on this folder."""
    about = {"data": records.read_manifest(folder).hash, "config": config_lib.to_tree(config)}
    with saved_state.checkpoints_of(config.checkpoint, str(workdir)) as saved:
        saved.save(2, {"params": {"x": np.zeros(3, np.float32)}}, about)


def test_the_data_of_another_run_is_refused(tmp_path):
    """Before anything is compiled."""
    corpus = write_corpus(tmp_path / "corpus.txt")
    config = config_lib.parse(small_run(f"text:{corpus}", str(tmp_path / "data")))
    (folder,) = run_data.prepare(config, str(tmp_path / "run"))
    trained_on(config, tmp_path / "run", folder)
    write_corpus(corpus, seed=1)
    shorter = config_lib.parse(
        small_run(f"text:{corpus}", str(tmp_path / "data"), data__sequence_length=24)
    )
    run_data.prepare(config, str(tmp_path / "other"))
    run_data.prepare(shorter, str(tmp_path / "shorter"))
    mine, theirs, of_other_settings = (
        prepared_data.read(str(tmp_path / name)) for name in ("run", "other", "shorter")
    )
    for record in (dataclasses.replace(mine, stages=theirs.stages), of_other_settings):
        prepared_data.save(record, str(tmp_path / "run"))
        with pytest.raises(config_lib.ConfigError, match="was trained on prepared data"):
            run_data.prepare(config, str(tmp_path / "run"))
        with pytest.raises(config_lib.ConfigError, match="was trained on prepared data"):
            trained_run.open(config, str(tmp_path / "run"))


@pytest.mark.parametrize("command", [main, prepare])
def test_a_workdir_that_a_run_holds_gets_no_record_of_others(command, tmp_path):
    """Its own would be lost before its first checkpoint says what it was trained on."""
    corpus = write_corpus(tmp_path / "corpus.txt")
    config, workdir = config_lib.parse(small_run(f"text:{corpus}", "")), tmp_path / "run"
    with lock.hold(str(workdir / "run.lock"), "it"), flags(verify_data=True):
        with pytest.raises(error_causes.MayPass, match="in use by another run"):
            command.main(config, str(workdir))
    assert os.listdir(workdir) == ["run.lock"]


def test_a_lost_record_is_written_again_from_the_same_source_alone(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    config, workdir = config_lib.parse(small_run(f"text:{corpus}", "")), tmp_path / "run"
    (folder,) = run_data.prepare(config, str(workdir))
    trained_on(config, workdir, folder)
    record = (workdir / prepared_data.RECORD).read_text()
    (workdir / prepared_data.RECORD).unlink()
    run_data.prepare(config, str(workdir))
    assert (workdir / prepared_data.RECORD).read_text() == record
    (workdir / prepared_data.RECORD).unlink()
    write_corpus(corpus, seed=2)
    with pytest.raises(config_lib.ConfigError, match="was trained on prepared data"):
        run_data.prepare(config, str(workdir))
    assert not (workdir / prepared_data.RECORD).exists()
