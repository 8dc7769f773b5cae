# SPDX-License-Identifier: Apache-2.0
"""Addresses in place of paths: they are read, or refused in one line before anything is written."""

import importlib.util
import os
import string

import pytest
from absl import flags
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import convert, score, show
from electra_jax.configs import finetune
from electra_jax.data import planning, vocabulary
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tuning import task_by_task
from electra_jax.host import buckets, staging
from electra_jax.speed import dry_run
from electra_jax.training import run_data
from electra_jax.weights import reading_workdir
from electra_jax.workdir import prepared_data, saved_config
from support import folder_bucket, made_results
from support.commands import convert_flags
from support.corpus import small_run, write_corpus

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *string.ascii_lowercase, *(f"##{x}" for x in string.ascii_lowercase), *".,"]


@pytest.fixture
def without_gcs(monkeypatch):
    """The extra is not installed, wherever this test runs."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "gcsfs" else real(name)
    )


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket with a vocabulary and a file of sentences."""
    found = folder_bucket.FolderBucket(tmp_path / "bucket", monkeypatch)
    found.machine(tmp_path / "cache")
    found.folder.mkdir()
    (found.folder / "vocab.txt").write_text("\n".join(PIECES))
    (found.folder / "sentences.txt").write_text("the cat\na river\tthe river\n")
    yield found
    staging._own_root.cache_clear()


def refused(work, *arguments):
    """The one line with which it refuses."""
    with pytest.raises(ValueError) as refusal:
        work(*arguments)
    line = str(refusal.value)
    assert "\n" not in line
    return line


def run(tmp_path, **settings):
    """The settings of a small run that has text."""
    source = f"text:{write_corpus(tmp_path / 'corpus.txt')}"
    return config_lib.parse(small_run(source, str(tmp_path / "rows"), **settings))


@pytest.mark.parametrize(
    "settings", [{"init__from": "gs://b/x"}, {"init__generator_from": "gs://b/x"},
                 {"data__vocab": "gs://b/vocab.txt"}],
)  # fmt: skip
def test_without_the_extra_a_run_begins_nothing(without_gcs, tmp_path, settings):
    ((name, address),) = settings.items()
    line = refused(electra_jax.train, run(tmp_path, **settings), str(tmp_path / "run"))
    assert f"{name.replace('__', '.')}='{address}' needs gcsfs (the extra gcs)" in line
    assert "not installed: pip install 'gcsfs' 'google-cloud-storage>" in line
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_without_the_extra_rows_in_a_bucket_are_out_of_reach_and_nothing_else(
    without_gcs, tmp_path
):
    config = run(tmp_path, data__dir="gs://b/rows")
    for work in (electra_jax.train, run_data.prepare, dry_run.text):
        line = refused(work, config, str(tmp_path / "run"))
        assert line.startswith("data.dir='gs://b/rows' needs gcsfs (the extra gcs)"), line
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]

    # What a finished run has in its workdir can be read.
    words = vocabulary.Vocabulary("wordpiece", "\n".join(PIECES).encode(), True, True)
    words.save(str(tmp_path / "run" / "vocab"))
    rows = (prepared_data.Prepared("rows", "hash"),)
    prepared_data.save(prepared_data.Record({}, {}, words.sha256, rows), str(tmp_path / "run"))
    saved_config.write(str(tmp_path / "run"), config)
    saved = saved_config.read(str(tmp_path / "run"))
    assert saved == config
    found, _ = reading_workdir.vocabulary_of(str(tmp_path / "run"), saved, words.sha256)
    assert found.pieces == PIECES


def test_without_the_extra_a_program_that_names_a_workdir_in_a_bucket_is_told_so(
    without_gcs, tmp_path
):
    """As the command is. Nothing of Google's is imported, which would be a traceback."""
    for work, config, named in (
        (electra_jax.train, run(tmp_path), "--workdir"),
        (electra_jax.fine_tune, finetune.get_config(), "workdir"),
    ):
        line = refused(work, config, "gs://b/run")
        assert line.startswith(f"{named}='gs://b/run' needs gcsfs (the extra gcs)"), line
        assert "names no folder of a bucket" in refused(work, config, "gs://b")
        assert "is an address of a kind that cannot" in refused(work, config, "s3://b/run")


