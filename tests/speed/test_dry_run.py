# SPDX-License-Identifier: Apache-2.0
"""The memory that a dry run tells, held against what the compiler takes."""

import os
import re
import shutil
import types

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import meshes, sharding
from electra_jax.data import records
from electra_jax.model import accounting
from electra_jax.objectives import vocabulary_softmax
from electra_jax.speed import disk, dry_run, memory, synthetic
from electra_jax.step import plans
from electra_jax.training import run_data
from electra_jax.workdir import prepared_data
from support.corpus import load_config, small_run, write_corpus

MIB = 2**20


def of(tree):
    config = config_lib.parse(tree)
    vocab_size = prepared_data.vocabulary_size(prepared_data.RunData.of(config, ""))
    vocabulary = synthetic.MadeUpVocabulary(vocab_size)
    return config, plans.make_plan(config, vocabulary, mesh=plans.make_mesh(config))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("replaced_token_detection", 19),  # slots; 128 rows x 2,048 ids x 4 bytes are 1 MiB
        ("masked_lm", 19),
        ("all_tokens_mlm", 128),  # all places of each row
        ("electric", 128),
        ("unigram_generator", 0),
    ],
)
def test_the_scores_of_a_piece_are_of_all_places_that_are_asked(name, expected):
    tree = load_config("small")
    tree.objective.name = name
    tree.data.update(batch_size=128, vocab="train:wordpiece:32768")
    if name == "masked_lm":
        tree.model.sharing = "embeddings"
    _, plan = of(tree)
    assert memory.scores(plan, plan.stages[0]) / MIB == expected


@pytest.mark.parametrize("sharing", ["embeddings", "none", "gdes", "all"])
def test_the_main_network_is_counted_as_it_is_exported(sharing):
    """Once with `gdes` too, where a second table is added into the first."""
    tree = load_config("small")
    tree.model.sharing, tree.data.vocab = sharing, "train:wordpiece:32768"
    if sharing == "all":
        tree.model.generator = tree.model.discriminator
    _, plan = of(tree)
    tables = 128 * (32768 + 512 + 2 + 2)  # tokens, positions, types, norm
    layer = 4 * 256 * 257 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
    head = 257 * 256 + 257
    assert dry_run._main_network(plan) == tables + 129 * 256 + 12 * layer + head


