# SPDX-License-Identifier: Apache-2.0
"""Where text comes from: sources, cut into independent units, read as documents.

    'text:en/*.txt@3; builtin@1'  ->  parse  ->  Source, Source
    Source                        ->  units  ->  pieces of work that do not know each other
    unit.documents(...)           ->  documents: lines (sentences) joined by newlines

What the units are depends on the files alone, never on the number of cores. A large file is cut
into stripes: stripe k of K reads the whole file and keeps every K-th block of 256 documents, since
reading costs a tenth of tokenising and works for compressed files too; parquet gives it every K-th
row group instead.
"""

import bz2
import codecs
import collections
import dataclasses
import glob
import gzip
import importlib
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from typing import Any

from electra_jax.data import builtin

BLOCK = 256  # neighbouring documents that stay in one stripe
_STRIPE_BYTES = 32 << 20  # of text
_STRIPES = 64  # of one file, at most
_TFDS_UNIT = 20_000  # records
_TFDS_RECORD_BYTES = 3_000  # of text, roughly; Wikipedia's mean
_CHUNK = 1 << 20
_COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", ".7z")
_REPLACED = "\ufffd".encode()
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # no UTF-8 begins with either


@dataclasses.dataclass(frozen=True)
class Source:
    """One part of `data.source`."""

    spec: str  # without its weight
    name: str  # short, unique, fit for a file name and a metric
    weight: float | None


@dataclasses.dataclass(frozen=True)
class Options:
    """How text is read."""

    text_field: str = "text"
    invalid_utf8: str = "replace"
    min_document_characters: int = 0


def parse(data_source: str) -> tuple[Source, ...]:
    """'SPEC@WEIGHT; SPEC@WEIGHT' -> sources. Raises ValueError, one line, for anything else."""
    sources: list[Source] = []
    taken: set[str] = set()
    for part in filter(None, (part.strip() for part in data_source.split(";"))):
        match = re.fullmatch(r"(.*?)@([0-9.eE+-]+)", part)
        spec, weight = (match[1].strip(), _weight(part, match[2])) if match else (part, None)
        kind = spec.partition(":")[0]
        if spec != "builtin" and (kind not in ("text", "tfds") or spec.endswith(":")):
            raise ValueError(
                f"data.source {spec!r} is none of builtin, text:GLOB, tfds:NAME[/CONFIG][:SPLIT]"
            )
        sources.append(Source(spec, _name(spec, taken), weight))
    if not sources:
        raise ValueError("data.source is empty; try builtin, text:GLOB or tfds:NAME")
    weighted = sum(source.weight is not None for source in sources)
    if 0 < weighted < len(sources):
        raise ValueError(
            f"{weighted} of {len(sources)} sources of data.source have a weight; give each one"
            " '@WEIGHT', or none (then data.mixture_alpha decides)"
        )
    return tuple(sources)


def fingerprint(source: Source) -> list[tuple[str, int]]:
    """(name, size) of all that the source reads: changed files are another corpus."""
    kind, _, rest = source.spec.partition(":")
    if kind == "builtin":
        return builtin.identity()
    if kind == "tfds":  # the version tells, without a download
        name, split = _tfds_name(rest)
        return [(f"{_tfds_builder(name).info.full_name}:{split}", 0)]
    return [(path, os.path.getsize(path)) for path in _paths(rest)]


def size(source: Source) -> int:
    """About how many bytes of text a source has; prepares a TFDS source."""
    kind, _, rest = source.spec.partition(":")
    if kind == "builtin":
        return builtin.BYTES
    if kind == "tfds":
        name, split = _tfds_name(rest)
        records = len(_tfds_source(name, split))
        return records * _TFDS_RECORD_BYTES
    return sum(_text_bytes(path) for path in _paths(rest))


def units(source: Source) -> list[Any]:
    """The source's pieces of work: picklable, each with `documents(options, counts)`."""
    kind, _, rest = source.spec.partition(":")
    if kind == "builtin":
        return [BuiltinUnit(part) for part in builtin.parts()]
    if kind == "tfds":
        name, split = _tfds_name(rest)
        size = len(_tfds_source(name, split))
        starts = range(0, size, _TFDS_UNIT)
        return [TfdsUnit(name, split, i, min(i + _TFDS_UNIT, size)) for i in starts]
    found = []
    for path in _paths(rest):
        stripes = min(_STRIPES, max(1, round(_text_bytes(path) / _STRIPE_BYTES)))
        found += [FileUnit(path, stripe, stripes) for stripe in range(stripes)]
    return found


@dataclasses.dataclass(frozen=True)
class BuiltinUnit:
    """One part of the builtin corpus."""

    part: builtin.Part

    def documents(self, options: Options, counts: collections.Counter) -> Iterator[str]:
        """Its documents; fills `counts`."""
        return _kept(self.part.documents(), options, counts)


