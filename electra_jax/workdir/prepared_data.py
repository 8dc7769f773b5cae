# SPDX-License-Identifier: Apache-2.0
"""Which prepared data belongs to a run: found by what the run recorded, never by its source.

    WORKDIR/data.json    written when data is prepared for the run: its settings, and for each stage
                         the name of the folder below `data.dir` and the hash of its manifest
    WORKDIR/vocab/       a copy of the vocabulary, so that scoring and exporting need no rows

The text is read once, when the data is prepared. After that the run can continue, be inspected and
be exported even if the source has changed or is gone. Without this record a newer version of the
package would make another corpus out of the source `builtin`, and a finished run could not be
opened any more. The names of folders are relative, so a workdir may be copied, moved or renamed
together with its data.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.data import planning, records, streaming, text
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import program, safe_files, staging

RECORD = "data.json"
VOCABULARY = "vocab"


@dataclasses.dataclass(frozen=True)
class RunData:
    """Which data a run needs: how its rows are made, and where they are looked for."""

    settings: planning.DataSettings  # those of the rows of the first stage
    lengths: tuple[int, ...]  # tokens per row of each stage
    root: str  # the folder of prepared data, with one folder in it per hash of settings
    workdir: str  # '' if there is none
    streaming: bool  # whether the run begins before all its rows are prepared

    @classmethod
    def of(cls, config: config_lib.Config, workdir: str) -> "RunData":
        """The data of a run with these settings in this workdir."""
        return cls(
            settings=planning.DataSettings.of(config.data, config.seed),
            lengths=tuple(stage.sequence_length for stage in stages.of(config)),
            root=staging.local(config.data.dir) or os.path.join(workdir, staging.DATA),
            workdir=workdir,
            streaming=config.data.streaming == "on",
        )


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The prepared rows of one stage."""

    folder: str  # its name below data.dir
    hash: str  # of its manifest


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of data.json."""

    settings: dict[str, Any]  # those of the configuration that preparation depends on
    sources: dict[str, str]  # of each source and of a given vocabulary, a hash that shows changes
    vocabulary: str  # sha256
    stages: tuple[Prepared, ...]


def check_folder(section: config_lib.Data) -> None:
    """Raises ConfigError, one line, if `data.dir` is an address that cannot be reached from here.

    Who only reads weights or settings needs no rows, so this is no part of `config.parse`.
    """
    staging.check(section.dir, "data.dir", config_lib.ConfigError)


def check_vocabulary_stays(data: RunData) -> None:
    """Raises ConfigError if pieces would be added to the workdir's own copy of a vocabulary.

    The longer one takes its place, so each start would add further pieces, and weights that were
    imported into the workdir would lose theirs.
    """
    if not data.settings.added_pieces or not data.workdir:
        return
    named, own = (
        os.path.realpath(x) for x in (data.settings.vocab, f"{data.workdir}/{VOCABULARY}")
    )
    if own in (named, os.path.dirname(named)):
        raise config_lib.ConfigError(
            f"data.added_pieces={data.settings.added_pieces} adds to data.vocab="
            f"{data.settings.vocab!r}, in whose place the longer vocabulary would be written; set"
            " it to 0, or begin in another --workdir with the weights as --config.init.from"
        )


def settings_of(data: RunData) -> dict[str, Any]:
    """Returns the settings that prepared data depends on, as JSON data."""
    settings = dataclasses.asdict(data.settings)
    # The rows are the same for any number of workers.
    del settings["workers"]
    return settings | {"lengths": list(data.lengths)}


def is_of(data: RunData, record: Record) -> bool:
    """Returns whether these settings are those of the record."""
    # Only settings that both versions of the program know can be compared.
    now = settings_of(data)
    return all(now[name] == value for name, value in record.settings.items() if name in now)


def read(workdir: str) -> Record | None:
    """Returns the record of a run; None if no data was prepared for it.

    Raises ConfigError if data.json cannot be read or was changed.
    """
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
            f" {program.command('prepare')} --workdir={workdir}, which writes it again"
        ) from error

    return found


def write(data: RunData, folders: Sequence[str]) -> None:
    """Writes the record of folders, one per stage, and copies their vocabulary.

    They are complete or, with data.streaming=on, have at least their plan.
    """
    vocabulary = vocabulary_lib.load(os.path.join(folders[0], records.VOCABULARY))
    found = Record(
        settings=settings_of(data),
        sources=_sources_if_there(data.settings),
        vocabulary=vocabulary.sha256,
        stages=tuple(
            Prepared(os.path.basename(folder), identity(data, folder)) for folder in folders
        ),
    )

    # The record is last: if it is there, the vocabulary is there too.
    keep_vocabulary(data.workdir, folders[0])
    if read_quietly(data.workdir) != found:
        save(found, data.workdir)


def identity(data: RunData, folder: str) -> str:
    """Returns the hash by which a run knows its rows.

    It is that of the manifest or, with data.streaming=on, of the plan: such a run begins before
    there is a manifest. Raises ValueError, one line, if the file cannot be read.
    """
    if data.streaming:
        return streaming.read_plan(folder).hash
    return records.read_manifest(folder).hash


def save(record: Record, workdir: str) -> None:
    """Writes data.json, complete or not at all, with a digest of its content."""
    tree = dataclasses.asdict(record) | {"digest": _digest(record)}
    content = json.dumps(tree, indent=2).encode() + b"\n"
    safe_files.write(os.path.join(workdir, RECORD), content)


def keep_vocabulary(workdir: str, folder: str) -> None:
    """Copies the vocabulary of prepared data into the workdir if it is missing there or damaged."""
    vocabulary = vocabulary_lib.load(os.path.join(folder, records.VOCABULARY))
    if not _is_here(workdir, vocabulary.sha256):
        vocabulary.save(os.path.join(workdir, VOCABULARY))


def read_quietly(workdir: str) -> Record | None:
    """Returns the record, or None if there is none or it cannot be read."""
    try:
        return read(workdir)
    except config_lib.ConfigError:
        return None


def folder(data: RunData, part: Prepared) -> str | None:
    """Returns the folder with the complete recorded rows, or None.

    It is below data.dir or in the workdir.
    """
    return next((place for place in _places(data, part) if _is(place, part)), None)


def missing(data: RunData, part: Prepared, why: str = "") -> str:
    """Returns a line that says where the rows of a run were looked for, and what to do."""
    places = " or ".join(dict.fromkeys(_places(data, part)))
    return (
        f"the prepared data of {data.workdir} is not (whole) at {places}{why}; copy it there, give"
        " --config.data.dir the folder that holds it, or make it again from the same source:"
        f" {program.command('prepare')} --workdir={data.workdir}"
    )


def folders(data: RunData) -> list[str]:
    """Returns the folders of a run's rows, one per stage; they are only read.

    Raises ConfigError if there is no record or the rows are gone.
    """
    record = read(data.workdir)
    if record is None:
        raise config_lib.ConfigError(
            f"{os.path.join(data.workdir, RECORD)} is missing, which names the prepared data of"
            f" this run; {program.command('prepare')} --workdir={data.workdir} writes it again"
        )

    found = []
    for part in record.stages:
        place = folder(data, part)
        if place is None:
            raise config_lib.ConfigError(missing(data, part))
        found.append(place)

    return found


def manifest(data: RunData) -> records.Manifest | None:
    """Returns the manifest of the first stage, even if its rows are not complete; or None."""
    record = read_quietly(data.workdir)
    for place in _places(data, record.stages[0]) if record else ():
        records.fetch(place)
        try:
            found = records.read_manifest(place)
        except ValueError:
            continue
        if record.stages[0].hash in (found.hash, _hash_of_plan(place)):
            return found

    return None


def own_vocabulary(data: RunData) -> str:
    """Returns data.vocab, or the copy in the workdir if data.vocab names a file that is gone."""
    named = data.settings.vocab
    here = os.path.join(data.workdir, VOCABULARY)
    # The copy has the pieces that were added, so it cannot stand for the file.
    if data.settings.makes_vocabulary or not data.workdir or not os.path.isdir(here):
        return named

    try:
        planning.vocabulary_file(named)
    except (ValueError, OSError):
        return here
    return named


def vocabulary_size(data: RunData) -> int:
    """Returns the size of the run's vocabulary or, without one, the size that data.vocab asks for.

    Raises ValueError if data.vocab names a vocabulary that cannot be read.
    """
    workdir, settings = data.workdir, data.settings
    record = read_quietly(workdir) if workdir else None
    if record is not None and is_of(data, record):
        if _is_here(workdir, record.vocabulary):
            return vocabulary_lib.load(os.path.join(workdir, VOCABULARY)).size

    if settings.vocab.startswith("train:"):
        return planning.trained_kind(settings.vocab)[1]

    path = planning.vocabulary_file(own_vocabulary(data))
    named = vocabulary_lib.load(path, settings.lower_case, settings.strip_accents)
    return named.size + settings.added_pieces


def changed(data: RunData, record: Record) -> str:
    """Returns what is known to have changed in the sources, by cheap checks; '' if nothing."""
    try:
        now = _sources(data.settings)
    except (ValueError, OSError):
        return "the source or the vocabulary that the data was made of cannot be read"
    names = [name for name in record.sources if now.get(name) != record.sources[name]]
    return f"{', '.join(names)} changed since the data was prepared" if names else ""


def _digest(record):
    # Through JSON, so that a record just made and one that was read give the same digest.
    tree = json.loads(json.dumps(dataclasses.asdict(record)))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def _sources(settings):
    """Returns {source: a hash of the names and sizes of its files}, and that of a given vocabulary.

    The hash of a vocabulary is of its content. Raises ValueError or OSError if one cannot be read.
    """
    found = {}
    for source in text.parse(settings.source):
        # Of a source elsewhere only the name counts: finding out its version takes seconds.
        elsewhere = source.spec.startswith(("tfds:", "hf:")) or "://" in source.spec
        known = [] if elsewhere else text.fingerprint(source)
        found[source.spec] = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]

    c = settings
    if not c.vocab.startswith("train:"):
        path = planning.vocabulary_file(c.vocab)
        found[c.vocab] = vocabulary_lib.load(path, c.lower_case, c.strip_accents).sha256[:16]

    return found


def _sources_if_there(settings):
    """Returns the same, or {} if the data was made earlier and its source is gone."""
    try:
        return _sources(settings)
    except (ValueError, OSError):
        return {}


def _places(data, part):
    """Returns the folders that may hold the rows of one stage, the likeliest first."""
    # A workdir that was moved may name a data.dir that does not exist any more.
    roots = (data.root, os.path.join(data.workdir, staging.DATA))
    return [os.path.join(place, part.folder) for place in roots]


def _is(place, part):
    """Returns whether a folder holds these rows, complete, with their vocabulary."""
    records.fetch(place)
    try:
        rows = records.open(place)
        rows.unigram()
        vocabulary = vocabulary_lib.load(os.path.join(place, records.VOCABULARY))
    except ValueError:
        return False

    about = rows.manifest
    is_it = part.hash in (about.hash, _hash_of_plan(place))
    return is_it and about.vocabulary["sha256"] == vocabulary.sha256


def _hash_of_plan(place):
    """Returns the hash of the plan of a folder; None if it has no plan."""
    try:
        return streaming.read_plan(place).hash
    except ValueError:
        return None


def _is_here(workdir, sha256):
    """Returns whether the workdir has an undamaged copy of the vocabulary with this hash."""
    try:
        return vocabulary_lib.load(os.path.join(workdir, VOCABULARY)).sha256 == sha256
    except ValueError:
        return False
