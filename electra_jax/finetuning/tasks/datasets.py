# SPDX-License-Identifier: Apache-2.0
"""A task's splits made ready: rows for batches on one side, what they are scored against on the
other, and the way back from a head's outputs to predictions.

    files -> examples -> features -> Rows (ids, marks, labels as the step reads them)
                      -> targets (classes, values, tags, texts as `scores` reads them)
    outputs of rows -> said(...) -> predictions -> scores
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import answers, question_scores, scores
from electra_jax.finetuning.tasks import custom, examples, reading
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import batches, features

_SHUFFLE = 1729  # of `data.train_examples`: the same examples for every seed


@dataclasses.dataclass(frozen=True)
class Part:
    """One split."""

    split: examples.Split
    features: features.Features
    rows: batches.Rows
    targets: Any  # None where it has no labels

    @property
    def ids(self) -> list[str]:
        """Names of its examples."""
        return [example.id for example in self.split.examples]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A task with everything that its fine-tuning reads."""

    task: task_lib.Task  # labels known
    train: Part | None
    dev: Mapping[str, Part]
    test: Mapping[str, Part]
    length: int  # the most tokens of a row
    buckets: tuple[int, ...]
    scale: tuple[float, float]  # lowest and highest label of regression: the head learns 0 to 1
    report: examples.Report

    @property
    def first_dev(self) -> str:
        """The split that chooses."""
        return next(iter(self.dev))

    @property
    def scored(self) -> dict[str, Part]:
        """Every split with labels but train: dev sets first, then test sets that have some."""
        return dict(self.dev) | {
            n: part for n, part in self.test.items() if part.targets is not None
        }

    @property
    def counts(self) -> dict[str, int]:
        """Examples by split."""
        parts = ({"train": self.train} if self.train else {}) | dict(self.dev) | dict(self.test)
        return {name: len(part.split.examples) for name, part in parts.items()}

    @property
    def fingerprint(self) -> str:
        """Changes with any token or label that is trained or scored on."""
        digest = hashlib.blake2b(digest_size=8)
        for part in (self.train, *self.dev.values(), *self.test.values()):
            for row in (*part.features.ids, *part.features.marks):
                digest.update(row.tobytes())
            digest.update(repr(np.asarray(part.targets, object).tolist()).encode())
        return digest.hexdigest()


def task_named(config: finetuning_config.Config, name: str) -> task_lib.Task:
    """A built-in task, or the one that the configuration describes."""
    if name != "custom":
        return task_lib.named(name)
    settings = dataclasses.asdict(config.custom)
    settings["quotes"] = {"": None, "on": True, "off": False}[config.custom.quotes]
    if config.custom.kind == "multi_label" and "," in config.custom.label:
        settings["label"] = [part.strip() for part in config.custom.label.split(",")]
    return custom.task(settings)


