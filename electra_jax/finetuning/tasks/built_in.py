# SPDX-License-Identifier: Apache-2.0
"""The tasks that are built in: GLUE, SQuAD, chunking, named entities, two corpora of NLTK.

    TASKS['cola']  ->  Task(kind='classification', labels=('0', '1'), main='mcc', ...)

Sources: file names and columns of GLUE are those of the official files (gluebenchmark.com); epochs
and both orders are from table 7 of the paper and configure_finetuning.py of
google-research/electra; main metrics are from section 3.1 of the paper.
"""

import dataclasses

from electra_jax.finetuning.tasks.task import METRICS, REGRESSION_METRICS, SplitFiles, Task


def named(name: str) -> Task:
    """Returns a built-in task. Raises ValueError with the known names if there is none."""
    if name not in TASKS:
        raise ValueError(
            f"task {name!r} is none of {', '.join(TASKS)}; your own: configs/finetune_custom.py"
        )
    return TASKS[name]


def _glue(name, folder, labels, files, tfds, metrics=("accuracy",), **others):
    """Returns a task of GLUE.

    `folder` is where its official files are, `files` their sources, and `tfds` the names of the
    fields (a, b) in TFDS.
    """
    a, b = tfds
    splits = {  # where TFDS has other names
        "dev": "validation",
        "dev_matched": "validation_matched",
        "dev_mismatched": "validation_mismatched",
    }
    return Task(
        name=name,
        kind=others.pop("kind", "classification"),
        metrics=metrics,
        main=others.pop("main", metrics[0]),
        labels=labels,
        folders=(folder, folder.lower(), f"glue/{folder}", f"{folder}.zip/{folder}"),
        files=files,
        tfds={
            split: SplitFiles(
                files=(f"tfds:glue/{name}:{splits.get(split, split)}",),
                a=a,
                b=b,
                label=None if split.startswith("test") else "label",
                id="idx",
            )
            for split in files
        },
        **others,
    )


def _tables(a, b, label, identity="index", **others) -> dict[str, SplitFiles]:
    """Returns sources for train.tsv, dev.tsv and test.tsv with a header, as most of GLUE has."""
    labelled = SplitFiles(("",), a=a, b=b, label=label, **others)
    found = {
        split: dataclasses.replace(labelled, files=(f"{split}.tsv",)) for split in ("train", "dev")
    }
    return found | {"test": SplitFiles(("test.tsv",), a=a, b=b, id=identity)}


def _mnli() -> dict[str, SplitFiles]:
    """Returns the sources of MNLI, which has two dev sets and two test sets."""
    labelled = SplitFiles(
        ("train.tsv",), a="sentence1", b="sentence2", label="gold_label", id="index"
    )
    found = {"train": labelled}
    for split, label in (("dev", "gold_label"), ("test", None)):
        for part in ("matched", "mismatched"):
            found[f"{split}_{part}"] = dataclasses.replace(
                labelled, files=(f"{split}_{part}.tsv",), label=label
            )
    return found


def _squad(name, version, **others) -> Task:
    """Returns SQuAD 1.1 or 2.0; TFDS has no test set for either."""
    return Task(
        name=name,
        kind="span",
        metrics=METRICS["span"] if others.get("impossible") else METRICS["span"][:2],
        main="span_f1",
        folders=("", name, "squad", "qa"),
        files={
            split: SplitFiles((f"{split}-v{version}.json",), format="squad")
            for split in ("train", "dev", "test")
        },
        tfds={
            split: SplitFiles((f"tfds:squad/v{version}:{part}",), format="squad")
            for split, part in (("train", "train"), ("dev", "validation"))
        },
        epochs=2,
        sequence_length=512,
        **others,
    )


def _tagging(name, folders, files) -> Task:
    """Returns a tagging task whose files hold the word first and the tag last in each line."""
    return Task(
        name=name,
        kind="tagging",
        metrics=METRICS["tagging"][:2],
        main="entity_f1",
        folders=folders,
        files={
            split: SplitFiles((found,), a=0, label=-1, format="conll")
            for split, found in files.items()
        },
        sequence_length=256,
    )


def _two_files(name, folder, classes, encoding) -> Task:
    """Returns a task of two files, one for each class, that has no official split."""
    files = tuple(f"{file}={label}" for file, label in classes)
    return Task(
        name=name,
        kind="classification",
        metrics=("accuracy",),
        main="accuracy",
        labels=tuple(label for _, label in classes),
        folders=_nltk(folder),
        files={"train": SplitFiles(files, format="lines", encoding=encoding)},
    )