def test_the_dry_run_says_what_is_kept_and_what_is_not_reached(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt")
    tree = small_run(f"text:{corpus}", str(tmp_path / "data"), schedule__warmup_steps=100)
    lines = dict(
        line.split("  ", 1)
        for line in dry_run.text(config_lib.parse(tree), str(tmp_path)).splitlines()
    )
    kept = float(lines["activations per device"].split()[0])
    assert 0.1 < kept < 10  # 8 rows of 32 tokens through three layers of width 32 and 16
    assert "within the warmup" in lines["note"]


@pytest.mark.parametrize(
    ("name", "share", "said"),  # a width of 256, 768, 1,024
    [("small", 0.35 / 3, "12%"), ("base", 0.35, "35%"), ("large", 0.35, "35%")],
)
def test_narrow_networks_are_expected_to_reach_less_of_the_peak(
    name, share, said, tmp_path, monkeypatch
):
    """A device of 100 TFLOP/s: the time is the FLOPs of the run by that share of it."""
    monkeypatch.setattr(accounting, "peak", lambda kind: 1e14)
    monkeypatch.setattr(memory, "activations", lambda *_: 0.0)  # nothing is traced
    tree = load_config(name)
    tree.data.update(source=f"text:{write_corpus(tmp_path / 'corpus.txt')}", dir=str(tmp_path))
    lines = dict(
        line.split("  ", 1)
        for line in dry_run.text(config_lib.parse(tree), str(tmp_path)).splitlines()
    )
    time, of_what = lines["time"].strip().split(" at ")  # 1d03h
    assert of_what == f"{said} of the peak"
    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    seconds = sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([dhms])", time))
    assert seconds == pytest.approx(float(lines["FLOPs of the run"]) / (1e14 * share), rel=0.02)


def test_what_no_axis_splits_is_whole_on_each_device():
    """Two parts along fsdp times four along tensor; one head cannot be split over four."""
    shapes = {
        "embeddings/token": (800, 10),  # in 8 parts of 1,000
        "embeddings/position": (20, 10),  # along fsdp only: 2 parts of 100
        "attention/query/kernel": (1, 10, 1, 10),  # one head: 2 parts of 50
        "attention/output/bias": (1, 7),  # whole
    }
    shapes = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
    mesh = meshes.make_mesh(1, 2, 4, np.array(jax.devices() * 8))
    where = sharding.shardings(shapes, mesh)
    assert memory.of_tree(shapes, where) == 4 * (1000 + 100 + 50 + 7)


def test_the_dry_run_refuses_a_run_whose_rows_and_text_are_gone(tmp_path):
    """With either of them it could begin."""
    corpus = write_corpus(tmp_path / "corpus.txt")
    workdir, prepared = tmp_path / "run", tmp_path / "data"
    workdir.mkdir()
    config = config_lib.parse(small_run(f"text:{corpus}", str(prepared)))
    run_data.prepare(config, str(workdir))

    os.rename(corpus, tmp_path / "kept.txt")
    assert "parameters" in dry_run.text(config, str(workdir))
    os.rename(prepared, tmp_path / "kept")
    with pytest.raises(ValueError, match="corpus.txt matches no file"):
        dry_run.text(config, str(workdir))
    os.rename(tmp_path / "kept.txt", corpus)
    assert "parameters" in dry_run.text(config, str(workdir))


def test_a_manifest_in_the_current_folder_is_none_of_a_later_stage(tmp_path, monkeypatch):
    """A web page has a file of that name too."""
    corpus = write_corpus(tmp_path / "corpus.txt")
    (tmp_path / "manifest.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    stages = ((0.5, 16, 8),)
    config = small_run(f"text:{corpus}", str(tmp_path / "data"), schedule__stages=stages)
    data = prepared_data.RunData.of(config_lib.parse(config), str(tmp_path / "run"))
    assert dry_run._prepared_rows(data) == [None, None]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.jsonl": '{"abstract": "a b"}\n'}, "a.jsonl, line 1: no field 'text'"),
        ({"a.txt": ""}, r"text:.*\* has no text .0 empty documents, 0 shorter"),
        ({"a.txt": "\n \n", "b.txt": ""}, "has no text"),
        ({"a.txt": "short\n\ntoo"}, "2 shorter than data.min_document_characters"),
        ({"a.txt": "", "b.txt": "some text"}, ""),  # an empty file beside others does no harm
    ],
)
def test_the_dry_run_looks_at_the_first_text(tmp_path, files, message):
    (tmp_path / "text").mkdir()
    for name, content in files.items():
        (tmp_path / "text" / name).write_text(content)
    least = 10 if "shorter" in message else 0
    source = f"text:{tmp_path}/text/*"
    config = small_run(source, str(tmp_path / "data"), data__min_document_characters=least)
    config = config_lib.parse(config)
    if not message:
        assert "parameters" in dry_run.text(config, str(tmp_path / "run"))
        return
    with pytest.raises(ValueError, match=message):
        dry_run.text(config, str(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["replaced_token_detection", "decoupled_detection", "all_tokens_mlm", "electric"]
)
def test_activations_and_scores_are_what_the_compiler_takes(name, monkeypatch):
    """The step's temporary memory: what is kept, two pieces of scores, the gradients.

    With the pieces of accelerators, whose memory is short. With the smaller ones of a CPU what is
    told for Electric is 31 % more than what is taken.
    """
    pieces = vocabulary_softmax.PIECES
    monkeypatch.setitem(pieces, "cpu", pieces["default"])
    tree = small_run("text:nowhere", "")
    tree.data.update(batch_size=16, sequence_length=64, vocab="train:wordpiece:8192")
    tree.model.max_positions = 64
    tree.model.discriminator.update(layers=4, width=128, heads=4, feed_forward=512)
    tree.model.generator.update(layers=2, width=64, heads=2, feed_forward=128)
    tree.objective.name = name
    config, plan = of(tree)
    lanes = {
        "ids": jax.ShapeDtypeStruct((16, 64), np.uint16),
        "marks": jax.ShapeDtypeStruct((16, 64), np.uint8),
    }
    rehearsed = synthetic.prepare(config, plan.networks.vocab_size)
    compiled = rehearsed.update.lower(rehearsed.plan.state_shapes, lanes).compile()
    taken = compiled.memory_analysis().temp_size_in_bytes / MIB

    params = jax.tree.leaves(rehearsed.plan.state_shapes.params)
    gradients = sum(x.size * x.dtype.itemsize for x in params) / MIB
    kept = memory.activations(plan, plan.stages[0]) / MIB
    told = kept + 2 * memory.scores(plan, plan.stages[0]) / MIB + gradients
    assert 0.75 * taken < told < 1.3 * taken, (told, taken)


@pytest.mark.parametrize("epochs, said", [(None, 0), (100.0, 0), (12_619.2, 1)])
def test_text_that_is_read_too_often_is_noted(epochs, said):
    notes = dry_run._too_often(epochs)
    assert len(notes) == said
    assert not said or notes[0].startswith("each text is read 12,619 times; more text would help")


def test_the_epochs_of_a_mixture_are_told_for_each_source(tmp_path):
    """A small source with a large weight is read far more often than the rows on the whole."""
    large = write_corpus(tmp_path / "large.txt")
    small = write_corpus(tmp_path / "small.txt", documents=30, seed=1)
    data = str(tmp_path / "data")
    tree = small_run(f"text:{large}@1; text:{small}@3", data, schedule__steps=10_000)
    config = config_lib.parse(tree)
    run_data.prepare(config, str(tmp_path))

    told = dry_run.text(config, str(tmp_path))
    found = re.search(r"epochs over the data +([\d.]+) \([\d,]+ rows\): (.*)", told)
    (opened,) = (records.open(str(path)) for path in (tmp_path / "data").iterdir())
    rows = [opened.rows("train", index) for index in (0, 1)]
    expected = [80_000 * share / count for share, count in zip((0.25, 0.75), rows)]
    assert found[2] == f"large {expected[0]:,.2f}, small {expected[1]:,.2f}"
    assert float(found[1]) == pytest.approx(80_000 / sum(rows), abs=0.01)
    assert float(found[1]) < 100 < expected[1]
    assert f"each text of small is read {expected[1]:,.0f} times; more text of it would" in told


def test_a_state_and_activations_beyond_the_memory_are_noted():
    """Of this machine, since jax's CPU devices say nothing of theirs."""
    _, plan = of(load_config("tiny"))
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()
    state = memory.of_tree(plan.state_shapes, plan.state_shardings)
    assert dry_run._too_much_memory(plan, has - state) == []
    (note,) = dry_run._too_much_memory(plan, has - state + 1)
    whole = f"{has / 2**30:,.1f}"
    assert note.startswith(f"state and activations are {whole} GiB, and a device has {whole}; ")


@pytest.mark.parametrize(
    ("every", "keep_last", "keep_every", "keep_best", "steps", "most"),
    [
        (10, 3, 0, "", 100, 4),  # 60, 70, 80 and, before 60 goes, 90
        (10, 3, 0, "", 20, 2),  # no more than are saved
        (10, 3, 0, "", 25, 3),  # the last step is saved too
        (10, 3, 50, "", 100, 6),  # and 50 and 100, which may be among the newest
        (10, 3, 25, "", 100, 6),  # 25 and 75 are never saved
        (10, 1, 10, "", 100, 10),  # all of them
        (10, 3, 0, "loss", 100, 5),  # and the best, which may be an old one
        (10, 3, 0, "loss", 20, 2),
    ],
)
def test_so_many_checkpoints_are_on_the_disk_at_most(
    every, keep_last, keep_every, keep_best, steps, most
):
    section = config_lib.Checkpoint(every, keep_last, keep_every, keep_best)
    assert disk.checkpoints(section, steps) == most


def test_a_checkpoint_has_the_size_that_is_told_and_a_disk_without_room_is_noted(
    tmp_path, monkeypatch
):
    corpus = write_corpus(tmp_path / "corpus.txt")
    tree = small_run(
        f"text:{corpus}", str(tmp_path / "data"), schedule__steps=2, checkpoint__every=1,
        model__discriminator__width=128, model__discriminator__feed_forward=512,
    )  # fmt: skip
    config = config_lib.parse(tree)
    free = 0
    monkeypatch.setattr(shutil, "disk_usage", lambda place: types.SimpleNamespace(free=free))
    told = dry_run.text(config, str(tmp_path / "run"))
    count, each = re.search(r"on disk +(\d+) at most, ([\d.]+) MiB each", told).groups()
    assert count == "2" and "has 0.0 MiB free; free some, choose another --workdir" in told

    electra_jax.train(config, tmp_path / "run")
    (newest,) = (tmp_path / "run" / "checkpoints").glob("2")
    size = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
    assert size / MIB == pytest.approx(float(each), rel=0.15)
    assert "checkpoints will need" not in dry_run.text(config, str(tmp_path / "run"))
