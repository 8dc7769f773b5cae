# SPDX-License-Identifier: Apache-2.0
"""A run evaluated on other text: as on its own held-out text, pooled by sums, nothing written."""

import json
import types

import numpy as np
import pytest
from absl import flags

from electra_jax import config as config_lib
from electra_jax import evaluate
from electra_jax.core import meshes
from electra_jax.data import (
    evaluation_text,
    planning,
    text_files,
    tokenising,
)
from electra_jax.training import other_text, trained_run
from support import workdirs
from support.commands import command
from support.corpus import write_corpus

STEP = workdirs.STEP


@pytest.fixture(autouse=True)
def parsed_flags():
    """The flags of the command have their defaults, as if none was given."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")


@pytest.fixture(scope="module")
def workdir(corpus, tmp_path_factory):
    return workdirs.with_rows(
        tmp_path_factory.mktemp("run"), f"text:{corpus}", evaluation__rows=1000
    )


@pytest.fixture(scope="module")
def run(workdir):
    return open_run(workdir)


@pytest.fixture(scope="module")
def heldout(corpus, run, tmp_path_factory):
    """The documents that the run held out, as a file."""
    settings = planning.DataSettings.of(run.config.data, run.config.seed)
    below = int(settings.heldout_fraction * 2**64)
    documents = corpus.read_text().strip().split("\n\n")
    kept = [document for document in documents if tokenising.document_hash(document)[0] < below]
    path = tmp_path_factory.mktemp("heldout") / "heldout.txt"
    path.write_text("\n\n".join(kept) + "\n")
    return path


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Text that no run has seen, of another length each."""
    folder = tmp_path_factory.mktemp("others")
    write_corpus(folder / "one.txt", documents=12, seed=1)
    write_corpus(folder / "two.txt", documents=30, seed=2)
    return folder


@pytest.fixture(scope="module")
def both(run, others):
    """Evaluated on two texts at once."""
    return on(run, f"text:{others}/one.txt; text:{others}/two.txt")


def open_run(workdir):
    config = config_lib.parse(json.loads((workdir / "config.json").read_text()))
    return trained_run.open(config, str(workdir))


def on(run, specs, limit=0):
    texts = other_text.read(run, evaluation_text.parse(specs), limit)
    return other_text.evaluate(run, texts)


def listing(workdir):
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in [workdir, *workdir.rglob("*")]
    }


