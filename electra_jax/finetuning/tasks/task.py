# SPDX-License-Identifier: Apache-2.0
"""What a task is: its kind, where its splits are and what stands where in them, how it is scored.

    TASKS['cola']      Task(kind='classification', labels=('0', '1'), main='mcc', ...)
      .files           {'train': Source(('train.tsv',), a=3, label=1, header=False), ...}
      .tfds            {'train': Source(('tfds:glue/cola:train',), a='sentence', ...), ...}

`custom.py` makes one of ten lines of a configuration. Facts of GLUE: the official files
(gluebenchmark.com). Epochs and both orders: the paper, table 7, and configure_finetuning.py of
google-research/electra. Main metrics: the paper, section 3.1.
"""

import dataclasses
from collections.abc import Mapping

KINDS = ("classification", "regression", "multi_label", "tagging", "span")
METRICS = {  # that fit each kind
    "classification": ("accuracy", "f1", "macro_f1", "micro_f1", "mcc"),
    "regression": ("spearman", "pearson", "mse"),
    "multi_label": ("micro_f1", "macro_f1", "accuracy"),
    "tagging": ("entity_f1", "token_accuracy", "entity_precision", "entity_recall"),
    "span": (
        "span_f1",
        "exact_match",
        "has_answer_exact_match",
        "has_answer_f1",
        "no_answer_accuracy",
    ),
}
TEXT_FORMATS = ("tsv", "csv", "jsonl", "lines", "label_first")  # of texts with labels
FORMATS = (*TEXT_FORMATS, "conll", "squad")

Column = str | int  # a name in the header or a field of JSON; else a number, from 0


@dataclasses.dataclass(frozen=True)
class Source:
    """Where one split is, and what stands where in it.

    files: names, globs, members of zip archives (`x.zip/train.txt`), `tfds:NAME:SPLIT`; all are
    read, in this order; `this|that` is the first of the two that is there; `=label` behind a name
    gives all its lines that label (format 'lines'); in format 'label_first' a line is a label, a
    blank and the text.
    """

    files: tuple[str, ...]
    a: Column = 0  # the text; of tagging the words
    b: Column | None = None  # the second text of a pair
    label: Column | tuple[Column, ...] | None = None  # several: one column of 0 and 1 a label
    id: Column | None = None  # else rows count from 0
    format: str = ""  # one of FORMATS; else by the file's ending
    header: bool = True  # a first line that names the columns
    quotes: bool | None = None  # "..." round a cell; else: in CSV, not in TSV
    separator: str = ","  # between the labels of one cell
    odd_rows: str = "refuse"  # or 'skip': rows with another number of cells
    encoding: str = "utf-8"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as it is known before any file is read."""

    name: str
    kind: str
    metrics: tuple[str, ...]
    main: str  # the metric that chooses and that tables show
    files: Mapping[str, Source] = dataclasses.field(hash=False)  # by split
    labels: tuple[str, ...] = ()  # none: taken from the train split
    folders: tuple[str, ...] = ("",)  # in the data folder; the first that holds any of the files
    tfds: Mapping[str, Source] = dataclasses.field(default_factory=dict, hash=False)
    epochs: int = 3
    both_orders: bool = False  # train on every pair the other way round too
    sequence_length: int = 128
    label_range: tuple[float, float] | None = None  # of regression
    impossible: bool = False  # span: there may be questions without an answer
    model_of: str = ""  # the task whose trained model answers this one

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Names of its dev sets; without one, part of train becomes 'dev'."""
        found = tuple(name for name in self.files if name.startswith("dev"))
        return found or (("dev",) if "train" in self.files else ())

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names of its test sets."""
        return tuple(name for name in self.files if name.startswith("test"))

    @property
    def pairs(self) -> bool:
        """Whether an example is two texts."""
        return any(source.b is not None for source in self.files.values())


def named(name: str) -> Task:
    """A task that is built in. Raises ValueError with the names there are."""
    if name not in TASKS:
        raise ValueError(
            f"task {name!r} is none of {', '.join(TASKS)}; your own: configs/finetune_custom.py"
        )
    return TASKS[name]


def _glue(name, folder, labels, files, tfds, metrics=("accuracy",), **others):
    """A task of GLUE: its folder, (a, b, label) in TFDS and the sources of its official files."""
    a, b = tfds
    splits = {
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
            split: Source(
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


def _tables(a, b, label, identity="index", **others) -> dict[str, Source]:
    """train.tsv, dev.tsv and test.tsv with a header, as most of GLUE's are."""
    labelled = Source(("",), a=a, b=b, label=label, **others)
    found = {
        split: dataclasses.replace(labelled, files=(f"{split}.tsv",)) for split in ("train", "dev")
    }
    return found | {"test": Source(("test.tsv",), a=a, b=b, id=identity)}


def _mnli() -> dict[str, Source]:
    labelled = Source(("train.tsv",), a="sentence1", b="sentence2", label="gold_label", id="index")
    found = {"train": labelled}
    for split, label in (("dev", "gold_label"), ("test", None)):
        for part in ("matched", "mismatched"):
            found[f"{split}_{part}"] = dataclasses.replace(
                labelled, files=(f"{split}_{part}.tsv",), label=label
            )
    return found


def _squad(name, version, **others) -> Task:
    return Task(
        name=name,
        kind="span",
        metrics=METRICS["span"] if others.get("impossible") else METRICS["span"][:2],
        main="span_f1",
        folders=("", name, "squad", "qa"),
        files={
            split: Source((f"{split}-v{version}.json",), format="squad")
            for split in ("train", "dev", "test")
        },
        tfds={
            split: Source((f"tfds:squad/v{version}:{part}",), format="squad")
            for split, part in (("train", "train"), ("dev", "validation"))
        },
        epochs=2,
        sequence_length=512,
        **others,
    )


def _tagging(name, folders, files) -> Task:
    return Task(
        name=name,
        kind="tagging",
        metrics=METRICS["tagging"][:2],
        main="entity_f1",
        folders=folders,
        files={
            split: Source((found,), a=0, label=-1, format="conll") for split, found in files.items()
        },
        sequence_length=256,
    )


def _two_files(name, folder, classes, encoding) -> Task:
    """A set of two files, one for each class; nobody split it."""
    files = tuple(f"{file}={label}" for file, label in classes)
    return Task(
        name=name,
        kind="classification",
        metrics=("accuracy",),
        main="accuracy",
        labels=tuple(label for _, label in classes),
        folders=_nltk(folder),
        files={"train": Source(files, format="lines", encoding=encoding)},
    )


def _nltk(name):
    """Where a corpus of NLTK may lie in the data folder, packed or not."""
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
        {  # train and dev have no header, test has one and other columns
            "train": Source(("train.tsv",), a=3, label=1, header=False),
            "dev": Source(("dev.tsv",), a=3, label=1, header=False),
            "test": Source(("test.tsv",), a="sentence", id="index"),
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
        metrics=METRICS["regression"],
        label_range=(0.0, 5.0),
        both_orders=True,
        epochs=10,
    ),
    _glue(
        "qqp",
        "QQP",
        _BINARY,
        # A few rows of the official train file are torn; everybody leaves them out.
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
            {"test": Source(("diagnostic.tsv",), a=_PAIR[0], b=_PAIR[1], id="index")},
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