def test_without_the_extra_every_reader_says_what_installs_it(without_gcs):
    for work, named in (
        (electra_jax.load_encoder, "path"),
        (electra_jax.load_discriminator, "path"),
        (electra_jax.report_page, "workdir"),
        (electra_jax.compare_page, "workdir"),
        (score.read, "--input"),
    ):
        line = refused(work, "gs://b/x")
        assert line.startswith(f"{named}='gs://b/x' needs gcsfs (the extra gcs)"), line
        assert ": pip install " in line


def test_addresses_of_other_kinds_are_refused_before_anything_is_written(tmp_path):
    config = run(tmp_path, data__vocab="s3://b/vocab.txt")
    for line in (
        refused(electra_jax.train, config, str(tmp_path / "run")),
        refused(run_data.prepare, config, str(tmp_path / "run")),
    ):
        assert line.startswith("data.vocab='s3://b/vocab.txt' is an address of a kind that cannot")
        assert line.endswith("data.vocab and --input gs://BUCKET/FILE")
    assert "--input='s3://b/x' is an address" in refused(score.read, "s3://b/x")
    assert "workdir='s3://b/x' is an address" in refused(electra_jax.report_page, "s3://b/x")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_what_can_only_be_written_here_is_refused_in_a_bucket(tmp_path):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(html="gs://b/rows.html"):
        assert "--html='gs://b/rows.html' is an address" in refused(show.main, None, "run")
    with convert_flags(to="orbax", out="gs://b/x"):
        assert "--out='gs://b/x' is an address" in refused(convert.export_weights, None, None)


def test_tasks_are_read_from_this_machine():
    tree = finetune.get_config()
    tree.data.dir = "gs://b/glue"
    line = refused(finetuning_config.parse, tree)
    assert line == (
        "data.dir='gs://b/glue' is an address, and tasks are read from a folder of this machine;"
        " copy that folder here, and give its path"
    )


def test_a_tuned_task_is_read_from_this_machine():
    line = refused(electra_jax.load_tuned, "gs://b/run/finetune/a/sst2")
    assert line.startswith("path='gs://b/run/finetune/a/sst2' is an address of a kind that cannot")


def test_a_program_fine_tunes_in_a_bucket_as_the_command_does(bucket, monkeypatch):
    """In the copy of the workdir, from which what is new is sent."""
    sent = []

    def tuned(config, workdir, control):
        assert (staging.address(workdir), control) == ("gs://lab/run", None)
        results = os.path.join(workdir, "finetune", config.name, "results.json")
        os.makedirs(os.path.dirname(results))
        with open(results, "w") as file:
            file.write("{}")
        return made_results.three()

    monkeypatch.setattr(task_by_task, "run", tuned)
    monkeypatch.setattr(buckets, "upload", lambda path, address: sent.append(address))
    (bucket.folder / "run").mkdir()
    found = electra_jax.fine_tune(finetune.get_config(), "gs://lab/run")
    assert [task.task for task in found.tasks] == ["cola", "stsb", "mnli"]
    assert sent == ["gs://lab/run/finetune/finetune/results.json"]


def test_sentences_are_read_from_a_bucket(bucket):
    assert score.read("gs://lab/sentences.txt") == {1: ["the cat"], 2: ["a river", "the river"]}
    line = refused(score.read, "gs://lab/none.txt")
    assert line == "--input=gs://lab/none.txt cannot be read: there is no gs://lab/none.txt"


def test_a_vocabulary_in_a_bucket_makes_the_rows_of_one_on_a_disk(bucket, tmp_path):
    here, there = (
        run(tmp_path, data__vocab=place)
        for place in (str(bucket.folder / "vocab.txt"), "gs://lab/vocab.txt")
    )
    (mine,), (theirs,) = (
        run_data.prepare(config, str(tmp_path / name))
        for config, name in ((here, "here"), (there, "there"))
    )
    assert mine == theirs

    # The run keeps a copy, and needs the bucket no more.
    data = prepared_data.RunData.of(there, str(tmp_path / "there"))
    assert prepared_data.own_vocabulary(data) == "gs://lab/vocab.txt"
    (bucket.folder / "vocab.txt").unlink()
    assert "'gs://lab/vocab.txt' does not exist" in refused(
        planning.check_vocabulary, data.settings
    )
    kept = prepared_data.own_vocabulary(data)
    assert vocabulary.load(kept).pieces == PIECES
    assert prepared_data.vocabulary_size(data) == len(PIECES)
