# SPDX-License-Identifier: Apache-2.0
"""Prepares a task's splits for training and scoring, and turns a head's outputs into predictions.

files -> examples -> features -> TaskRows (ids, marks, labels as the step reads them)
                  -> targets (classes, values, tags, texts as `scores` reads them)
outputs of rows -> decode_outputs(...) -> decide(...) -> scores
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra_jax import config as config_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import answers, question_scores, ranking_scores, scores
from electra_jax.finetuning.tasks import built_in, custom, examples, reading
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import batches, features

_SAMPLE_SEED = 1729  # seed that picks `data.train_examples`: the same examples for every training


@dataclasses.dataclass(frozen=True)
class PreparedSplit:
    """One split: its examples, their arrays, and the targets that predictions are compared with."""

    split: examples.Split
    features: features.Features
    rows: batches.TaskRows
    targets: Any  # None if the split has no labels

    @property
    def ids(self) -> list[str]:
        """The ids of its examples."""
        return [example.id for example in self.split.examples]

    @property
    def queries(self) -> list[str | None] | None:
        """The queries of its examples; None unless all are known."""
        found = [getattr(example, "query", None) for example in self.split.examples]
        return None if None in found else found


@dataclasses.dataclass(frozen=True)
class PreparedTask:
    """A task with all its splits, ready for fine-tuning."""

    task: task_lib.Task  # with its labels filled in
    train: PreparedSplit | None
    dev: Mapping[str, PreparedSplit]
    test: Mapping[str, PreparedSplit]
    length: int  # largest number of tokens in a row
    buckets: tuple[int, ...]  # the lengths that rows are padded to
    scale: tuple[float, float]  # regression: lowest and highest label; the head learns 0 to 1
    report: examples.Report

    @property
    def first_dev(self) -> str:
        """The name of the dev set that decides which settings and weights are best."""
        return next(iter(self.dev))

    @property
    def scored(self) -> dict[str, PreparedSplit]:
        """All splits with labels except train: dev sets first, then labelled test sets."""
        return dict(self.dev) | {
            n: part for n, part in self.test.items() if part.targets is not None
        }

    @property
    def counts(self) -> dict[str, int]:
        """Number of examples in each split."""
        parts = ({"train": self.train} if self.train else {}) | dict(self.dev) | dict(self.test)
        return {name: len(part.split.examples) for name, part in parts.items()}

    @property
    def fingerprint(self) -> str:
        """A hash that changes if a token, label or query that is trained or scored on changes."""
        digest = hashlib.blake2b(digest_size=8)

        for part in (self.train, *self.dev.values(), *self.test.values()):
            for row in (*part.features.ids, *part.features.marks):
                digest.update(row.tobytes())
            if spans := part.features.spans:
                for places_R in (spans.starts_R, spans.ends_R, spans.impossible_R):
                    digest.update(places_R.tobytes())
            digest.update(repr(np.asarray(part.targets, object).tolist()).encode())
            if part.queries is not None:
                digest.update(repr(part.queries).encode())

        return digest.hexdigest()


def task_named(config: finetuning_config.Config, name: str) -> task_lib.Task:
    """Returns a built-in task or, for 'custom', the one that the configuration describes."""
    if name != "custom":
        return built_in.named(name)

    settings = dataclasses.asdict(config.custom)
    settings["quotes"] = {"": None, "on": True, "off": False}[config.custom.quotes]
    if config.custom.kind == "multi_label" and "," in config.custom.label:
        columns = custom.names(config.custom.label)
        settings["label"] = columns if len(columns) > 1 else "".join(columns)
    return custom.task(settings)


def prepare(
    config: finetuning_config.Config,
    task: task_lib.Task,
    vocabulary: vocabulary_lib.Vocabulary,
    max_tokens: int = 0,
    pretrained_tokens: int = 0,
) -> PreparedTask:
    """Reads the files of a task and makes arrays of every split that exists.

    Args:
      max_tokens: the longest row that the encoder can read; 0 means any length.
      pretrained_tokens: of the longest rows of pre-training. Longer rows are new to the encoder,
        which the report mentions; 0 means that there was no pre-training.

    Raises ValueError, with file and line where there is one, if the files do not fit the task.
    """
    data = reading.read(task, config.data.dir, config.data.dev_share)
    task, report = data.task, data.report

    length, wanted = row_length(config, task, max_tokens), row_length(config, task)
    if length < wanted:
        report.note(
            f"{task.name}: rows of {length} tokens instead of {wanted}: the encoder has no more"
            " positions"
        )

    # The scale comes from train alone, so that dev and test labels cannot influence training.
    train = None
    if data.train is not None:
        train = _train_split(config, task, data.train, report)
    scale = _scale(task, train)

    def part(split, training=False):
        return prepare_split(config, task, split, vocabulary, length, scale, report, training)

    trained = part(train, training=True) if train is not None else None
    if trained is not None:
        _check_trainable(task, trained)
    dev = {name: part(split) for name, split in data.dev.items()}
    test = {name: part(split) for name, split in data.test.items()}

    lengths = np.concatenate(
        [p.rows.lengths for p in (trained, *dev.values(), *test.values()) if p is not None]
    )
    buckets = batches.buckets(lengths, length, config.recipe.batch_size, config.run.lengths)
    if pretrained_tokens and lengths.max() > pretrained_tokens:
        # An encoder without a table of positions reads rows of any length.
        effect = "tokens so far from each other are new to it"
        if max_tokens:
            effect = "positions beyond have their initial values"
        report.note(
            f"{task.name}: {(lengths > pretrained_tokens).sum():,} rows are longer than the"
            f" {pretrained_tokens} tokens of pre-training; {effect}"
        )

    return PreparedTask(task, trained, dev, test, length, buckets, scale, report)


def row_length(config: finetuning_config.Config, task: task_lib.Task, max_tokens: int = 0) -> int:
    """The tokens of the longest row: as the recipe or the task says, and up to `max_tokens`.

    Args:
      max_tokens: the longest row that the encoder can read; 0 means any length.
    """
    wanted = config.recipe.sequence_length or task.sequence_length
    return min(wanted, max_tokens or wanted)


def prepare_split(
    config: finetuning_config.Config,
    task: task_lib.Task,
    split: examples.Split,
    vocabulary: vocabulary_lib.Vocabulary,
    length: int,
    scale: tuple[float, float],
    report: examples.Report,
    training: bool = False,
) -> PreparedSplit:
    """Makes arrays of one split.

    Args:
      length: the longest row, in tokens.
      scale: as `PreparedTask.scale`.
      report: is told what was cut or left out.
      training: whether the split is trained on, as `features.make` has it.
    """
    made = features.make(
        task,
        split,
        vocabulary,
        length,
        report,
        training=training,
        # A question takes at most half of the row; the text gets the rest.
        query_length=min(config.span.query_length, max(1, length // 2)),
        stride=config.span.stride,
        without_answer=config.span.without_answer,
    )
    return PreparedSplit(split, made, _rows(made, scale), _targets(split, made))


def _check_trainable(task, trained):
    """Raises ConfigError if no question has an answer that can be trained on."""
    split = trained.split
    if not len(trained.rows):
        raise config_lib.ConfigError(
            f"task {task.name}: none of {len(split.examples):,} questions in"
            f" {', '.join(split.files)} has an answer that stands in its context and fits a window;"
            " look at the answers there"
        )


def _train_split(config, task, train, report):
    """The examples to train on, as the recipe wants them."""
    train = _sample_of(train, config.data.train_examples, report)
    if task.both_orders and config.recipe.both_orders == "published":
        train = examples.both_orders(train)
        report.note(f"{task.name}: pairs train in both orders")
    return train


def decode_outputs(
    prepared: PreparedTask,
    part: PreparedSplit,
    outputs: Mapping[str, Sequence[np.ndarray]],
    span: finetuning_config.Span | None = None,
) -> Any:
    """Turns the outputs of one seed for the rows of a split into one prediction per example.

    Returns logits [R, C] for classification, values [R] for regression, probabilities [R, C] for
    multi_label, the tags of each sentence for tagging, and an `answers.Answer` per question for
    span. Nothing is decided yet: see `decide`.
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


