# SPDX-License-Identifier: Apache-2.0
"""Sources of text: parsed from `data.source`, cut into independent units, read as documents.

    'text:en/*.txt@3; manuals=builtin@1'  ->  parse  ->  Source, Source
    Source                        ->  units  ->  independent pieces of work
    unit.documents(...)           ->  documents: lines (sentences) joined by newlines

The units depend only on the files, not on the number of cores. A large file is cut into stripes:
stripe k of K has every K-th block of 256 documents, and of a parquet file every K-th row group. By
itself a stripe reads the whole file for that; a preparation reads it once for all (stripes.py).
"""

import collections
import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from electra_jax.data import builtin, text_field, text_files, text_hub, text_remote, text_tfds
from electra_jax.data.text_options import TextOptions

DOCUMENTS = tuple(text_files.SEPARATE)  # what `TextOptions.documents` may be
_NAMED = re.compile(r"([^=:/*]*)=(.*)", re.DOTALL)  # no path, whose '=' is its own
_LONGEST_NAME = 40  # characters
_STRIPE_BYTES = 32 << 20  # of text
_STRIPES = 64  # of one file, at most
_TFDS_UNIT = 20_000  # records
_TFDS_RECORD_BYTES = 3_000  # of text, roughly; Wikipedia's mean


@dataclasses.dataclass(frozen=True)
class Source:
    """One part of `data.source`."""

    spec: str  # without the name and the weight
    name: str  # short and unique; used in file names and names of metrics
    weight: float | None  # None if no source has a weight


def parse(data_source: str) -> tuple[Source, ...]:
    """Parses '[NAME=]SPEC[@WEIGHT]; ...'. Raises ValueError, one line, for anything else."""
    sources: list[Source] = []
    parts = [part.strip() for part in data_source.split(";") if part.strip()]
    named = [_name_and_rest(part) for part in parts]
    taken = _names([name for name, _ in named if name is not None])

    for name, part in named:
        match = re.fullmatch(r"(.*?)@([0-9.eE+-]+)", part)
        spec, weight = (match[1].strip(), _weight(part, match[2])) if match else (part, None)

        kind = spec.partition(":")[0]
        if spec != "builtin" and (kind not in ("text", "tfds", "hf") or spec.endswith(":")):
            files = "/" in spec or "*" in spec or os.path.exists(spec)
            raise ValueError(
                f"data.source {spec!r} is none of builtin, text:GLOB, text:ADDRESS,"
                " tfds:NAME[/CONFIG][:SPLIT], hf:OWNER/NAME[/CONFIG][:SPLIT]"
                + (f"; did you mean text:{spec}?" if files and kind == spec else "")
            )
        if kind == "hf":
            text_hub.parse(spec.partition(":")[2])

        sources.append(Source(spec, name or _name(spec, taken), weight))

    if not sources:
        raise ValueError("data.source is empty; try builtin, text:GLOB or hf:OWNER/NAME")

    weighted = sum(source.weight is not None for source in sources)
    if 0 < weighted < len(sources):
        raise ValueError(
            f"{weighted} of {len(sources)} sources of data.source have a weight; give each one"
            " '@WEIGHT', or none (then data.mixture_alpha decides)"
        )

    return tuple(sources)


def fingerprint(source: Source) -> list[tuple[str, int]]:
    """(name, size) of all that the source reads; different text almost always differs in it.

    Sizes of files stand for their content. A TFDS data set is identified by its name and version,
    one of the Hub by the digests of its files, and files behind an address by their sizes and what
    digests the server gives, without a download.
    """
    return _reader(source).fingerprint()


def size(source: Source) -> int:
    """The approximate size of a source's text in bytes. Downloads a TFDS source if need be."""
    return _reader(source).size()


def units(source: Source) -> list[Any]:
    """The independent pieces of a source: picklable, each with `documents(options, counts)`.

    Their `bytes`, the approximate size of their text, say how much of the source each one is.
    Downloads a TFDS source if need be. Raises ValueError, one line, if nothing can be read.
    """
    return _reader(source).units()


def files(source: Source) -> list[text_hub.HubFile | text_remote.RemoteFile]:
    """The files of a source that are downloaded one by one when they are read; [] of any other.

    Raises ValueError, one line, if they cannot be listed.
    """
    reader = _reader(source)
    return reader.files() if isinstance(reader, _Remote) else []


def is_local(source: Source) -> bool:
    """Returns whether a source is of files of this machine."""
    return isinstance(_reader(source), _Files)


def is_plain(unit: Any) -> bool:
    """Returns whether a unit is of a file of plain text, which data.documents cuts up."""
    if isinstance(unit, FileUnit | FetchedUnit):
        return not _is_parquet(unit.name) and not text_files.is_json_lines(unit.name)
    return False