@dataclasses.dataclass(frozen=True)
class FileUnit:
    """A stripe of a file."""

    path: str
    stripe: int
    stripes: int

    def documents(self, options: Options, counts: collections.Counter) -> Iterator[str]:
        """Its documents; fills `counts` (each stripe with what is its own)."""
        # Every stripe reads all bytes; what is wrong with them is counted by the first alone.
        reading = counts if self.stripe == 0 else collections.Counter()
        base = _unpacked_name(self.path)
        if base.endswith(".parquet"):
            found = _parquet(self.path, options, reading, self.stripe, self.stripes)
        elif base.endswith((".jsonl", ".json", ".ndjson")):
            found = self._mine(_json_lines(self.path, options, reading))
        else:
            found = self._mine(_plain(self.path, options, reading))
        return _kept(found, options, counts)

    def _mine(self, documents):
        return _striped(documents, self.stripe, self.stripes)


@dataclasses.dataclass(frozen=True)
class TfdsUnit:
    """Records first .. last - 1 of a TFDS split."""

    name: str
    split: str
    first: int
    last: int

    def documents(self, options: Options, counts: collections.Counter) -> Iterator[str]:
        """Their texts; fills `counts`."""
        return _kept(self._texts(options, counts), options, counts)

    def _texts(self, options, counts):
        records = _tfds_source(self.name, self.split)
        for begin in range(self.first, self.last, BLOCK):
            numbers = list(range(begin, min(begin + BLOCK, self.last)))
            for number, record in zip(numbers, records.__getitems__(numbers), strict=True):
                if options.text_field not in record:
                    raise ValueError(
                        f"tfds:{self.name} has no field {options.text_field!r}; it has"
                        f" {', '.join(record)}: set data.text_field"
                    )
                where = f"tfds:{self.name} record {number}"
                yield _as_text(record[options.text_field], where, options, counts)


def _kept(documents, options, counts):
    """Cleans documents, and leaves out what is empty or too short."""
    for document in documents:
        lines = (line.strip() for line in document.replace("\0", "").splitlines())
        document = "\n".join(line for line in lines if line)
        if not document:
            counts["empty"] += 1
        elif len(document) < options.min_document_characters:
            counts["skipped_short"] += 1
        else:
            yield document


def _striped(documents, stripe, stripes):
    """Every `stripes`-th block of documents."""
    for number, document in enumerate(documents):
        if number // BLOCK % stripes == stripe:
            yield document


def _plain(path, options, counts):
    """Blank lines end documents; inside <doc ...> ... </doc> only </doc> does."""
    lines: list[str] = []
    wrapped = False
    for line in _lines(path, options, counts):
        if line.startswith("<doc ") and line.rstrip().endswith(">"):
            if lines:
                yield "\n".join(lines)
            lines, wrapped = [], True
        elif wrapped and line.rstrip().endswith("</doc>"):
            lines.append(line.rstrip().removesuffix("</doc>"))
            yield "\n".join(lines)
            lines, wrapped = [], False
        elif wrapped or line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _json_lines(path, options, counts):
    for number, line in enumerate(_lines(path, options, counts), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: not JSON ({error}); mend or delete it"
            ) from error
        text = record.get(options.text_field, 0) if isinstance(record, dict) else 0
        if text is None:  # a document without text, as a null in parquet
            text = ""
        if not isinstance(text, str):
            known = ", ".join(record) if isinstance(record, dict) else type(record).__name__
            raise ValueError(
                f"{path}, line {number}: no text in field {options.text_field!r} (there is:"
                f" {known}); set data.text_field"
            )
        yield text


def _parquet(path, options, counts, stripe, stripes):
    """The stripe's documents: whole row groups, where there are enough of them, else blocks."""
    from pyarrow import parquet  # noqa: PLC0415 - 0.3 s that only parquet needs

    try:
        if path.endswith(_COMPRESSED):
            with _opened(path) as stream:
                table = parquet.ParquetFile(io.BytesIO(stream.read()))
        else:
            table = parquet.ParquetFile(path)
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a parquet file: {_one_line(error)}") from error
    if options.text_field not in table.schema_arrow.names:
        raise ValueError(
            f"{path} has no column {options.text_field!r}; it has"
            f" {', '.join(table.schema_arrow.names)}: set data.text_field"
        )
    groups = list(range(table.num_row_groups))
    enough = len(groups) >= stripes
    mine = groups[stripe::stripes] if enough else groups
    values = _column(table, path, options, counts, mine)
    return values if enough else _striped(values, stripe, stripes)


def _column(table, path, options, counts, groups):
    batches = table.iter_batches(BLOCK, row_groups=groups, columns=[options.text_field])
    while True:
        try:
            batch = next(batches, None)
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} cannot be read: {_one_line(error)}; is the file whole?"
            ) from error
        if batch is None:
            return
        for value in batch.column(0).to_pylist():
            where = f"{path}, column {options.text_field!r}"
            yield "" if value is None else _as_text(value, where, options, counts)