def decide(prepared: PreparedTask, predictions: Any, threshold: float | None = None) -> Any:
    """Turns predictions into decisions that `scores` compares with targets: classes, labels, texts.

    With a threshold, a question whose null score is above it is left unanswered.
    """
    kind = prepared.task.kind
    if kind == "span":
        return answers.decided(predictions, threshold)
    return scores.decide(kind, predictions)


def ranked(
    prepared: PreparedTask, part: PreparedSplit, predictions: Any
) -> list[ranking_scores.Ranked] | None:
    """Returns each candidate with its score and its query, as metrics of rankings read them.

    Of two classes the score is the logit of the second less that of the first: probabilities near 1
    would be equal. None if no metric of the task is of rankings, or the queries are not known.
    """
    if not prepared.task.ranking_metrics or part.queries is None:
        return None
    scores_R = predictions
    if prepared.task.kind == "classification":
        scores_R = predictions[:, 1] - predictions[:, 0]
    return list(map(ranking_scores.Ranked, scores_R.tolist(), part.queries))


def best_threshold(prepared: PreparedTask, part: PreparedSplit, predictions: Any) -> float | None:
    """Finds on this split the null score above which a question is best left unanswered.

    Returns None if the task has no unanswerable questions or the split has no labels.
    """
    if prepared.task.kind != "span" or not prepared.task.impossible or part.targets is None:
        return None

    texts = [one.text for one in predictions]
    _, f1_Q = question_scores.exact_and_f1(texts, part.targets, "2.0")
    null_Q = np.array([one.null for one in predictions])
    return question_scores.best_threshold(f1_Q, texts, part.targets, null_Q).value


