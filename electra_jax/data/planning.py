# SPDX-License-Identifier: Apache-2.0
"""Plans a preparation: settings, early checks, the folder's name, and one task per unit of text.

DataSettings                         the fields of `config.data` that preparation reads
parse_sources                        the sources by their names, without looking at any file
check_sources, check_vocabulary      refuse early what would fail later, without reading text
check_beginnings                     the same, by reading one document of each local source
make_plan                            the sources, and the folder, which is named by a hash
make_tasks                           one task per unit of text, the only input of a worker
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_jax.data import (
    by_source,
    records,
    text,
    vocabulary,
    vocabulary_fit,
    vocabulary_training,
)
from electra_jax.data.text_options import TextOptions
from electra_jax.host import staging

if TYPE_CHECKING:  # each worker would import the parsing of configurations too
    from electra_jax.config import fields

ROWS = ("pairs", "packed")
_LOOKED_AT = 8  # files of a source in which a document is looked for


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The settings of the section `data` that preparation reads, and the seed."""

    source: str
    vocab: str
    added_pieces: int
    sequence_length: int
    mixture_alpha: float
    vocab_sample_characters: int
    lower_case: bool
    strip_accents: bool
    text_field: str
    documents: str
    invalid_utf8: str
    min_document_characters: int
    deduplicate: bool
    duplicate_similarity: float
    heldout_fraction: float
    rows: str
    single_segment_rate: float
    short_row_rate: float
    workers: int
    seed: int

    @classmethod
    def of(cls, section: "fields.Data", seed: int) -> "DataSettings":
        """Takes the fields of that name from the section `data` of a configuration."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "seed"]
        return cls(**{name: getattr(section, name) for name in names}, seed=seed)

    @property
    def makes_vocabulary(self) -> bool:
        """Whether the vocabulary is made of the text, at least in part."""
        return self.vocab.startswith("train:") or self.added_pieces > 0


def folder_of(settings: DataSettings, root: str) -> str:
    """Returns the folder that `preparation.prepare` uses for these settings; it may not exist."""
    return make_plan(settings, root).folder


def check_sources(settings: DataSettings) -> None:
    """Checks the sources by their names and sizes, without reading any text.

    Raises ValueError, one line, if a file does not exist, a data set is unknown, or as
    `parse_sources`.
    """
    for source in parse_sources(settings):
        text.fingerprint(source)


def parse_sources(settings: "DataSettings | fields.Data") -> tuple[text.Source, ...]:
    """The sources of text. Looks at no file.

    Raises ValueError, one line, if data.source is malformed, some sources have a weight and others
    have none, or data.text_field or data.documents does not fit their names.
    """
    sources = text.parse(settings.source)
    names = [source.name for source in sources]
    by_source.check("data.text_field", settings.text_field, names)
    by_source.check("data.documents", settings.documents, names, text.DOCUMENTS)
    return sources


def options(settings: DataSettings, source: text.Source) -> TextOptions:
    """How the text of a source is read."""
    return TextOptions(
        text_field=by_source.of(settings.text_field, source.name),
        documents=by_source.of(settings.documents, source.name),
        invalid_utf8=settings.invalid_utf8,
        min_document_characters=settings.min_document_characters,
    )


def check_beginnings(settings: DataSettings) -> None:
    """Reads one document of each source whose files are on this machine, from the first eight.

    Raises ValueError, one line, if what is read is no text or lacks the field with the text, or if
    no file of a source has any text.
    """
    for source in parse_sources(settings):
        if not text.is_local(source):
            continue
        units = [unit for unit in text.units(source) if unit.stripe == 0]
        counts: collections.Counter = collections.Counter()
        how = options(settings, source)
        found = (unit.documents(how, counts) for unit in units[:_LOOKED_AT])

        first = next(itertools.chain.from_iterable(found), None)
        if first is None and len(units) <= _LOOKED_AT:
            raise refusal(source, counts)


def refusal(source: text.Source, counts: Mapping[str, int]) -> ValueError:
    """The error for a source without text; `counts` are of its documents that were left out."""
    return ValueError(
        f"source {source.spec} has no text ({counts['empty']} empty documents,"
        f" {counts['skipped_short']} shorter than data.min_document_characters)"
        "; give it another file"
    )


def check_vocabulary(settings: DataSettings) -> None:
    """Raises ValueError, one line, if `settings.vocab` can be neither loaded nor trained.

    So it does for a file many of whose pieces no text gives with these settings.
    """
    if settings.vocab.startswith("train:"):
        trained_kind(settings.vocab)
    else:
        vocabulary_fit.refuse_unreachable(load_vocabulary(settings), settings.vocab)


def trained_kind(vocab: str) -> tuple[str, int]:
    """Parses 'train:wordpiece:8192' into ('wordpiece', 8192).

    Raises ValueError, one line, for an unknown kind or a size out of bounds.
    """
    _, kind, size = (vocab.split(":", 2) + ["", ""])[:3]
    kinds = ("sentencepiece", "wordpiece")
    if kind not in kinds:
        raise ValueError(
            f"data.vocab={vocab!r}: {kind!r} is not one of {', '.join(kinds)}; try"
            f" train:{kinds[0]}:SIZE"
        )

    low, high = vocabulary_training.SIZES
    # Only the first digits are read: int() refuses strings of thousands of digits.
    if not (size.isascii() and size.isdigit()) or not low <= int(size[:20]) <= high:
        raise ValueError(
            f"data.vocab={vocab!r}: the size {size!r} is not a whole number from {low} to {high:,};"
            f" try train:{kind}:30522"
        )
    return kind, int(size)


def vocabulary_file(named: str) -> str:
    """Returns the path on this machine of a vocabulary; one in a bucket is fetched.

    Raises ValueError, one line, if it does not exist.
    """
    try:
        path = staging.copied_file(named, "data.vocab")
    except FileNotFoundError:
        path = ""
    if not os.path.exists(path):
        raise ValueError(
            f"data.vocab={named!r} does not exist; give a .model, vocab.txt or tokenizer.json, or"
            " train:sentencepiece:SIZE"
        )
    return path


@dataclasses.dataclass(frozen=True)
class DataPlan:
    """What is to be prepared, and where."""

    settings: DataSettings
    sources: tuple[text.Source, ...]
    key: str  # hash of the settings and the sources; the last part of `folder`
    folder: str


@dataclasses.dataclass(frozen=True)
class UnitTask:
    """One unit of text, with everything that a worker needs to turn it into shards."""

    settings: DataSettings
    folder: str
    name: str  # unique in the folder; file names begin with it
    source_index: int
    unit_index: int  # within its source
    unit: Any  # see text.units
    options: TextOptions  # how it is read
    heldout_below: int  # a document with a smaller hash is held out
    vocabulary: str = ""  # sha256 of the folder's vocabulary; empty until that is made


def make_plan(settings: DataSettings, root: str) -> DataPlan:
    """Parses the sources and names the folder. Raises ValueError, one line, for bad settings."""
    if settings.rows not in ROWS:
        raise ValueError(f"data.rows={settings.rows!r} is not one of {', '.join(ROWS)}")

    sources = parse_sources(settings)
    fingerprints = [text.fingerprint(source) for source in sources]

    values = row_settings(settings)
    content = {"format": records.FORMAT_VERSION, "settings": values, "sources": fingerprints}
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return DataPlan(settings, sources, key, os.path.join(root, key))


def row_settings(settings: DataSettings) -> dict[str, Any]:
    """The settings that the rows depend on, as a dict.

    A vocabulary file is represented by the hash of its content, so its path does not matter. The
    number of workers is left out.
    """
    values = dataclasses.asdict(settings)
    del values["workers"]

    if not settings.vocab.startswith("train:"):
        values["vocab"] = load_vocabulary(settings).sha256
    if not settings.added_pieces:  # the name of folders from before there was this setting
        del values["added_pieces"]
    if not settings.deduplicate or settings.duplicate_similarity == 1:  # as above
        del values["duplicate_similarity"]

    return values


def load_vocabulary(settings: DataSettings) -> vocabulary.Vocabulary:
    """Loads the vocabulary file that `settings.vocab` names, without pieces that are to be added.

    Raises ValueError, one line.
    """
    path = vocabulary_file(settings.vocab)
    found = vocabulary.load(path, settings.lower_case, settings.strip_accents)
    if settings.added_pieces and found.kind != "wordpiece":
        raise ValueError(
            f"data.added_pieces={settings.added_pieces} adds to a vocab.txt, and"
            f" data.vocab={settings.vocab!r} is a {vocabulary.FILES[found.kind]}; set it to 0"
        )
    return found


def make_tasks(plan: DataPlan) -> list[UnitTask]:
    """One task per unit of text, in the order of the sources."""
    heldout_below = int(plan.settings.heldout_fraction * 2**64)  # document hashes have 64 bits
    tasks = []

    for s, source in enumerate(plan.sources):
        how = options(plan.settings, source)
        for u, unit in enumerate(text.units(source)):
            name = f"{source.name}-{u:05d}"
            tasks.append(UnitTask(plan.settings, plan.folder, name, s, u, unit, how, heldout_below))

    return tasks


def mixture_shares(plan: DataPlan, sizes: Sequence[int]) -> list[float]:
    """Each source's share of the training rows; the shares sum to one.

    They are proportional to the weights of the sources. Sources without weights get
    size ** data.mixture_alpha instead; `sizes` has the training rows of each source.
    """
    weights = [source.weight for source in plan.sources]

    if weights[0] is None:  # either all sources have a weight or none, see text.parse
        weights = [max(size, 1) ** plan.settings.mixture_alpha for size in sizes]

    return [weight / sum(weights) for weight in weights]
