# SPDX-License-Identifier: Apache-2.0
"""Evaluates a checkpoint on any text, also with metrics that are comparable across vocabularies.

    sources -> rows in memory -> metric sums of each source -> metrics of each source, and pooled

docs/evaluation.md says what may be compared and what may not.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_jax.core import metrics
from electra_jax.data import evaluation_text, planning
from electra_jax.data import text as text_lib
from electra_jax.report import metric_values, text_units
from electra_jax.step import evaluation
from electra_jax.training import trained_run

_PROGRESS_SECONDS = 10
_MUCH_UNKNOWN = 0.01  # a larger share of [UNK] among the tokens is worth a note

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The evaluated texts, the metrics of each source, and the metrics of all sources pooled."""

    texts: tuple[evaluation_text.Text, ...]
    by_source: dict[str, Values]
    pooled: Values


def read(
    run: trained_run.TrainedRun,
    sources: Sequence[text_lib.Source],
    limit: int,
    text_field: str = "",
    documents: str = "",
    progress: Callable[[str], Any] = lambda line: None,
) -> list[evaluation_text.Text]:
    """Reads the text of the sources into rows that are made like those of the run.

    Args:
      run: the checkpoint, with the settings and the vocabulary of its run.
      sources: where the text is.
      limit: the most characters that are read from each source; 0 reads everything.
      text_field: the field of JSON lines and parquet that holds the text; if empty, the run's.
      documents: what ends a document of plain text, as data.documents; if empty, the run's.
      progress: called with a line of text after each source, and while one is read.

    Raises:
      ValueError: if text cannot be read, or a source has none; the message is one line.
    """
    settings = planning.DataSettings.of(run.config.data, run.config.seed)
    settings = dataclasses.replace(
        settings,
        sequence_length=run.stage.sequence_length,
        text_field=text_field or settings.text_field,
        documents=documents or settings.documents,
    )

    texts = []
    for source in sources:
        text = evaluation_text.read(source, settings, run.vocabulary, limit, progress)
        progress(
            f"{text.name}: {text.documents:,} documents, {text.characters:,} characters,"
            f" {len(text.ids):,} rows"
        )
        texts.append(text)
    return texts


def evaluate(
    run: trained_run.TrainedRun,
    texts: Sequence[evaluation_text.Text],
    progress: Callable[[str], Any] = lambda line: None,
) -> Evaluated:
    """Returns all metrics of the checkpoint on texts that `read` has returned."""
    sums = [
        run.evaluator.sums(run.params, text.ids, text.marks, _progress(text, progress))
        for text in texts
    ]

    pooled = sums[0]
    for more in sums[1:]:
        pooled = metrics.add(pooled, more)
    return Evaluated(
        texts=tuple(texts),
        by_source={text.name: _values(run, own, [text]) for text, own in zip(texts, sums)},
        pooled=_values(run, pooled, texts),
    )


def notes(run: trained_run.TrainedRun, found: Evaluated) -> list[str]:
    """What a reader should know before comparing the figures, one sentence per item."""
    sources = run.records.manifest.sources if run.records is not None else ()
    trained_on = {source.spec for source in sources}

    lines = []
    for text in found.texts:
        values = found.by_source[text.name]
        if text.spec in trained_on:
            lines.append(
                f"{text.name}: the run was trained on this source, of which nothing is left out"
                " here; without --data its held-out part is evaluated"
            )
        if not text.whole:
            lines.append(f"{text.name}: the text continues; --characters=0 takes all of it")
        if values["unk_rate"] > _MUCH_UNKNOWN:
            lines.append(
                f"{text.name}: {values['unk_rate']:.1%} of the tokens are [UNK], which is easily"
                " predicted; figures per word and per character are too good"
            )
        if text.invalid_utf8:
            lines.append(
                f"{text.name}: {text.invalid_utf8:,} places are not UTF-8 and were read as U+FFFD"
            )

    return lines


def to_json(step: int, run: trained_run.TrainedRun, found: Evaluated) -> Values:
    """One JSON object: the pooled metrics, named as in an evaluation of held-out text, and more.

    `sources` holds the metrics of each source, and `vocabulary` describes the vocabulary. The
    pooled metrics and those of each source come with `baselines`: metric -> the score to be beaten.
    A value that is not finite is null.
    """
    vocabulary = run.vocabulary
    return {
        "step": step,
        **with_baselines(found.pooled),
        "sources": {
            text.name: {
                "spec": text.spec,
                "whole": text.whole,
                "sha256": text.sha256,
                **with_baselines(found.by_source[text.name]),
            }
            for text in found.texts
        },
        "vocabulary": {
            "kind": vocabulary.kind,
            "size": vocabulary.size,
            "lower_case": vocabulary.lower_case,
            "strip_accents": vocabulary.strip_accents,
            "sha256": vocabulary.sha256,
        },
    }


def with_baselines(values: Mapping[str, Any]) -> Values:
    """The values, with None for those that are not finite, and `baselines`."""
    plain = {name: _finite(value) for name, value in values.items()}
    beside = {name: text_units.baseline(name, values) for name in values}
    return plain | {"baselines": {name: x.value for name, x in beside.items() if x is not None}}


def _values(run, sums, texts) -> Values:
    """The metrics of several texts together, from their added sums and from what they contain."""
    counts_V = sum(text.counts_V for text in texts)
    counted = {
        name: sum(getattr(text, name) for text in texts)
        for name in ("documents", "words", "characters", "invalid_utf8")
    }
    counted |= {"tokens": int(counts_V.sum()), "rows": sum(len(text.ids) for text in texts)}
    size = counted["tokens"], counted["words"], counted["characters"]

    values = run.evaluator.values(sums)
    values["unigram_entropy"] = evaluation.entropy(counts_V)
    for prefix, loss in _per_token(values):
        values |= {f"{prefix}_{name}": x for name, x in text_units.figures(loss, *size).items()}

    values |= counted
    values["tokens_per_word"] = size[0] / size[1]
    values["tokens_per_character"] = size[0] / size[2]
    values["unk_rate"] = float(counts_V[run.vocabulary.unk_id] / counts_V.sum())
    return values


def _per_token(values):
    """Yields (prefix, nats per token) for each loss that is a mean over masked tokens of the text.

    A main network that predicts what a generator has replaced is left out: the slots in its loss
    are those that the generator got wrong, so it says nothing about the other tokens.
    """
    name = "gen_masked" if "gen_masked_loss" in values else "mlm_masked"
    if f"{name}_loss" in values:
        yield name, values[f"{name}_loss"]
        yield "unigram", values["unigram_entropy"]


def _progress(text, progress):
    """A function for the number of evaluated rows, which reports at most every ten seconds."""
    told = time.monotonic()

    def heard(rows):
        nonlocal told
        if time.monotonic() - told > _PROGRESS_SECONDS and rows < len(text.ids):
            told = time.monotonic()
            progress(f"{text.name}: {rows:,} of {len(text.ids):,} rows evaluated")

    return heard


def _finite(value):
    """Counts as they are, other numbers as floats; None for what is not finite."""
    return value if isinstance(value, int | np.integer) else metric_values.finite(value)