def label_names(prepared: PreparedTask, predictions: Any) -> list:
    """Returns predictions as files show them, with the names of labels instead of numbers."""
    labels = prepared.task.labels
    if prepared.task.kind == "classification":
        return [labels[number] for number in predictions]
    if prepared.task.kind == "multi_label":
        return [[labels[n] for n in np.flatnonzero(row)] for row in predictions]
    return list(predictions)


def _sample_of(split, count, report):
    if not count or count >= len(split.examples):
        return split

    order = np.random.default_rng(_SAMPLE_SEED).permutation(len(split.examples))[:count]
    report.note(
        f"{split.name}: {count:,} of {len(split.examples):,} examples (data.train_examples)"
    )
    # In the order of the file: training shuffles by itself.
    return dataclasses.replace(split, examples=tuple(split.examples[n] for n in sorted(order)))


def _scale(task, train):
    """Returns the lowest and highest label, which become 0 and 1 for the head.

    The released code scales the 0 to 5 of STS-B in the same way.
    """
    if task.kind != "regression":
        return 0.0, 1.0
    if task.label_range:
        return task.label_range
    found = [example.label for example in train.examples]
    low, high = min(found), max(found)
    # If all labels are equal, any width will do; 0 would divide by zero.
    return (low, high) if high > low else (low, low + 1)


def _rows(made, scale):
    """Returns ids, marks and labels, the labels under the names that the step reads."""
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

    return batches.TaskRows(made.ids, made.marks, labels)


def _targets(split, made):
    """Returns what predictions of a split are compared with; None without labels."""
    if not split.labelled:
        return None
    if made.kind == "tagging":
        return [list(example.tags) for example in split.examples]
    if made.kind == "span":
        return [[text for text, _ in example.answers] for example in split.examples]
    return made.labels


def _answers(part, outputs, span):
    """Returns an `answers.Answer` per question, from the outputs of a joint or a plain head."""
    spans, rows = part.features.spans, len(part.rows)
    windows = answers.Windows(part.features.example_R, spans.offsets, spans.best_context)

    if "start_BL" in outputs:  # the plain head: one score per token
        # Batches have different lengths; -inf fills the rest, so that it is never chosen.
        most = max(map(len, outputs["start_BL"]))
        start_RL, end_RL = np.full((2, rows, most), -np.inf)
        allowed_RL = np.zeros((rows, most), bool)
        for row, allowed_L in enumerate(spans.allowed):
            length = len(allowed_L)
            start_RL[row, :length] = outputs["start_BL"][row][:length]
            end_RL[row, :length] = outputs["end_BL"][row][:length]
            allowed_RL[row, :length] = allowed_L
        beams = answers.plain(start_RL, end_RL, allowed_RL, best=span.n_best)
    else:  # the joint head: a beam of starts, each with a beam of ends
        # A row that is shorter than the beam has fewer starts; -inf stands for the others.
        judged = "impossible_B" in outputs
        beams = answers.Beams(
            _stacked(outputs["start_BP"], 0),
            _stacked(outputs["start_log_BP"], -np.inf),
            _stacked(outputs["end_BPT"], 0),
            _stacked(outputs["end_log_BPT"], -np.inf),
            np.array(outputs["impossible_B"]) if judged else None,
        )

    contexts = [example.context for example in part.split.examples]
    return answers.answer(contexts, windows, beams, n_best=span.n_best, longest=span.longest_answer)


def _stacked(rows, fill):
    """Arrays of one number of dimensions as one array; the smaller ones end in `fill`."""
    shape = np.max([row.shape for row in rows], axis=0)
    found = np.full((len(rows), *shape), fill, rows[0].dtype)
    for at, row in zip(found, rows):
        at[tuple(map(slice, row.shape))] = row
    return found
