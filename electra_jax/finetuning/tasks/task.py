# SPDX-License-Identifier: Apache-2.0
"""What a task is: its kind, the files and columns of its splits, its metrics.

    Task(kind='classification', labels=('0', '1'), main='mcc', ...)
      .files           {'train': SplitFiles(('train.tsv',), a=3, label=1, header=False), ...}
      .tfds            {'train': SplitFiles(('tfds:glue/cola:train',), a='sentence', ...), ...}

`built_in.py` holds the tasks of the paper and some more; `custom.py` makes a task from a few lines
of a configuration.
"""

import dataclasses
from collections.abc import Mapping

KINDS = ("classification", "regression", "multi_label", "tagging", "span")
RANKING_METRICS = ("ndcg_at_10", "mrr_at_10", "map")  # within the candidates of each query
CLASSIFICATION_METRICS = ("accuracy", "f1", "macro_f1", "micro_f1", "relation_f1", "mcc")
REGRESSION_METRICS = ("spearman", "pearson", "mse")
METRICS = {  # the metrics that fit each kind
    "classification": (*CLASSIFICATION_METRICS, *RANKING_METRICS),
    "regression": (*REGRESSION_METRICS, *RANKING_METRICS),
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
FORMATS = {  # by the kind of the task; a file whose ending tells none has the first
    "tagging": ("conll", "jsonl", "parquet"),
    "span": ("squad", "parquet"),
}
TEXT_FORMATS = ("tsv", "csv", "jsonl", "parquet", "lines", "label_first")  # for all other kinds

Column = str | int  # a name in the header, a field of JSON, or a number from 0


@dataclasses.dataclass(frozen=True)
class SplitFiles:
    """The files of one split and the meaning of their columns.

    `files` holds names, globs, members of zip archives (`x.zip/train.txt`), `hf:OWNER/NAME:SPLIT`
    or `tfds:NAME:SPLIT`. All are read, in this order. `this|that` means the first of the two that
    exists. In the format 'lines', a name may end in `=label`, which becomes the label of all its
    lines. In the format 'label_first', a line is a label, a space and the text.
    """

    files: tuple[str, ...]
    a: Column = 0  # the text; for tagging, the words
    b: Column | None = None  # the second text of a pair
    label: Column | tuple[Column, ...] | None = None  # a tuple: one column of 0 and 1 per label
    id: Column | None = None  # None: rows are numbered from 0
    query: Column | None = None  # rows with the same value are candidates of one query
    format: str = ""  # of TEXT_FORMATS or FORMATS; "": by file extension
    header: bool = True  # the first line names the columns
    quotes: bool | None = None  # cells may be enclosed in "..."; None: yes in CSV, no in TSV
    separator: str = ","  # between several labels in one cell
    odd_rows: str = "refuse"  # rows with another number of cells; or 'skip'
    encoding: str = "utf-8"


@dataclasses.dataclass(frozen=True)
class Task:
    """All that is known about a task before its files are read."""

    name: str
    kind: str
    metrics: tuple[str, ...]
    main: str  # the metric that selects settings and that tables show
    files: Mapping[str, SplitFiles] = dataclasses.field(hash=False)  # by split
    labels: tuple[str, ...] = ()  # (): taken from the train split
    folders: tuple[str, ...] = ("",)  # in the data folder; the first that holds any file is used
    tfds: Mapping[str, SplitFiles] = dataclasses.field(default_factory=dict, hash=False)
    epochs: int = 3
    both_orders: bool = False  # also train on every pair with its texts swapped
    sequence_length: int = 128
    label_range: tuple[float, float] | None = None  # regression: lowest and highest label
    impossible: bool = False  # span: some questions may have no answer
    model_of: str = ""  # the task whose fine-tuned model is used for this one

    @property
    def pairs(self) -> bool:
        """Whether an example consists of two texts."""
        return any(source.b is not None for source in self.files.values())

    @property
    def has_queries(self) -> bool:
        """Whether an example is a candidate of a query."""
        return any(source.query is not None for source in self.files.values())

    @property
    def ranking_metrics(self) -> tuple[str, ...]:
        """Those of its metrics that rank the candidates of each query."""
        return tuple(metric for metric in self.metrics if metric in RANKING_METRICS)