def _nltk(name):
    """Returns the folders where NLTK's download of a corpus may be, as a zip file or unpacked."""
    archive = f"{name}.zip/{name}"
    return (archive, name, f"nltk/{archive}", f"nltk/{name}", f"corpora/{archive}")


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_INFERENCE = ("entailment", "neutral", "contradiction")

_ALL = (
    _glue(
        "cola",
        "CoLA",
        _BINARY,
        {  # train and dev have no header; test has one, and other columns
            "train": SplitFiles(("train.tsv",), a=3, label=1, header=False),
            "dev": SplitFiles(("dev.tsv",), a=3, label=1, header=False),
            "test": SplitFiles(("test.tsv",), a="sentence", id="index"),
        },
        ("sentence", None),
        metrics=("mcc", "accuracy"),
    ),
    _glue("sst2", "SST-2", _BINARY, _tables("sentence", None, "label"), ("sentence", None)),
    _glue(
        "mrpc",
        "MRPC",
        _BINARY,
        _tables("#1 String", "#2 String", "Quality"),
        _PAIR,
        metrics=("accuracy", "f1"),
        both_orders=True,
    ),
    _glue(
        "stsb",
        "STS-B",
        (),
        _tables(*_PAIR, "score", id="index"),
        _PAIR,
        kind="regression",
        metrics=REGRESSION_METRICS,
        label_range=(0.0, 5.0),
        both_orders=True,
        epochs=10,
    ),
    _glue(
        "qqp",
        "QQP",
        _BINARY,
        # A few rows of the official train file are damaged; it is common to skip them.
        _tables("question1", "question2", "is_duplicate", "id", id="id", odd_rows="skip"),
        ("question1", "question2"),
        metrics=("accuracy", "f1"),
    ),
    _glue("mnli", "MNLI", _INFERENCE, _mnli(), ("premise", "hypothesis")),
    _glue(
        "qnli",
        "QNLI",
        _ENTAILMENT,
        _tables("question", "sentence", "label", id="index"),
        ("question", "sentence"),
    ),
    _glue("rte", "RTE", _ENTAILMENT, _tables(*_PAIR, "label", id="index"), _PAIR, epochs=10),
    _glue("wnli", "WNLI", _BINARY, _tables(*_PAIR, "label", id="index"), _PAIR),
    dataclasses.replace(
        _glue(
            "ax",
            "diagnostic",
            _INFERENCE,
            {"test": SplitFiles(("diagnostic.tsv",), a=_PAIR[0], b=_PAIR[1], id="index")},
            ("premise", "hypothesis"),
            metrics=("mcc", "accuracy"),
            model_of="mnli",
        ),
        folders=("diagnostic", "AX", "glue/diagnostic", "glue/AX", "MNLI", "."),
    ),
    _squad("squad", "1.1"),
    _squad("squad2", "2.0", impossible=True),
    _tagging(
        "chunking",  # CoNLL-2000
        (*_nltk("conll2000"), "chunking", ""),
        {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"},
    ),
    _tagging(
        "ner",  # CoNLL-2003
        ("", "ner", "conll2003"),
        {
            "train": "eng.train|train.txt|train.conll",
            "dev": "eng.testa|valid.txt|dev.txt|dev.conll",
            "test": "eng.testb|test.txt|test.conll",
        },
    ),
    _tagging(
        "wnut17",
        ("wnut17", "ner/wnut17", ""),
        {
            "train": "wnut17train.conll",
            "dev": "emerging.dev.conll",
            "test": "emerging.test.annotated",
        },
    ),
    *(
        _tagging(
            f"wikiann_{language}",
            ("wikiann", "ner/wikiann", language, ""),
            {
                split: f"{language}.{split}|{language}/{split}|{split}"
                for split in ("train", "dev", "test")
            },
        )
        for language in ("en", "de", "fr", "nl")
    ),
    _two_files(
        "subjectivity",
        "subjectivity",
        (("quote.tok.gt9.5000", "subjective"), ("plot.tok.gt9.5000", "objective")),
        "latin-1",
    ),
    _two_files(
        "sentence_polarity",
        "sentence_polarity",
        (("rt-polarity.neg", "negative"), ("rt-polarity.pos", "positive")),
        "utf-8",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}
