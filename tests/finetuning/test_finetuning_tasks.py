# SPDX-License-Identifier: Apache-2.0
"""Tasks are what the paper and the released code made of them; a custom one takes ten lines."""

import math

import pytest

from electra_jax.finetuning.tasks import built_in, custom
from electra_jax.finetuning.tasks import task as task_lib


def test_the_protocol_of_the_paper():
    assert {name: task.epochs for name, task in built_in.TASKS.items() if task.epochs != 3} == {
        "rte": 10,
        "stsb": 10,
        "squad": 2,
        "squad2": 2,
    }
    assert [name for name, task in built_in.TASKS.items() if task.both_orders] == ["mrpc", "stsb"]
    assert {task.sequence_length for task in built_in.TASKS.values()} == {128, 256, 512}
    assert built_in.TASKS["cola"].main == "mcc"
    assert built_in.TASKS["stsb"].main == "spearman"
    assert built_in.TASKS["chunking"].main == "entity_f1"


def test_every_task_is_consistent():
    for name, task in built_in.TASKS.items():
        assert task.name == name and task.kind in task_lib.KINDS
        assert task.main in task.metrics and set(task.metrics) <= set(task_lib.METRICS[task.kind])
        formats = {"", *task_lib.TEXT_FORMATS, "conll", "squad"}
        assert {source.format for source in task.files.values()} <= formats
        hash(task)


def test_dev_sets_are_named():
    matched = {f"{split}_{kind}" for split in ("dev", "test") for kind in ("matched", "mismatched")}
    assert built_in.TASKS["mnli"].files.keys() == {"train"} | matched
    assert built_in.TASKS["subjectivity"].files.keys() == {"train"}  # dev is cut off train
    assert built_in.TASKS["ax"].files.keys() == {"test"} and built_in.TASKS["ax"].model_of == "mnli"
    assert built_in.TASKS["rte"].pairs and not built_in.TASKS["cola"].pairs


def test_a_custom_task_takes_its_defaults_from_its_kind():
    task = custom.task(
        {"name": "news", "train": "a.csv; b.csv", "dev": "d.csv", "text": "title", "label": "3"}
    )
    assert task.kind == "classification" and task.main == "accuracy"
    assert task.files["train"].files == ("a.csv", "b.csv")
    assert (task.files["dev"].a, task.files["dev"].label) == ("title", 3)
    scored = custom.task({"train": "a.tsv", "label": "y", "main": "mcc"})
    assert (scored.main, scored.metrics) == ("mcc", ("accuracy", "macro_f1", "mcc"))
    tags = custom.task({"kind": "tagging", "train": "a.conll"})
    assert (tags.files["train"].a, tags.files["train"].label) == (0, -1)
    assert (tags.main, tags.sequence_length, tags.files["train"].format) == (
        "entity_f1",
        256,
        "conll",
    )
    topics = custom.task({"kind": "multi_label", "train": "a.tsv", "label": ["sport", "art"]})
    assert topics.labels == ("sport", "art")


def test_names_with_commas_stand_in_quotes():
    assert custom.names('a, "b, c",d ,') == ("a", "b, c", "d")
    assert custom.names("") == ()
    assert custom.task({"train": "a.tsv", "label": "y", "labels": '"a, b",c'}).labels == (
        "a, b", "c",
    )  # fmt: skip
    with pytest.raises(ValueError, match="names 'a,\"b': unexpected end of data; write them as"):
        custom.names('a,"b')


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "regresion"},
            "task custom: custom.kind 'regresion' is none of classif",
        ),
        ({"txet": "a"}, "custom task: 'txet' is none of name, kind, train"),
        ({"label": "y"}, "task custom: no file to train on"),
        ({"train": "a.tsv"}, "task custom: no column of labels; give custom.label=COLUMN"),
        (
            {"train": "a.tsv", "label": "y", "metrics": "mse"},
            "custom.metrics 'mse' is none of custom.kind='classification': .*'' takes those of the",
        ),
        ({"train": "a.tsv", "label": "y", "main": "mse"}, "main 'mse' is none of accuracy"),
        ({"train": "a.tsv", "label": "y", "format": "conll"}, "format 'conll' is none of tsv"),
        (
            {"train": "a.tsv", "label": ["x", "y"]},
            "several .* are for custom.kind='multi_label'",
        ),
        ({"train": "a.tsv", "label": "y", "odd_rows": "keep"}, "'keep' is none of refuse, skip"),
        (
            {"kind": "multi_label", "train": "a.tsv", "label": "y", "separator": ""},
            "separator is empty; give what stands between labels",
        ),
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        custom.task(settings)


@pytest.mark.parametrize(
    "given", [(5, 0), (3, 3), (0,), (0, 1, 2), ("0", "5"), (0, math.inf), (math.nan, 5), (False, 5)]
)
def test_a_range_of_labels_is_two_numbers_of_which_the_second_is_larger(given):
    settings = {"kind": "regression", "train": "a.csv", "label": "y", "label_range": given}
    with pytest.raises(ValueError, match=r"label_range=\(.*\) is not \(lowest, highest\), two num"):
        custom.task(settings)
    with pytest.raises(ValueError, match=r"is for custom.kind='regression'; set it to \(\)"):
        custom.task(settings | {"kind": "classification"})


def test_without_a_range_that_of_train_counts():
    settings = {"kind": "regression", "train": "a.csv", "label": "y"}
    assert custom.task(settings).label_range is None
    assert custom.task(settings | {"label_range": [-1, 1]}).label_range == (-1.0, 1.0)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="task 'colla' is none of cola, sst2, .*custom"):
        built_in.named("colla")
