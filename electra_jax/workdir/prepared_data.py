# SPDX-License-Identifier: Apache-2.0
"""Which prepared data belongs to a run: found by what the run recorded, never by its source.

    WORKDIR/data.json    written when data is prepared for the run: its settings, and for each stage
                         the folder's name below `data.dir` and the hash of its manifest
    WORKDIR/vocab/       a copy of the vocabulary, so that whoever scores or exports needs no rows

The text is read to prepare, and never again: a run goes on, is looked at and is exported when its
source has changed since or is gone. Without that record, an upgraded package would make another
corpus out of `builtin`, and a finished run could not be opened any more. Names of folders are
relative, so a workdir may be copied, moved or renamed together with its data.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.data import planning, records, text, vocabulary
from electra_jax.host import safe_files

RECORD = "data.json"
VOCABULARY = "vocab"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The rows of one stage."""

    folder: str  # below data.dir
    hash: str  # of its manifest


@dataclasses.dataclass(frozen=True)
class Record:
    """What data.json holds."""

    settings: dict[str, Any]  # of the configuration, as far as preparing reads it
    sources: dict[str, str]  # each source, a given vocabulary too, and a hash of what tells it
    vocabulary: str  # its sha256
    stages: tuple[Prepared, ...]


def root(config: config_lib.Config, workdir: str) -> str:
    """Where prepared data lies, a folder for each hash of settings."""
    return config.data.dir or os.path.join(workdir, "data")


def settings_of(config: config_lib.Config) -> dict[str, Any]:
    """What prepared data depends on, as JSON has it; the number of workers is no part of it."""
    settings = dataclasses.asdict(planning.Settings.from_config(config))
    del settings["workers"]
    return settings | {"lengths": [stage.sequence_length for stage in stages.of(config)]}


def is_of(config: config_lib.Config, record: Record) -> bool:
    """Whether these settings are those of the record, as far as its program knew of them."""
    now = settings_of(config)
    return all(now[name] == value for name, value in record.settings.items() if name in now)


def read(workdir: str) -> Record | None:
    """The record of a run; None where no data was prepared for it. Raises ConfigError."""
    path = os.path.join(workdir, RECORD)
    try:
        with open(path, encoding="utf-8") as file:
            tree = json.load(file)
        stated = tree.pop("digest", None)
        parts = tuple(Prepared(**part) for part in tree.pop("stages"))
        found = Record(**tree, stages=parts)
        if _digest(found) != stated:
            raise ValueError("it is not as it was written")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise config_lib.ConfigError(
            f"{path}, which names the prepared data of this run, cannot be read; delete it and run"
            f" python -m electra_jax.prepare --workdir={workdir}, which writes it again"
        ) from error
    return found


def write(config: config_lib.Config, workdir: str, folders: Sequence[str]) -> None:
    """Records whole folders, one a stage, and copies their vocabulary; the record comes last."""
    words = vocabulary.load(os.path.join(folders[0], records.VOCABULARY))
    found = Record(
        settings=settings_of(config),
        sources=_sources_if_there(config),
        vocabulary=words.sha256,
        stages=tuple(
            Prepared(os.path.basename(folder), records.read_manifest(folder).hash)
            for folder in folders
        ),
    )
    keep_vocabulary(workdir, folders[0])
    if read_quietly(workdir) != found:
        save(found, workdir)


def save(record: Record, workdir: str) -> None:
    """Writes data.json, whole or not at all, with a digest of what it says."""
    tree = dataclasses.asdict(record) | {"digest": _digest(record)}
    content = json.dumps(tree, indent=2).encode() + b"\n"
    safe_files.write(os.path.join(workdir, RECORD), content)


def keep_vocabulary(workdir: str, folder: str) -> None:
    """Copies the vocabulary of prepared data into the workdir, where it is not there or damaged."""
    words = vocabulary.load(os.path.join(folder, records.VOCABULARY))
    if not _is_here(workdir, words.sha256):
        words.save(os.path.join(workdir, VOCABULARY))


def read_quietly(workdir: str) -> Record | None:
    """The record, and None where it cannot be read."""
    try:
        return read(workdir)
    except config_lib.ConfigError:
        return None


def folder(config: config_lib.Config, workdir: str, part: Prepared) -> str | None:
    """Where the recorded rows are whole: under data.dir, or in the workdir; None if nowhere."""
    return next((place for place in _places(config, workdir, part) if _is(place, part)), None)