def _reader(source):
    """What answers the questions above for this kind of source."""
    kind, _, rest = source.spec.partition(":")
    if kind == "text" and text_remote.is_address(rest):
        return _Remote(rest)
    return {"builtin": _Builtin, "text": _Files, "tfds": _Tfds, "hf": _Hub}[kind](rest)


@dataclasses.dataclass(frozen=True)
class _Builtin:
    """`builtin`."""

    rest: str

    def fingerprint(self):
        return builtin.identity()

    def size(self):
        return builtin.BYTES

    def units(self):
        parts = builtin.parts()
        return [BuiltinUnit(part, builtin.BYTES // len(parts)) for part in parts]


@dataclasses.dataclass(frozen=True)
class _Files:
    """`text:GLOB`, files of this machine."""

    pattern: str

    def fingerprint(self):
        return [(path, os.path.getsize(path)) for path in text_files.matching_paths(self.pattern)]

    def size(self):
        return sum(map(text_files.text_bytes, text_files.matching_paths(self.pattern)))

    def units(self):
        return [
            FileUnit(path, *stripe)
            for path in text_files.matching_paths(self.pattern)
            for stripe in _stripes(text_files.text_bytes(path))
        ]


@dataclasses.dataclass(frozen=True)
class _Remote:
    """`text:ADDRESS`, files that are downloaded when they are read."""

    pattern: str

    def fingerprint(self):
        return [(f"{file.address}@{file.digest}", file.bytes) for file in self.files()]

    def size(self):
        return sum(text_files.text_bytes(file.name, file.bytes) for file in self.files())

    def units(self):
        return [
            FetchedUnit(file, *stripe)
            for file in self.files()
            for stripe in _stripes(text_files.text_bytes(file.name, file.bytes))
        ]

    def files(self):
        return text_remote.files(self.pattern)


class _Hub(_Remote):
    """`hf:OWNER/NAME[/CONFIG][:SPLIT]`."""

    def files(self):
        return text_hub.files(text_hub.parse(self.pattern))


@dataclasses.dataclass(frozen=True)
class _Tfds:
    """`tfds:NAME[/CONFIG][:SPLIT]`."""

    rest: str

    def fingerprint(self):
        name, split = text_tfds.name_and_split(self.rest)
        return [(f"{text_tfds.builder_of(name).info.full_name}:{split}", 0)]

    def size(self):
        return self._count() * _TFDS_RECORD_BYTES

    def units(self):
        name, split = text_tfds.name_and_split(self.rest)
        count = self._count()
        starts = range(0, count, _TFDS_UNIT)
        return [TfdsUnit(name, split, i, min(i + _TFDS_UNIT, count)) for i in starts]

    def _count(self):
        return len(text_tfds.random_access(*text_tfds.name_and_split(self.rest)))


def _stripes(size):
    """(number, of how many) of each stripe of a file with `size` bytes of text."""
    stripes = min(_STRIPES, max(1, round(size / _STRIPE_BYTES)))
    return [(stripe, stripes) for stripe in range(stripes)]


def _is_parquet(name):
    return text_files.ends_in(text_files.unpacked_name(name), ".parquet")


def _is_shared(name, stripes):
    return stripes > 1 and not _is_parquet(name)


@dataclasses.dataclass(frozen=True)
class BuiltinUnit:
    """One part of the builtin text."""

    part: builtin.CorpusPart
    bytes: int

    @property
    def origin(self) -> str:
        """The source that it is of, for users."""
        return "builtin"

    def documents(self, options: TextOptions, counts: collections.Counter) -> Iterator[str]:
        """Yields its documents; counts in `counts` what is left out or was not UTF-8."""
        return kept(self.part.documents(), options, counts)


@dataclasses.dataclass(frozen=True)
class FileUnit:
    """A stripe of a file."""

    path: str
    stripe: int  # from 0 to stripes - 1
    stripes: int

    @property
    def origin(self) -> str:
        """The file that it is of, for users."""
        return self.path

    @property
    def name(self) -> str:
        """The name of its file, whose ending says how it is read."""
        return self.path

    @property
    def bytes(self) -> int:
        """The approximate size of its text."""
        return text_files.text_bytes(self.path) // self.stripes

    def documents(self, options: TextOptions, counts: collections.Counter) -> Iterator[str]:
        """Yields its documents; counts in `counts` what is left out or was not UTF-8."""
        if _is_parquet(self.path):
            found = text_files.parquet_documents(
                self.path, options, counts, self.stripe, self.stripes
            )
        else:
            # Every stripe decodes the whole file, so only the first one counts invalid UTF-8.
            reading = counts if self.stripe == 0 else collections.Counter()
            found = text_files.striped(
                text_files.documents(self.path, options, reading), self.stripe, self.stripes
            )
        return kept(found, options, counts)

    @property
    def is_shared(self) -> bool:
        """Whether each stripe would read what the others have read, see stripes.py."""
        return _is_shared(self.name, self.stripes)

    def here(self) -> "FileUnit":
        """This unit, whose file is on this machine."""
        return self


@dataclasses.dataclass(frozen=True)
class FetchedUnit:
    """A stripe of a file elsewhere, which is downloaded when it is first read."""

    file: text_hub.HubFile | text_remote.RemoteFile
    stripe: int  # from 0 to stripes - 1
    stripes: int

    @property
    def origin(self) -> str:
        """The file that it is of, for users."""
        return self.file.address

    @property
    def name(self) -> str:
        """The name of its file, whose ending says how it is read."""
        return self.file.name

    @property
    def bytes(self) -> int:
        """The approximate size of its text."""
        return text_files.text_bytes(self.file.name, self.file.bytes) // self.stripes

    def documents(self, options: TextOptions, counts: collections.Counter) -> Iterator[str]:
        """Yields its documents; counts in `counts` what is left out or was not UTF-8."""
        return self.here().documents(options, counts)

    @property
    def is_shared(self) -> bool:
        """Whether each stripe would read what the others have read, see stripes.py."""
        return _is_shared(self.name, self.stripes)

    def here(self) -> FileUnit:
        """This unit, whose file is on this machine; downloads it."""
        return FileUnit(self.file.local_path(), self.stripe, self.stripes)


@dataclasses.dataclass(frozen=True)
class TfdsUnit:
    """Records `first` to `end - 1` of a TFDS split."""

    name: str
    split: str
    first: int
    end: int

    @property
    def origin(self) -> str:
        """The data set and split that it is of, for users."""
        return f"tfds:{self.name}:{self.split}"

    @property
    def bytes(self) -> int:
        """The approximate size of its text."""
        return (self.end - self.first) * _TFDS_RECORD_BYTES

    def documents(self, options: TextOptions, counts: collections.Counter) -> Iterator[str]:
        """Yields their texts; counts in `counts` what is left out or was not UTF-8."""
        return kept(self._texts(options, counts), options, counts)

    def _texts(self, options, counts):
        records = text_tfds.random_access(self.name, self.split)

        for begin in range(self.first, self.end, text_files.BLOCK):
            numbers = list(range(begin, min(begin + text_files.BLOCK, self.end)))
            for number, record in zip(numbers, records.__getitems__(numbers), strict=True):
                where = f"tfds:{self.name} record {number}"
                yield text_field.of_record(record, where, options, counts)


def kept(
    documents: Iterable[str], options: TextOptions, counts: collections.Counter
) -> Iterator[str]:
    """Cleans documents: strips lines, drops empty ones and NULs; leaves out short documents."""
    for document in documents:
        lines = (line.strip() for line in document.replace("\0", "").splitlines())
        document = "\n".join(line for line in lines if line)

        if not document:
            counts["empty"] += 1
        elif len(document) < options.min_document_characters:
            counts["skipped_short"] += 1
        else:
            yield document


def _name_and_rest(part):
    """('en', 'text:1.txt') of 'en=text:1.txt', and (None, itself) of what has no name."""
    match = _NAMED.fullmatch(part)
    if match is None:
        return None, part
    return unicodedata.normalize("NFC", match[1].strip()), match[2].strip()


def _names(given):
    """The names in small letters. Raises ValueError if one is too long, or two are equal."""
    taken: set[str] = set()
    for name in given:
        if not re.fullmatch(r"[\w-]+", name):
            raise ValueError(
                f"data.source calls a source {name!r}; a name has letters, digits, '-' and '_'"
                " alone: NAME=SPEC"
            )
        if len(name) > _LONGEST_NAME:
            raise ValueError(
                f"the source {name!r} has a name of {len(name)} characters; give it one of at most"
                f" {_LONGEST_NAME}"
            )
        if name.lower() in taken:  # some file systems do not distinguish En from en
            raise ValueError(f"two sources are called {name!r}; name one of them NAME=SPEC")
        taken.add(name.lower())
    return taken


def _name(spec, taken):
    """A short unique name for a source: 'text:en/*.txt.gz' -> 'en'.

    It is the last word of the path that is not a file ending; for TFDS it is the first word.
    """
    kind, _, rest = spec.partition(":")
    words = [word for word in re.split(r"[^\w-]+", unicodedata.normalize("NFC", rest)) if word]
    endings = {"txt", "jsonl", "json", "ndjson", "parquet", "gz", "xz", "zst", "bz2", "train"}
    telling = [word for word in words if word.lower() not in endings] or words or [kind]
    base = name = (telling[0] if kind == "tfds" else telling[-1])[:_LONGEST_NAME]

    number = 2
    while name.lower() in taken:
        name, number = f"{base}{number}", number + 1

    taken.add(name.lower())
    return name


def _weight(part, text):
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ValueError(f"the weight in {part!r} must be a positive number: SPEC@0.7")
    return weight
