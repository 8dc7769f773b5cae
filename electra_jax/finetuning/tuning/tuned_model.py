# SPDX-License-Identifier: Apache-2.0
"""A fine-tuned task as a function of new texts.

    WORKDIR/finetune/NAME/TASK, or an export of it for orbax  ->  load  ->  Model
    texts, files  ->  examples  ->  features, batches  ->  outputs  ->  labels with scores, values,
                                                                       answers

It is the model that the results report: the best seed on dev. `export.open` reads it, and the texts
go the way of a test set, so both say the same.
"""

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.finetuning.results import label_scores, ranking_scores
from electra_jax.finetuning.tasks import examples, new_files, running_text
from electra_jax.finetuning.tasks import task as task_lib
from electra_jax.finetuning.tuning import (
    batches,
    datasets,
    encoders,
    export,
    loop,
    tuning_step,
)
from electra_jax.host import cluster, compile_cache, safe_files
from electra_jax.weights import encoding

_BLOCK = 1024  # examples whose rows and outputs are in memory at once
_FEW_ROWS = (2, 8)  # for so few one is compiled, so that a single text does not take a whole batch


@dataclasses.dataclass(frozen=True)
class Block:
    """Some examples of a split, and what the model says of each."""

    examples: Sequence[examples.Example]
    answers: Sequence[Any]  # as `Model` returns them
    decided: Any  # the same as `scores` reads it
    targets: Any  # what it is compared with; None if there are no labels
    ranked: Sequence[ranking_scores.Ranked] | None  # None if nothing is ranked by queries


@dataclasses.dataclass(frozen=True)
class Model:
    """Answers new texts; `task` says of which kind, and with which labels."""

    tuned: export.TunedNetwork
    task: task_lib.Task

    def __call__(self, texts: Iterable, seconds: Iterable[str] | None = None) -> list[Any]:
        """Returns an answer for each text.

        Args:
          texts: for tagging, sentences as lists of words, each a list within the list, or running
            text, in which `tasks.running_text` finds them; for questions, the questions; for all
            others, texts.
          seconds: the second text of each pair; for questions, the texts with the answers.

        Returns, by the kind of the task:
          classification: {'label': NAME, 'scores': {NAME: probability}}.
          multi_label: {'labels': [NAME, ...], 'scores': {NAME: probability}}.
          regression: a number on the scale of the labels of train, not held to their range.
          tagging: a tag for each word; of running text {'words': [WORD, ...], 'tags': [TAG, ...]}
            and, if the task's metrics are of entities, 'entities': [{'label', 'text', 'start',
            'end'}, ...], where text[start:end] is the entity.
          span: the answer as it stands in the text; '' if there is none.

        Raises ConfigError, one line, if the texts are not such as the task has.
        """
        split = examples.Split("test", tuple(self._examples(texts, seconds)), ())
        return list(self.answers(split, examples.Report()))

    def read(self, path: str, report: examples.Report) -> examples.Split:
        """The examples in a file, without labels; `new_files.read_new` says how it is read.

        Raises ValueError, one line, if the file is not such as the task has.
        """
        return new_files.read_new(self.task, path, report)

    def read_running_text(self, path: str, report: examples.Report) -> examples.Split:
        """The lines of a file as running text; see `new_files.read_running_text`.

        Raises ValueError, one line, if the task tags no words or the file holds records or no text.
        """
        return new_files.read_running_text(self.task, path, report)

    def read_labelled(self, path: str, report: examples.Report) -> examples.Split:
        """The examples in a file with their labels; see `new_files.read_labelled`.

        Raises ValueError, one line, if the file is not such as the task has, or lacks labels.
        """
        return new_files.read_labelled(self.task, path, report)

    def answers(self, split: examples.Split, report: examples.Report) -> Iterator[Any]:
        """An answer for each example as `__call__` has it, while the next ones still wait."""
        for block in self.blocks(split, report):
            yield from block.answers

    def blocks(self, split: examples.Split, report: examples.Report) -> Iterator[Block]:
        """The same in blocks, with what is needed to score them."""
        for first in range(0, len(split.examples), _BLOCK):
            part = tuple(split.examples[first : first + _BLOCK])
            prepared = self._prepared(dataclasses.replace(split, examples=part), report)
            predictions, decided = self._predict(prepared)
            answers = self._answers(part, predictions, datasets.label_names(prepared, decided))
            ranked = datasets.ranked(prepared, prepared.test["test"], predictions)
            yield Block(part, answers, decided, prepared.test["test"].targets, ranked)

    def _predict(self, prepared) -> tuple[Any, Any]:
        """(the predictions of `datasets.decode_outputs`, what `datasets.decide` makes of them)."""
        part, config = prepared.test["test"], self.tuned.settings
        (outputs,) = loop.predict(
            self._programs,
            self._params,
            part.rows,
            prepared.buckets,
            self._rows_at_once(len(part.rows)) // loop.EVALUATION_ROWS,
            self.tuned.encoder.vocabulary.pad_id,
        )
        predictions = datasets.decode_outputs(prepared, part, outputs, config.span)
        return predictions, datasets.decide(prepared, predictions, self._threshold)

    def _rows_at_once(self, rows):
        """How many rows are computed together where there are so many."""
        most = self.tuned.settings.micro_batch_size * loop.EVALUATION_ROWS
        if self.task.kind == "span":
            # The threshold of no answer is the null score of a question, and programs of other
            # shapes round that differently.
            return most
        return min([count for count in (*_FEW_ROWS, most) if rows <= count <= most], default=most)

    def _examples(self, texts, seconds):
        """The texts as unlabelled examples of this kind."""
        kind, name = self.task.kind, self.task.name
        two = kind == "span" or self.task.pairs
        if two != (seconds is not None):
            takes = "two lists of texts" if two else "one list of texts"
            raise config_lib.ConfigError(f"task {name} takes {takes}; call it with as many")
        texts = encoding.listed("texts", texts, config_lib.ConfigError)
        if seconds is not None:
            seconds = encoding.listed("seconds", seconds, config_lib.ConfigError)
        if seconds is not None and len(texts) != len(seconds):
            raise config_lib.ConfigError(
                f"{len(texts)} texts and {len(seconds)} second texts cannot be paired"
            )

        if kind == "tagging":
            found = [_sentence(number, sentence) for number, sentence in enumerate(texts)]
            _check_not_one_sentence(texts, found)
            return found
        encoding.check_strings("texts", texts, config_lib.ConfigError)
        encoding.check_strings("seconds", seconds or (), config_lib.ConfigError)
        if kind == "span":
            return [
                examples.QuestionExample(str(n), question, context)
                for n, (question, context) in enumerate(zip(texts, seconds))
            ]
        others = [None] * len(texts) if seconds is None else seconds
        return [
            examples.TextExample(str(n), text, second)
            for n, (text, second) in enumerate(zip(texts, others))
        ]

    def _prepared(self, split, report) -> datasets.PreparedTask:
        """The task with these examples as its test set."""
        config, found = self.tuned.settings, self.tuned.encoder
        length = datasets.row_length(config, self.task, found.networks.max_positions)
        scale = tuple(self.tuned.about["scale"])
        part = datasets.prepare_split(
            config, self.task, split, found.vocabulary, length, scale, report
        )
        lengths = batches.buckets(
            part.rows.lengths, length, config.recipe.batch_size, config.run.lengths
        )
        return datasets.PreparedTask(
            self.task, None, {}, {"test": part}, length, lengths, scale, report
        )

    def _answers(self, part, predictions, named):
        """The answers to some examples in the form that `__call__` returns."""
        kind, labels = self.task.kind, self.task.labels
        if kind == "classification":
            return [
                {"label": name, "scores": dict(zip(labels, row))}
                for name, row in zip(named, jax.nn.softmax(predictions).tolist())
            ]
        if kind == "multi_label":
            return [
                {"labels": names, "scores": dict(zip(labels, row))}
                for names, row in zip(named, predictions.tolist())
            ]
        if kind == "tagging":
            return [self._of_sentence(*one) for one in zip(part, named)]
        return [float(value) for value in named] if kind == "regression" else named

    def _of_sentence(self, example, tags):
        """The tags of a sentence; of running text its words and entities too."""
        if example.text is None:
            return tags
        found = {"words": list(example.words), "tags": tags}
        if any(metric.startswith("entity_") for metric in self.task.metrics):
            found["entities"] = _entities(example.text, tags)
        return found

    @property
    def _threshold(self):
        """The null score above which a question is left unanswered; None if all have answers."""
        seed = self.tuned.about["seed"]
        (record,) = (one for one in self.tuned.records if one["seed"] == seed)
        return record["threshold"]

    @functools.cached_property
    def _mesh(self):
        return meshes.make_mesh(1, devices=jax.devices()[:1])

    @functools.cached_property
    def _programs(self):
        tuned = self.tuned
        setup = tuning_step.Setup(
            networks=encoders.networks_of(tuned.settings, tuned.encoder, self._mesh),
            head=tuned.head_config,
            kind=self.task.kind,
            pad_id=tuned.encoder.vocabulary.pad_id,
        )
        return tuning_step.programs(setup, self._mesh)

    @functools.cached_property
    def _params(self):
        """The weights, with a dimension for the only seed."""
        return jax.tree.map(lambda leaf: leaf[None], self.tuned.params)


