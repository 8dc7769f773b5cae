# SPDX-License-Identifier: Apache-2.0
"""Short fine-tunings of `encoder_workdir`'s tasks; places are (its workdir, tasks' folder)."""

import os
import pathlib

from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.tuning import task_by_task

from . import corpus, encoder_workdir

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


def make_places(base: pathlib.Path, **of_tasks) -> tuple[str, str]:
    """Makes (workdir of an encoder that never trained, folder with the tasks' files)."""
    workdir = encoder_workdir.make(base)
    return workdir, str(encoder_workdir.write_tasks(base / "tasks", **of_tasks))


def folder(places, name):
    """The folder of a fine-tuning's results."""
    return os.path.join(places[0], "finetune", name)


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
    return task_by_task.run(finetuning_config.parse(config), places[0])
