# SPDX-License-Identifier: Apache-2.0
"""The hour: made-up records become a page, and one command does all with tiny networks."""

import json
import subprocess
import sys
import types

import pytest

from benchmarks import hour, hour_page
from electra_jax.workdir import starts
from support import downstream as probes
from support.corpus import ROOT, write_corpus


def made_record(change, chunking, random=0.78, objective="replaced_token_detection", flops=1e15):
    """A record with one task: a share and its error over seeds, trained and random."""

    def scores(mean, seeds=5):
        return {
            "chunking": {
                "split": "dev", "metric": "entity_f1", "mean": mean, "error": 0.003, "seeds": seeds,
                "one_answer": 0.001,
            }
        }  # fmt: skip

    return {
        "date": "2026-01-02", "change": change, "commit": None, "begun": change, "config": "hour",
        "host": "2 cores", "corpus": "a text", "minutes": 60.0, "steps": 9000, "tokens": 3.2e7,
        "objective": objective, "flops": flops,
        "parameters": 2_900_000, "heldout": {"disc_auc": 0.7}, "probes": {"pair_accuracy": 0.9},
        "untrained_probes": {"pair_accuracy": 0.5},
        "tasks": {"trained": scores(chunking), "random": scores(random, 2)},
        "recipes": {"trained": {"tags": {"dropout": 0.0}}, "random": {"tags": {"dropout": 0.1}}},
    }  # fmt: skip