def missing(config: config_lib.Config, workdir: str, part: Prepared, why: str = "") -> str:
    """One line for rows that are nowhere."""
    places = " or ".join(dict.fromkeys(_places(config, workdir, part)))
    return (
        f"the prepared data of {workdir} is not (whole) at {places}{why}; copy it there, give"
        " --config.data.dir the folder that holds it, or make it again from the same source:"
        f" python -m electra_jax.prepare --workdir={workdir}"
    )


def folders(config: config_lib.Config, workdir: str) -> list[str]:
    """The folders of a run's rows, one a stage, read only.

    Raises ConfigError: no record, or rows that are gone.
    """
    record = read(workdir)
    if record is None:
        raise config_lib.ConfigError(
            f"{os.path.join(workdir, RECORD)} is missing, which names the prepared data of this"
            f" run; python -m electra_jax.prepare --workdir={workdir} writes it again"
        )
    found = []
    for part in record.stages:
        place = folder(config, workdir, part)
        if place is None:
            raise config_lib.ConfigError(missing(config, workdir, part))
        found.append(place)
    return found


def manifest(config: config_lib.Config, workdir: str) -> records.Manifest | None:
    """What is known of the first stage's rows, whether or not the rows are there; or None."""
    record = read_quietly(workdir)
    for place in _places(config, workdir, record.stages[0]) if record else ():
        try:
            found = records.read_manifest(place)
        except ValueError:
            continue
        if found.hash == record.stages[0].hash:
            return found
    return None


def own_vocabulary(config: config_lib.Config, workdir: str) -> str:
    """data.vocab; or the workdir's copy of it, where it names a file that is gone."""
    named = config.data.vocab
    here = os.path.join(workdir, VOCABULARY)
    gone = bool(workdir) and not named.startswith("train:") and not os.path.exists(named)
    return here if gone and os.path.isdir(here) else named


def vocabulary_size(config: config_lib.Config, workdir: str = "") -> int:
    """Of the run's vocabulary if there is one, or what data.vocab asks for. Raises ValueError."""
    record = read_quietly(workdir) if workdir else None
    if record is not None and is_of(config, record):
        if _is_here(workdir, record.vocabulary):
            return vocabulary.load(os.path.join(workdir, VOCABULARY)).size
    if config.data.vocab.startswith("train:"):
        return planning.trained_kind(config.data.vocab)[1]
    named, c = own_vocabulary(config, workdir), config.data
    planning.check_vocabulary_path(named)
    return vocabulary.load(named, c.lower_case, c.strip_accents).size


def changed(config: config_lib.Config, record: Record) -> str:
    """What can be told at little cost of sources that are not as they were; '' if nothing."""
    try:
        now = _sources(config)
    except (ValueError, OSError):
        return "the source or the vocabulary that the data was made of cannot be read"
    names = [name for name in record.sources if now.get(name) != record.sources[name]]
    return f"{', '.join(names)} changed since the data was prepared" if names else ""


def _digest(record):
    tree = json.loads(json.dumps(dataclasses.asdict(record)))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def _sources(config):
    """{source: hash of the names and sizes of its files}, and of a vocabulary what is in it."""
    found = {}
    for source in text.parse(config.data.source):
        # Of TFDS the name alone: the version costs seconds.
        known = [] if source.spec.startswith("tfds:") else text.fingerprint(source)
        found[source.spec] = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    c = config.data
    if not c.vocab.startswith("train:"):
        planning.check_vocabulary_path(c.vocab)
        found[c.vocab] = vocabulary.load(c.vocab, c.lower_case, c.strip_accents).sha256[:16]
    return found


def _sources_if_there(config):
    """The same; nothing where the data was made before and its source is gone since."""
    try:
        return _sources(config)
    except (ValueError, OSError):
        return {}


def _places(config, workdir, part):
    """A workdir that was moved may name a data.dir that is not there any more."""
    roots = (root(config, workdir), os.path.join(workdir, "data"))
    return [os.path.join(place, part.folder) for place in roots]


def _is(place, part):
    """Whether these are the rows, whole, with the vocabulary that they were made with."""
    try:
        opened = records.open(place)
        opened.unigram()
        words = vocabulary.load(os.path.join(place, records.VOCABULARY))
    except ValueError:
        return False
    about = opened.manifest
    return about.hash == part.hash and about.vocabulary["sha256"] == words.sha256


def _is_here(workdir, sha256):
    try:
        return vocabulary.load(os.path.join(workdir, VOCABULARY)).sha256 == sha256
    except ValueError:
        return False
