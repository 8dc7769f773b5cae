# SPDX-License-Identifier: Apache-2.0
"""New texts and files answered by a tuned task, against what its run has said of dev."""

import json
import pathlib
from unittest import mock

import numpy as np
import pytest

import electra_jax
from electra_jax import predict
from electra_jax.finetuning.tasks import examples, reading
from electra_jax.finetuning.tuning import tuned_model

from .finetunings import folder


def assert_new_texts_are_answered_as_dev_was(places, name, task="custom", split="dev"):
    """`load_tuned` on the texts of a dev set, against the predictions that the run has written."""
    where = pathlib.Path(folder(places, name), task)
    model = electra_jax.load_tuned(where)
    seed = where / f"seed_{model.tuned.about['seed']}"
    written = [json.loads(line) for line in (seed / f"{split}.jsonl").read_text().splitlines()]

    texts = reading.read(model.task, places[1]).splits[split].examples
    lanes = {
        "tagging": lambda example: (list(example.words),),
        "span": lambda example: (example.question, example.context),
    }.get(model.task.kind, lambda example: (example.a, example.b)[: 1 + model.task.pairs])
    found = model(*map(list, zip(*map(lanes, texts))))

    said = [one.get("label", one.get("labels")) if isinstance(one, dict) else one for one in found]
    expected = [line["prediction"] for line in written]
    assert said == (pytest.approx(expected) if model.task.kind == "regression" else expected)
    if model.task.kind == "multi_label":
        scores = [list(one["scores"].values()) for one in found]
        np.testing.assert_allclose(scores, [line["scores"] for line in written], atol=1e-4)
    return model, written


def assert_files_are_answered_as_dev_was(model, written, path):
    """A file that the run has read as its dev set, in blocks of five: the same ids and predictions,
    no labels."""
    report = examples.Report()
    split = model.read(path, report)
    with mock.patch.object(tuned_model, "_BLOCK", 5):
        answers = list(model.answers(split, report))

    found = [predict.row(*one) for one in zip(split.examples, answers, strict=True)]
    assert [one["id"] for one in found] == [line["id"] for line in written]
    said, expected = ([line["prediction"] for line in lines] for lines in (found, written))
    assert said == (pytest.approx(expected) if model.task.kind == "regression" else expected)
    has_classes = model.task.kind in ("classification", "multi_label")
    assert {*found[0]} == {"id", "prediction"} | ({"scores"} if has_classes else set())
