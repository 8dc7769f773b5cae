# SPDX-License-Identifier: Apache-2.0
"""Whole fine-tunings from a workdir and files to results: every kind of task, stopped and gone on."""

import json
import os

import corpus
import encoder_workdir
import pytest

from electra_jax import checkpoint
from electra_jax import config as config_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning import results, running, tuning

KINDS = {  # name of the run -> settings of the task `custom`
    "classification": dict(train="train.csv", dev="dev.csv", test="test.csv", text="text",
                           label="label"),
    "regression": dict(kind="regression", train="train.csv", dev="dev.csv", text="text",
                       label="score"),
    "multi_label": dict(kind="multi_label", train="train.csv", dev="dev.csv", text="text",
                        label="both"),
    "tagging": dict(kind="tagging", train="train.conll", dev="dev.conll", test="test.conll"),
    "joint": dict(kind="span", train="train.json", dev="dev.json", impossible=True),
    "plain": dict(kind="span", train="train.json", dev="dev.json", impossible=True),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """(workdir of an encoder that never trained, folder with the tasks' files)."""
    base = tmp_path_factory.mktemp("finetune")
    return encoder_workdir.make(base), str(encoder_workdir.write_tasks(base / "tasks"))


def settings(places, name, **overrides):
    """A fine-tuning of the task KINDS[kind]; overrides by path with __ for dots."""
    config = corpus.load_config("finetune")
    config.update(name=name, tasks="custom", seeds=2)
    config.data.dir = places[1]
    config.recipe.update(
        learning_rate=3e-3, epochs=6, batch_size=16, dropout=0.0, attention_dropout=0.0
    )
    config.evaluation.times = 3
    config.run.update(lengths=(32,), scan="on")
    config.span.update(query_length=8, hidden=16, beam=5)
    for path, value in overrides.items():
        node = config
        *sections, field = path.split("__")
        for section in sections:
            node = node[section]
        node[field] = value
    return config


def run(places, name, kind, **overrides):
    config = settings(places, name, **overrides)
    config.custom.update(**KINDS[kind])
    config.span.head = kind if kind in ("joint", "plain") else "joint"
    return running.run(finetuning_config.parse(config), places[0])


@pytest.fixture(scope="module")
def finished(places):
    """An uninterrupted classification of two seeds."""
    return run(places, "finished", "classification")


def folder(places, name):
    return os.path.join(places[0], "finetune", name)


def leaves(path):
    (step,) = checkpoint.steps(path)
    return checkpoint.metadata(os.path.join(path, str(step)))["digest"]


def test_the_loss_falls_and_the_task_is_learnt(finished):
    (task,) = finished.tasks
    for seed in task.seeds:
        losses = [point.loss for point in seed.curve]
        assert [point.step for point in seed.curve] == [12, 24, 36]  # 96 rows in 6 batches, 6 times
        assert losses[0] > losses[-1] and losses[-1] < 0.3
        assert seed.scores["dev"]["accuracy"] > 0.95
    assert task.seeds[0].curve != task.seeds[1].curve
    assert task.tokens_per_second > 0 and task.choice == "last"


def test_what_a_run_leaves_behind(finished, places):
    where = folder(places, "finished")
    kept = results.to_json(results.load(f"{where}/results.json"))
    assert kept == json.loads(json.dumps(results.to_json(finished)))
    assert {"results.md", "results.html", "log.txt", "settings.json", "custom"} <= set(
        os.listdir(where)
    )
    assert set(os.listdir(f"{where}/custom")) == {"seed_0", "seed_1", "weights"}
    for split, rows in (("dev", 40), ("test", 12)):
        with open(f"{where}/custom/seed_1/{split}.jsonl") as file:
            lines = [json.loads(line) for line in file]
        assert len(lines) == rows and {"id", "prediction", "scores"} <= set(lines[0])
    names = set(leaves(f"{where}/custom/weights"))
    assert {"head/output/kernel", "embeddings/token"} <= names
    assert any(name.startswith("discriminator/encoder/") for name in names)
    assert not any("generator" in name or "discriminator/head" in name for name in names)


class Interrupted(Exception):
    pass


def test_an_interrupted_run_goes_on_to_the_same_numbers(finished, places, monkeypatch):
    train, trained = tuning.train, []

    def stop_at_the_second(*arguments, **named):
        if trained:
            raise Interrupted
        trained.append(1)
        return train(*arguments, **named)

    monkeypatch.setattr(tuning, "train", stop_at_the_second)
    with pytest.raises(Interrupted):
        run(places, "interrupted", "classification")
    kept = os.path.join(folder(places, "interrupted"), "custom", "seed_0", "seed.json")
    before = os.stat(kept).st_mtime_ns
    trained.clear()  # one more seed may train, and only one is missing
    gone_on = run(places, "interrupted", "classification")
    assert os.stat(kept).st_mtime_ns == before
    assert gone_on.tasks[0].seeds == finished.tasks[0].seeds
    assert leaves(f"{folder(places, 'interrupted')}/custom/weights") == leaves(
        f"{folder(places, 'finished')}/custom/weights"
    )


def test_seeds_side_by_side_become_what_they_become_alone(finished, places):
    together = run(places, "together", "classification", run__vmapped_seeds="on")
    for alone, beside in zip(finished.tasks[0].seeds, together.tasks[0].seeds):
        for one, other in zip(alone.curve, beside.curve):
            assert other.loss == pytest.approx(one.loss, rel=2e-3)
        assert beside.scores["dev"] == pytest.approx(alone.scores["dev"], abs=0.03)


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("regression", "pearson", 0.8),
        ("multi_label", "micro_f1", 0.9),
        ("tagging", "entity_f1", 0.8),
        ("joint", "span_f1", 0.6),
        ("plain", "span_f1", 0.6),
    ],
)
def test_every_kind_of_task_learns(places, kind, metric, least):
    more = dict(recipe__epochs=15) if kind in ("joint", "plain", "tagging") else {}
    found = run(places, kind, kind, seeds=1, **more)
    (task,) = found.tasks
    (seed,) = task.seeds
    assert seed.curve[0].loss > seed.curve[-1].loss
    assert seed.scores["dev"][metric] > least
    assert seed.scores["dev"][metric] > task.baselines["dev"][metric]


def test_settings_of_other_results_are_refused(finished, places):
    del finished
    with pytest.raises(config_lib.ConfigError, match=r"learning_rate: 0.003 -> 0.01; choose"):
        run(places, "finished", "classification", recipe__learning_rate=0.01)


def test_more_seeds_may_be_asked_for(finished, places):
    found = run(places, "finished", "classification", seeds=3)
    assert [seed.seed for seed in found.tasks[0].seeds] == [0, 1, 2]
    assert found.tasks[0].seeds[:2] == finished.tasks[0].seeds