def _lines(path, options, counts):
    """The lines of a file, decoded in pieces, so that a file without newlines fits in memory."""
    strict = options.invalid_utf8 == "refuse"
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict" if strict else "replace")
    read = 0
    tail: list[str] = []
    with _opened(path) as stream:
        while True:
            pending = decoder.getstate()[0]  # the beginning of a character, from the last piece
            try:
                chunk = stream.read(_CHUNK)
            except _UNREADABLE as error:
                raise ValueError(
                    f"{path} cannot be read: {_one_line(error)}; is the file whole?"
                ) from error
            if not read and chunk.startswith(_UTF_16):
                raise ValueError(f"{path} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}: invalid UTF-8 near byte {read - len(pending) + error.start}; mend"
                    " the file or set data.invalid_utf8=replace"
                ) from error
            if replaced := _replaced(text, pending + chunk):
                counts["invalid_utf8"] += replaced
            read += len(chunk)
            first, *others = text.split("\n")
            tail.append(first)
            if others:
                yield "".join(tail).removesuffix("\r")
                yield from (line.removesuffix("\r") for line in others[:-1])
                tail = [others[-1]]
            if not chunk:
                last = "".join(tail)
                if last:
                    yield last.removesuffix("\r")
                return


def _as_text(value, where, options, counts):
    """A field's value, which may be undecoded, as text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise ValueError(
            f"{where} is {type(value).__name__}, not text; set data.text_field to a text field"
        )
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        if options.invalid_utf8 == "refuse":
            raise ValueError(
                f"{where}: invalid UTF-8 at byte {error.start}; set data.invalid_utf8=replace"
            ) from error
        text = value.decode("utf-8", "replace")
        counts["invalid_utf8"] += _replaced(text, value)
        return text


def _replaced(text, data):
    """How many bad sequences became U+FFFD, not counting those that were U+FFFD before."""
    if "\ufffd" not in text:
        return 0
    return text.count("\ufffd") - data.count(_REPLACED)


_UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


def _one_line(error):
    return " ".join(str(error).split())[:160]


def _unpacked_name(path):
    while path.endswith(_COMPRESSED):
        path = os.path.splitext(path)[0]
    return path


def _opened(path):
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    if path.endswith(".xz"):
        return lzma.open(path, "rb")
    if path.endswith(".bz2"):
        return bz2.open(path, "rb")
    if path.endswith(".zst"):
        import pyarrow  # noqa: PLC0415 - 0.3 s that only zstd needs

        return pyarrow.CompressedInputStream(pyarrow.OSFile(path), "zstd")
    return open(path, "rb")


def _paths(pattern):
    pattern = os.path.expanduser(pattern)
    # A name that is there is meant as it stands, brackets and all.
    names = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    found = sorted(path for path in names if os.path.isfile(path))
    if not found and os.path.isdir(pattern):
        raise ValueError(f"text:{pattern} is a folder; its files are text:{pattern}/*")
    if not found:
        folder = os.path.abspath(os.path.dirname(re.split(r"[*?[]", pattern)[0]) or ".")
        state = "holds no such file" if os.path.isdir(folder) else "does not exist"
        raise ValueError(f"text:{pattern} matches no file; the folder {folder} {state}")
    for path in found:
        if _unpacked_name(path).endswith(_ARCHIVES):
            raise ValueError(f"{path} is an archive; unpack it and give its files: text:GLOB")
    return found


def _tfds_name(rest):
    name, _, split = rest.partition(":")
    return name, split or "train"


def _tfds_builder(name):
    """The builder of a data set; TensorFlow is never imported and nothing is downloaded."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 - a second that only TFDS needs

    try:
        importlib.import_module("tensorflow_datasets.text")  # registers wikipedia, c4, glue
        return tfds.builder(name, file_format="array_record")
    except Exception as error:  # whatever an unknown name makes TFDS raise
        raise ValueError(
            f"tfds:{name} is not known ({_reason(error)}); your own files: data.source=text:GLOB"
        ) from error


def _tfds_source(name, split):
    """The split as a random-access sequence, downloaded and prepared if need be."""
    builder = _tfds_builder(name)
    try:
        builder.download_and_prepare()
        return builder.as_data_source(split=split)
    except Exception as error:  # whatever a missing network, split or extra makes TFDS raise
        raise ValueError(
            f"tfds:{name}:{split} cannot be had ({_reason(error)}); without network or the extra"
            " electra_jax[wikipedia], read your own files: data.source=text:GLOB"
        ) from error


def _reason(error):
    return f"{type(error).__name__}: {_one_line(error)}"


def _text_bytes(path):
    """The size of a file's text; a compressed one holds about four times its size."""
    return os.path.getsize(path) * (4 if path.endswith(_COMPRESSED) else 1)


def _name(spec, taken):
    """'text:en/*.txt.gz' -> 'en': the last telling word of a spec, made unique."""
    kind, _, rest = spec.partition(":")
    words = [word for word in re.split(r"[^0-9A-Za-z_-]+", rest) if word]
    endings = {"txt", "jsonl", "json", "parquet", "gz", "xz", "zst", "bz2", "train"}
    telling = [word for word in words if word not in endings] or words or [kind]
    base = name = (telling[0] if kind == "tfds" else telling[-1])[:40]
    number = 2
    while name.lower() in taken:  # some file systems take En and en for one
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