def load(path: str | os.PathLike) -> Model:
    """Opens the folder of a fine-tuned task or its export; see `electra_jax.load_tuned`."""
    path = os.fspath(path)
    safe_files.check_no_address(path, "path", config_lib.ConfigError)
    if not (export.is_tuned(path) or export.is_tuned_export(path)):
        raise config_lib.ConfigError(
            f"{path} is not the folder of a fine-tuned task, WORKDIR/finetune/NAME/TASK, nor an"
            " export of one for orbax"
        )

    cluster.check_chips_are_free()
    compile_cache.keep()
    tuned = export.open(path)
    task = datasets.task_named(tuned.settings, tuned.about["task"])
    return Model(tuned, dataclasses.replace(task, labels=tuple(tuned.about["labels"])))


def _sentence(number, sentence):
    """An example of a list of words, or of running text. Raises ConfigError for anything else."""
    if isinstance(sentence, str):
        return new_files.of_running_text(sentence, str(number))
    is_array = isinstance(sentence, np.ndarray) and sentence.ndim == 1
    if not (is_array or isinstance(sentence, list | tuple)):
        raise config_lib.ConfigError(
            f"sentence {number} is {sentence!r:.60}; give running text or a list of words"
        )
    encoding.check_strings(f"sentence {number}", sentence, config_lib.ConfigError)
    return examples.TaggedExample(str(number), tuple(sentence))


def _check_not_one_sentence(texts, found):
    """Raises ConfigError for several texts of one word each, which are rather one sentence."""
    if len(texts) > 1 and all(
        example.text is not None and len(example.words) < 2 for example in found
    ):
        raise config_lib.ConfigError(
            f"{len(texts)} texts of one word each would be tagged without their neighbours; give a"
            " sentence of words as a list within the list"
        )


def _entities(text, tags):
    """The entities of running text by the tags of its words, each with its place in characters."""
    words = running_text.words(text)
    places = [
        (label, words[first].start, words[after - 1].end)
        for label, first, after in label_scores.entities(tags)
    ]
    return [
        {"label": label, "text": text[start:end], "start": start, "end": end}
        for label, start, end in places
    ]