def prepare(
    config: finetuning_config.Config,
    task: task_lib.Task,
    words: vocabulary.Vocabulary,
    max_tokens: int = 0,
    pretrained_tokens: int = 0,
) -> Prepared:
    """Reads and lays out every split that is there.

    Args:
      max_tokens: the longest row that the encoder reads; 0: any.
      pretrained_tokens: places beyond are new to the encoder; 0: none are.

    Raises ValueError, one line with file and line or the remedy.
    """
    data = reading.read(task, config.data.dir, config.data.dev_share)
    task, report = data.task, data.report
    wished = config.recipe.sequence_length or task.sequence_length
    length = min(wished, max_tokens or wished)
    if length < wished:
        report.note(f"{task.name}: rows of {length} tokens and not {wished}: no more positions")
    train = data.train
    if train is None and not task.model_of:
        raise config_lib.ConfigError(
            f"task {task.name}: {config.data.dir} holds nothing to train on"
        )
    if train is not None:
        train = _fewer(train, config.data.train_examples, report)
        if task.both_orders and config.recipe.both_orders == "published":
            train = examples.both_orders(train)
            report.note(f"{task.name}: pairs train in both orders")
    scale = _scale(task, train)

    def part(split, training=False):
        made = features.make(
            task,
            split,
            words,
            length,
            report,
            training=training,
            query_length=min(config.span.query_length, max(1, length // 2)),
            stride=config.span.stride,
            without_answer=config.span.without_answer,
        )
        return Part(split, made, _rows(made, scale), _targets(task, split, made))

    trained = part(train, training=True) if train is not None else None
    dev = {name: part(split) for name, split in data.dev.items()}
    test = {name: part(split) for name, split in data.test.items()}
    lengths = np.concatenate(
        [p.rows.lengths for p in (trained, *dev.values(), *test.values()) if p is not None]
    )
    buckets = batches.buckets(lengths, length, config.recipe.batch_size, config.run.lengths)
    if pretrained_tokens and lengths.max() > pretrained_tokens:
        report.note(
            f"{task.name}: {(lengths > pretrained_tokens).sum():,} rows are longer than the"
            f" {pretrained_tokens} tokens of pre-training; places beyond are untrained"
        )
    return Prepared(task, trained, dev, test, length, buckets, scale, report)


def said(
    prepared: Prepared,
    part: Part,
    outputs: Mapping[str, Sequence[np.ndarray]],
    span: finetuning_config.Span | None = None,
) -> Any:
    """Outputs of one seed for the rows of a split -> one prediction an example.

    classification: logits [R, C]; regression: values [R]; multi_label: probabilities [R, C];
    tagging: tags of each sentence; span: `answers.Answer` of each question.
    """
    kind, task = part.features.kind, prepared.task
    if kind == "tagging":
        found = features.of_words(part.features, outputs["tags_BL"], len(part.split.examples))
        return [[task.labels[tag] for tag in tags] for tags in found]
    if kind == "span":
        return _answers(part, outputs, span)
    scores_RC = np.stack(outputs["scores_BC"]).astype(np.float64)
    if kind == "regression":
        low, high = prepared.scale
        return low + (high - low) * scores_RC[:, 0]
    return 1 / (1 + np.exp(-scores_RC)) if kind == "multi_label" else scores_RC


def decided(prepared: Prepared, said_: Any, threshold: float | None = None) -> Any:
    """Predictions as `scores` takes them."""
    kind = prepared.task.kind
    return answers.decided(said_, threshold) if kind == "span" else scores.decide(kind, said_)


def threshold(prepared: Prepared, part: Part, said_: Any) -> float | None:
    """The null score, found on this split, above which a question is left unanswered."""
    if prepared.task.kind != "span" or not prepared.task.impossible or part.targets is None:
        return None
    texts = [one.text for one in said_]
    _, f1_Q = question_scores.exact_and_f1(texts, part.targets, "2.0")
    null_Q = np.array([one.null for one in said_])
    return question_scores.best_threshold(f1_Q, texts, part.targets, null_Q).value


def in_words(prepared: Prepared, predictions: Any) -> list:
    """Predictions as files show them: labels' names."""
    labels = prepared.task.labels
    if prepared.task.kind == "classification":
        return [labels[number] for number in predictions]
    if prepared.task.kind == "multi_label":
        return [[labels[n] for n in np.flatnonzero(row)] for row in predictions]
    return list(predictions)


def _fewer(split, count, report):
    if not count or count >= len(split.examples):
        return split
    order = np.random.default_rng(_SHUFFLE).permutation(len(split.examples))[:count]
    report.note(
        f"{split.name}: {count:,} of {len(split.examples):,} examples (data.train_examples)"
    )
    return dataclasses.replace(split, examples=tuple(split.examples[n] for n in sorted(order)))


def _scale(task, train):
    """Lowest and highest label: STS-B's 0 to 5 become 0 to 1, as in the released code."""
    if task.kind != "regression":
        return 0.0, 1.0
    if task.label_range:
        return task.label_range
    found = [example.label for example in train.examples]
    low, high = min(found), max(found)
    return (low, high) if high > low else (low, low + 1)


def _rows(made, scale):
    """Labels under the names that the step reads."""
    labels = {}
    if made.kind == "span":
        spans = made.spans
        labels = {
            "start": spans.starts_R,
            "end": spans.ends_R,
            "impossible": spans.impossible_R.astype(np.float32),
            "allowed": spans.allowed,
        }
    elif made.labels is not None:
        values = made.labels
        if made.kind == "regression":
            low, high = scale
            values = ((values - low) / (high - low)).astype(np.float32)
        labels = {"tags" if made.kind == "tagging" else "label": values}
    return batches.Rows(made.ids, made.marks, labels)


def _targets(task, split, made):
    if not split.labelled:
        return None
    if made.kind == "tagging":
        return [list(example.tags) for example in split.examples]
    if made.kind == "span":
        return [[text for text, _ in example.answers] for example in split.examples]
    return made.labels


def _answers(part, outputs, span):
    spans, rows = part.features.spans, len(part.rows)
    windows = answers.Windows(part.features.example_R, spans.offsets, spans.best_context)
    if "start_BL" in outputs:
        most = max(map(len, outputs["start_BL"]))
        start_RL, end_RL = np.full((2, rows, most), -np.inf)
        allowed_RL = np.zeros((rows, most), bool)
        for row, allowed_L in enumerate(spans.allowed):
            length = len(allowed_L)
            start_RL[row, :length] = outputs["start_BL"][row][:length]
            end_RL[row, :length] = outputs["end_BL"][row][:length]
            allowed_RL[row, :length] = allowed_L
        beams = answers.plain(start_RL, end_RL, allowed_RL, best=span.n_best)
    else:
        judged = "impossible_B" in outputs
        beams = answers.Beams(
            np.stack(outputs["start_BP"]),
            np.stack(outputs["start_log_BP"]),
            np.stack(outputs["end_BPT"]),
            np.stack(outputs["end_log_BPT"]),
            np.array(outputs["impossible_B"]) if judged else None,
        )
    contexts = [example.context for example in part.split.examples]
    return answers.answer(contexts, windows, beams, n_best=span.n_best, longest=span.longest_answer)