def rows(text):
    """{first two cells: the others} of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {tuple(row[:2]): row[2:] for row in cells}


def test_records_become_rows_and_the_newest_is_held_against_random_weights(tmp_path):
    page = str(tmp_path / "hour.md")
    for one in (made_record("narrow", 0.84), made_record("wide", 0.89), made_record("wide", 0.90)):
        hour_page.add(page, one)
    hour_page.write(page)

    text = (tmp_path / "hour.md").read_text()
    found = rows(text)
    assert found["2026-01-02", "narrow"][:5] == ["60", "32.0M", "1e+15", "2.90M", "84.0 ± 0.3"]
    assert found["2026-01-02", "wide"][4] == "90.0 ± 0.3"  # made again: the older one is gone
    assert [one["change"] for one in hour_page.records(page)] == ["narrow", "wide"]
    # 12 points; the error of the difference is sqrt(2) * 0.3.
    assert found["chunks (CoNLL-2000), F1", "dev"] == [
        "90.0 ± 0.3", "78.0 ± 0.3", "+12.0 ± 0.4", "0.1",
    ]  # fmt: skip
    assert found["minimal pairs", "90.0"] == ["50.0"]
    assert (found["trained", "tags"], found["random", "tags"]) == (["0.0"], ["0.1"])
    assert "## The newest: wide" in text
    assert "of the trained encoder chunking 5; of random weights chunking 2." in " ".join(
        text.split()
    )


def test_a_masked_language_model_stands_beside_the_record_of_its_compute(tmp_path):
    page = str(tmp_path / "hour.md")
    for one in (
        made_record("wide", 0.89, flops=6.1e14),
        made_record("wider", 0.93, flops=1.2e15),
        made_record("BERT", 0.88, objective="masked_lm", flops=7e14),
    ):
        hour_page.add(page, one)
    hour_page.write(page)

    text = (tmp_path / "hour.md").read_text()
    assert "## The newest: wider" in text  # of those that make the configuration
    beside = rows(text.partition("## Beside")[2])
    assert beside["chunks (CoNLL-2000), F1", "89.0 ± 0.3"] == ["88.0 ± 0.3", "+1.0 ± 0.4"]
    assert "ours, 6.1e+14 FLOPs | BERT, 7e+14 FLOPs" in text


def test_a_record_may_have_no_random_weights(tmp_path):
    """Those of a record of the same shape are theirs too."""
    one = made_record("alone", 0.91)
    del one["tasks"]["random"], one["recipes"]["random"]
    page = str(tmp_path / "hour.md")
    hour_page.add(page, one)
    hour_page.write(page)
    text = (tmp_path / "hour.md").read_text()
    assert rows(text)["chunks (CoNLL-2000), F1", "dev"] == ["91.0 ± 0.3", "", "", "0.1"]
    assert "of the trained encoder chunking 5." in " ".join(text.split())


def test_a_difference_below_two_errors_is_not_resolved(tmp_path):
    page = str(tmp_path / "hour.md")
    hour_page.add(page, made_record("nothing", 0.788))
    hour_page.write(page)
    cells = rows((tmp_path / "hour.md").read_text())["chunks (CoNLL-2000), F1", "dev"]
    assert cells[2] == "+0.8 ± 0.4, not resolved"


def test_without_records_there_is_no_page(tmp_path):
    with pytest.raises(SystemExit, match="has no records yet"):
        hour_page.write(str(tmp_path / "hour.md"))


def test_a_run_that_is_on_the_page_has_one_name(tmp_path):
    """Without that, one hour could stand there as two changes."""
    page = str(tmp_path / "hour.md")
    starts.note(str(tmp_path), {"step": 0, "time": "2026-01-02T10:00", "device_count": 1})
    hour_page.add(page, made_record("wide", 0.84) | {"begun": "2026-01-02T10:00"})
    hour.refuse_known(types.SimpleNamespace(page=page, change="wide"), str(tmp_path))
    with pytest.raises(SystemExit, match="is the hour of --change='wide' already"):
        hour.refuse_known(types.SimpleNamespace(page=page, change="narrow"), str(tmp_path))


def test_what_a_task_needs_is_missed_before_the_hour(downstream):
    given = types.SimpleNamespace(downstream=str(downstream), tasks="sst2")
    hour.check_files(given)
    (downstream / "subjectivity.zip").unlink()
    with pytest.raises(SystemExit, match="has no subjectivity.zip; the head of hour.py says"):
        hour.check_files(given)
    given.tasks = "sst2,mrpc"
    with pytest.raises(SystemExit, match="has no glue/MRPC"):
        hour.check_files(given)


def test_the_machine_of_a_record_is_that_which_has_trained(tmp_path, monkeypatch):
    """The first may have been refused, and fine-tuning may continue with fewer cores."""
    given = types.SimpleNamespace(workdir=str(tmp_path), source="", config="", more=[])
    refused, trains = lambda *_: None, lambda *_: starts.note(str(tmp_path / "run"), {})
    (tmp_path / "run").mkdir()
    for cores, command in (("4 cores", refused), ("2 cores", trains), ("1 core", trains)):
        monkeypatch.setattr(hour, "_command", command)
        monkeypatch.setattr(hour, "_host", lambda cores=cores: cores)
        hour.train(given)
    assert (tmp_path / "host.txt").read_text() == "2 cores"


def test_both_sides_have_the_recipe_that_the_page_shows():
    assert [hour.recipe(weights, "tags")["learning_rate"] for weights in hour.INITS] == [1e-3, 1e-3]
    assert hour.recipe("trained", "sentences")["learning_rate"] == 5e-4
    assert [hour.recipe(weights, "tags")["dropout"] for weights in hour.INITS] == [0.0, 0.1]
    assert [hour.recipe(weights, "phrases")["epochs"] for weights in hour.INITS] == [1, 1]


def test_tasks_are_asked_for_by_name():
    assert hour.asked("chunking,sst2") == {"tags": ["chunking"], "sentences": ["sst2"]}
    assert hour.asked("stsb,mrpc") == {"sentences": ["mrpc", "stsb"]}
    assert hour.asked("sst2,sst2_all") == {"sentences": ["sst2"], "phrases": ["sst2_all"]}
    with pytest.raises(SystemExit, match="--tasks has cola; there are chunking, "):
        hour.asked("cola,mrpc")


MICRO = (
    "--config.schedule.budget=steps", "--config.schedule.minutes=0", "--config.schedule.steps=4",
    "--config.data.batch_size=8",
    "--config.data.sequence_length=32", "--config.data.vocab=train:wordpiece:150",
    "--config.data.min_document_characters=0", "--config.data.heldout_fraction=0.1",
    "--config.evaluation.rows=16", "--config.evaluation.every=4", "--config.checkpoint.every=4",
    "--config.schedule.warmup_steps=1", "--config.logging.report_every=0",
    *(f"--config.model.{network}.layers=1" for network in ("discriminator", "generator")),
)  # fmt: skip


@pytest.fixture
def downstream(tmp_path):
    """One task and both sets of the probes, some lines each."""
    folder = probes.write_probes(tmp_path / "downstream")
    (folder / "glue" / "SST-2").mkdir(parents=True)
    lines = "".join(f"the {'old' if i % 2 else 'small'} cat sat\t{i % 2}\n" for i in range(40))
    for name in ("train", "dev"):
        (folder / "glue" / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{lines}")
    return folder


@pytest.mark.slow
def test_one_command_trains_fine_tunes_and_adds_a_record(tmp_path, downstream):
    write_corpus(tmp_path / "text.txt", 60)
    page = tmp_path / "hour.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "hour.py"), f"--downstream={downstream}",
         f"--source=text:{tmp_path / 'text.txt'}", f"--workdir={tmp_path / 'work'}",
         f"--page={page}", "--change=micro", "--tasks=sst2,sst2_all", "--seeds=2",
         "--random_seeds=1", "--", *MICRO],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

    (one,) = json.loads(page.with_suffix(".json").read_text())
    assert (one["change"], one["steps"], one["config"]) == ("micro", 4, "hour")
    for name, seeds in (("trained", 2), ("random", 1)):
        assert one["tasks"][name]["sst2"]["seeds"] == seeds
        # The same task with all examples, one epoch instead of three: results of their own.
        assert one["tasks"][name]["sst2_all"]["seeds"] == seeds
        tuned = tmp_path / "work" / "run" / "finetune"
        epochs = [
            json.loads((tuned / f"{name}_{group}" / "settings.json").read_text())["config"][
                "recipe"
            ]["epochs"]
            for group in ("sentences", "phrases")
        ]
        assert epochs == [3, 1]
    assert set(hour_page.DOWNSTREAM) <= set(one["probes"])
    assert one["recipes"]["random"]["sentences"] == hour.recipe("random", "sentences")
    assert one["host"] == (tmp_path / "work" / "host.txt").read_text()
    assert "micro" in page.read_text()
