# SPDX-License-Identifier: Apache-2.0
"""What is to be prepared: the settings, what can be refused early, and the folder's name.

Settings                       the fields of `config.data` that preparing reads
check_sources, check_vocabulary   what a look at names and files can refuse
make_plan                      sources, and the folder, named by a hash of what rows depend on
tasks                          one for each unit of text; a worker gets nothing else
"""

import dataclasses
import hashlib
import json
import os
from typing import Any

from electra_jax.data import records, text, vocabulary, vocabulary_training

ROWS = ("pairs", "packed")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The fields of `config.data` that preparing reads, and the seed; see configs/base.py."""

    source: str
    vocab: str
    sequence_length: int
    mixture_alpha: float = 1.0
    vocab_sample_characters: int = 100_000_000
    lower_case: bool = True
    strip_accents: bool = True
    text_field: str = "text"
    invalid_utf8: str = "replace"
    min_document_characters: int = 0
    deduplicate: bool = False
    heldout_fraction: float = 0.01
    rows: str = "pairs"
    single_segment_rate: float = 0.1
    short_row_rate: float = 0.05
    workers: int = 0
    seed: int = 0

    @classmethod
    def from_config(cls, config: Any) -> "Settings":
        """From a whole configuration: its section `data` and its `seed`."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "seed"]
        return cls(**{name: getattr(config.data, name) for name in names}, seed=config.seed)


def folder_of(settings: Settings, root: str) -> str:
    """Where `prepare` puts these settings' records, made or not."""
    return make_plan(settings, root).folder


def check_sources(settings: Settings) -> None:
    """Refuses sources that a preparation would, as far as looking at their names tells.

    Raises ValueError, one line: no such file, an unknown data set, a weight too few.
    """
    for source in text.parse(settings.source):
        text.fingerprint(source)


def check_vocabulary(settings: Settings) -> None:
    """Refuses a vocabulary that cannot be had. Raises ValueError, one line."""
    if settings.vocab.startswith("train:"):
        trained_kind(settings.vocab)
    else:
        load_vocabulary(settings)


def trained_kind(vocab: str) -> tuple[str, int]:
    """'train:wordpiece:8192' -> ('wordpiece', 8192). Raises ValueError, one line."""
    _, kind, size = (vocab.split(":", 2) + ["", ""])[:3]
    kinds = ("sentencepiece", "wordpiece")
    if kind not in kinds:
        raise ValueError(
            f"data.vocab={vocab!r}: {kind!r} is not one of {', '.join(kinds)}; try"
            f" train:{kinds[0]}:SIZE"
        )
    low, high = vocabulary_training.SIZES
    if not (size.isascii() and size.isdigit()) or not low <= int(size[:20]) <= high:
        raise ValueError(
            f"data.vocab={vocab!r}: the size {size!r} is not a whole number from {low} to {high:,};"
            f" try train:{kind}:30522"
        )
    return kind, int(size)


def check_vocabulary_path(path: str) -> None:
    """Raises ValueError, one line, where there is no file to take the vocabulary from."""
    if not os.path.exists(path):
        raise ValueError(
            f"data.vocab={path!r} does not exist; give a .model, vocab.txt or tokenizer.json, or"
            " train:sentencepiece:SIZE"
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done: the sources, their units, and where it goes."""

    settings: Settings
    sources: tuple[text.Source, ...]
    key: str
    folder: str


@dataclasses.dataclass(frozen=True)
class Task:
    """One unit of text and all that a process needs to know to turn it into shards."""

    settings: Settings
    folder: str
    name: str
    source_index: int
    unit_index: int
    unit: Any
    heldout_below: int  # a document with a smaller hash is held out
    vocabulary: str = ""  # its sha256, once there is one


def make_plan(settings, root):
    if settings.rows not in ROWS:
        raise ValueError(f"data.rows={settings.rows!r} is not one of {', '.join(ROWS)}")
    sources = text.parse(settings.source)
    fingerprints = [text.fingerprint(source) for source in sources]
    values = row_settings(settings)
    content = {"format": records.FORMAT_VERSION, "settings": values, "sources": fingerprints}
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return Plan(settings, sources, key, os.path.join(root, key))


def row_settings(settings):
    """What rows depend on: a vocabulary is what is in its file, wherever the file lies."""
    values = dataclasses.asdict(settings)
    del values["workers"]
    if not settings.vocab.startswith("train:"):
        values["vocab"] = load_vocabulary(settings).sha256
    return values


def load_vocabulary(settings):
    check_vocabulary_path(settings.vocab)
    return vocabulary.load(settings.vocab, settings.lower_case, settings.strip_accents)


def make_tasks(plan):
    heldout_below = int(plan.settings.heldout_fraction * 2**64)
    tasks = []
    for s, source in enumerate(plan.sources):
        for u, unit in enumerate(text.units(source)):
            name = f"{source.name}-{u:05d}"
            tasks.append(Task(plan.settings, plan.folder, name, s, u, unit, heldout_below))
    return tasks


def mixture_shares(plan, sizes):
    """Each source's share of the mixture: as its weight says, else by size."""
    weights = [source.weight for source in plan.sources]
    if weights[0] is None:
        weights = [max(size, 1) ** plan.settings.mixture_alpha for size in sizes]
    return [weight / sum(weights) for weight in weights]