def test_the_heldout_text_of_a_run_gives_the_heldout_metrics_of_the_run(
    workdir, run, heldout, others
):
    """By the command, which prints a table and JSON, and leaves the workdir as it was."""
    own = trained_run.evaluate(run)
    before = listing(workdir)
    two = f"--data=text:{others}/two.txt"
    done = command(
        f"--workdir={workdir}", f"--data=own=text:{heldout}", two, "--json",
        module="electra_jax.evaluate",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert listing(workdir) == before
    *shown, line = done.stdout.strip().split("\n")
    found = json.loads(line)
    assert list(found["sources"]) == ["own", "two"]
    for name, value in own.items():
        assert found["sources"]["own"][name] == pytest.approx(value, abs=1e-6), name
    titles = next(line for line in shown if line.startswith("   "))
    assert titles.split() == ["own", "two", "all"]
    row = next(line for line in shown if line.startswith("  gen_masked_loss "))
    for name, source in [*found["sources"].items(), ("all", found)]:
        cell = f"{source['gen_masked_loss']:.3f} ({source['baselines']['gen_masked_loss']:.3f})"
        assert row[titles.index(name) :].startswith(cell)
        assert source["baselines"]["gen_masked_loss"] == source["unigram_entropy"]
        assert source["baselines"]["disc_auc"] == 0.5


def test_sources_pool_by_sums_and_do_not_change_each_other(run, others, both):
    found = both
    one, two = found.by_source["one"], found.by_source["two"]
    real = {text.name: int((text.ids != run.vocabulary.pad_id).sum()) for text in found.texts}
    chosen = {name: found.by_source[name]["masked_rate"] * n for name, n in real.items()}
    for metric, weights in (("disc_accuracy", real), ("disc_loss", real), ("gen_loss", chosen)):
        total = one[metric] * weights["one"] + two[metric] * weights["two"]
        assert one[metric] != two[metric]
        assert found.pooled[metric] == pytest.approx(total / sum(weights.values()), rel=1e-6)
    for name in ("documents", "words", "characters", "tokens", "rows"):
        assert found.pooled[name] == one[name] + two[name]
    counts_V = sum(text.counts_V for text in found.texts)
    share = counts_V[counts_V > 0] / counts_V.sum()
    assert found.pooled["unigram_entropy"] == pytest.approx(-(share * np.log(share)).sum())
    assert on(run, f"text:{others}/two.txt").by_source["two"] == two


def test_the_figures_are_the_loss_in_other_units(others, both):
    text = (others / "one.txt").read_text()
    values = both.by_source["one"]
    words = text.split()
    assert values["words"] == len(words)
    blanks = len(words) - values["documents"]  # one fewer than words in each document
    assert values["characters"] == sum(map(len, words)) + blanks
    nats = values["gen_masked_loss"] * values["tokens"]
    assert values["gen_masked_nats_per_word"] == pytest.approx(nats / len(words))
    assert values["gen_masked_bits_per_character"] == pytest.approx(
        nats / values["characters"] / np.log(2)
    )
    line = values["unigram_entropy"] * values["tokens"] / len(words)
    assert values["unigram_nats_per_word"] == pytest.approx(line)


def test_runs_with_other_vocabularies_are_measured_on_the_same_text(corpus, run, others, tmp_path):
    """Pieces of other lengths: other tokens and losses per token, the same words and characters."""
    changes = dict(data__vocab="train:wordpiece:64", data__min_document_characters=60, seed=3)
    pieces = open_run(workdirs.with_rows(tmp_path, f"text:{corpus}", **changes))
    a, b = (on(one, f"text:{others}/two.txt", limit=3000) for one in (run, pieces))
    assert a.texts[0].sha256 == b.texts[0].sha256
    assert not a.texts[0].whole
    for name in ("documents", "words", "characters"):
        assert a.pooled[name] == b.pooled[name]
    assert 2900 < a.pooled["characters"] <= 3000
    assert a.pooled["tokens"] != b.pooled["tokens"]
    for values in (a.pooled, b.pooled):
        nats = values["gen_masked_loss"] * values["tokens_per_character"]
        assert values["gen_masked_nats_per_character"] == pytest.approx(nats)


def test_a_reader_is_told_what_makes_figures_better_than_they_are(corpus, run, tmp_path):
    (tmp_path / "unknown.txt").write_text("the cat sees Ж a dog Ю.\n\nthe cat finds ф.\n")
    found = on(run, f"unknown=text:{tmp_path}/unknown.txt; own=text:{corpus}", limit=500)
    notes = other_text.notes(run, found)
    assert [note.partition(":")[0] for note in notes] == ["unknown", "own", "own"]
    assert "of the tokens are [UNK], which is easily predicted" in notes[0]
    assert "was trained on this source" in notes[1]
    assert "--characters=0 takes all of it" in notes[2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nonsense", "--data 'nonsense' is none of builtin, text:GLOB"),
        ("text:{}/none*.txt", "none*.txt matches no file"),
    ],
)
def test_what_is_not_there_is_told_before_anything_is_read(data, message, tmp_path):
    with pytest.raises(config_lib.ConfigError) as error:
        evaluate._on_other_text(None, "nowhere", data.format(tmp_path), 80)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_batch_that_devices_cannot_split_is_refused_where_it_is_evaluated(workdir, monkeypatch):
    monkeypatch.setattr(meshes, "row_devices", lambda mesh: 4)
    tree = json.loads((workdir / "config.json").read_text())
    tree["evaluation"]["batch_size"] = 6
    config = config_lib.parse(tree)
    monkeypatch.setattr(evaluate, "_STEP", types.SimpleNamespace(value=None))
    for by in (
        lambda: evaluate._on_records(config, str(workdir), 80),
        lambda: evaluate._on_other_text(config, str(workdir), "builtin", 80),
    ):
        with pytest.raises(config_lib.ConfigError, match="evaluation.batch_size=6 .* try 4 or 8"):
            by()
    assert trained_run.open(config, str(workdir)).step == STEP  # as `show` opens it


def test_the_field_of_the_text_is_a_flag_here(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "the cat sees a letter."}\n')
    sources = evaluation_text.parse(f"text:{tmp_path}/a.jsonl")
    with pytest.raises(ValueError, match="no field 'text'") as error:
        other_text.read(run, sources, 0)
    assert str(evaluate._in_flags(error.value)).endswith("set --text_field")
    assert other_text.read(run, sources, 0, "body")[0].words == 5


def test_what_ends_a_document_is_a_flag_here(workdir, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the cat sees a letter.\n\nthe dog finds it.\n")
    config = config_lib.parse(json.loads((workdir / "config.json").read_text()))
    for kind, documents in ((None, 2), ("files", 1)):
        given = {"STEP": None, "CHARACTERS": 0, "TEXT_FIELD": "", "DOCUMENTS": kind}
        for name, value in given.items():
            monkeypatch.setattr(evaluate, f"_{name}", types.SimpleNamespace(value=value))
        found = evaluate._on_other_text(config, str(workdir), f"text:{tmp_path}/a.txt", 80)
        assert found["documents"] == documents
    error = ValueError(text_files.why_long("files"))
    assert "with --documents=files each file is one" in str(evaluate._in_flags(error))
