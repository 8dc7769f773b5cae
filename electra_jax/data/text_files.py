# SPDX-License-Identifier: Apache-2.0
"""Reads documents from files: plain text, JSON lines and parquet, compressed or not.

    pattern        ->  matching_paths      the files, sorted
    *.parquet      ->  parquet_documents   one column
    *.jsonl, ...   ->  documents           one field of each line
    other files    ->  documents           separated by blank lines, or by <doc ...> tags;
                                           with data.documents='files' by these tags alone, and
                                           with 'lines' by each end of a line

Endings may be in capitals too: a.TXT.GZ.

What is wrong with the text is added to `counts`. Errors are ValueErrors of one line that name the
file and the remedy.
"""

import bz2
import codecs
import collections
import contextlib
import dataclasses
import glob
import gzip
import io
import itertools
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from electra_jax.data import text_field
from electra_jax.data.text_options import TextOptions

LONGEST_DOCUMENT = 100_000_000  # characters of plain text; a worker needs over 20 bytes for each
SEPARATE = {  # data.documents -> what makes several documents out of one of plain text
    "blank_lines": "put blank lines between documents, or set data.documents=lines if each line is"
    " one",
    "lines": "put each document on a line of its own",
    "files": "set data.documents=blank_lines or lines if files hold several of them",
}
_ENDS = {
    "blank_lines": "a blank line ends one",
    "lines": "with data.documents=lines each line is one",
    "files": "with data.documents=files each file is one",
}
BLOCK = 256  # consecutive documents that go to the same stripe
_CHUNK = 1 << 20  # bytes per read
_BEGINNING = 1 << 16  # bytes of a file that tell whether it is text
# NUL bytes among them. Compressed data has one in 256, UTF-16 at least one in every line; text that
# was damaged may have a few, which are dropped.
_NUL_SHARE = 1e-3
_FEW_NULS = 8  # in a short file too
# A document within a line; a title in the tag may have a `>` in quotes.
_WHOLE_DOC = re.compile(r"""<doc (?:[^>"']|"[^"]*"|'[^']*')*>(.*)</doc>""")
_LONGEST_REASON = 160  # characters of another program's message
_COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", ".7z")
_TABLES = (".csv", ".tsv")
_MARKUP = (".xml", ".html", ".htm", ".warc")
_UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # UTF-8 text begins with neither
_UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)


def matching_paths(pattern: str) -> list[str]:
    """The files that a glob pattern matches, sorted. Raises ValueError if there are none."""
    pattern = os.path.expanduser(pattern)

    # The name of an existing file is not a pattern, even if it contains brackets.
    names = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    # With two `**`, glob lists a file once for each way in which they match it.
    found = sorted({path for path in names if os.path.isfile(path)})

    if not found and os.path.isdir(pattern):
        raise ValueError(f"text:{pattern} is a folder; its files are text:{pattern}/*")
    if not found:
        folder = os.path.abspath(os.path.dirname(re.split(r"[*?[]", pattern)[0]) or ".")
        state = "holds no such file" if os.path.isdir(folder) else "does not exist"
        raise ValueError(f"text:{pattern} matches no file; the folder {folder} {state}")

    for path in found:
        refuse_by_ending(path)
    return found


def refuse_by_ending(path: str) -> None:
    """Raises ValueError if the ending is that of an archive of several files, a table or markup."""
    if ends_in(unpacked_name(path), _ARCHIVES):
        raise ValueError(f"{path} is an archive; unpack it and give its files: text:GLOB")
    if ends_in(unpacked_name(path), _TABLES):
        raise ValueError(
            f"{path} is a table, and its separators and columns would be read as text; write its"
            " column of text as .jsonl or .parquet (data.text_field names it), or as .txt with a"
            " blank line between documents"
        )
    if ends_in(unpacked_name(path), _MARKUP):
        raise ValueError(
            f"{path} is markup, and its tags would be read as text; write out its text, as .txt"
            " with a blank line between documents, or as .jsonl (WikiExtractor does so with a dump"
            " of Wikipedia)"
        )


def text_bytes(path: str, size: int | None = None) -> int:
    """The size of a file's text; four times the file's size if it is compressed.

    `size` is that of a file which is not on this machine.
    """
    size = os.path.getsize(path) if size is None else size
    return size * (4 if is_compressed(path) else 1)


def ends_in(path: str, endings: str | tuple[str, ...]) -> bool:
    """Returns whether the path has one of these endings, in small letters or in capitals."""
    return path.lower().endswith(endings)


def unpacked_name(path: str) -> str:
    """The path without the endings of compression."""
    while ends_in(path, _COMPRESSED):
        path = os.path.splitext(path)[0]
    return path


def invalid_share(path: str) -> float:
    """The share of characters in the beginning of a file that are not UTF-8; 0 of parquet.

    A file that cannot be read has none: whoever reads it to its end says what is wrong. Raises
    ValueError, one line, if the file is not text.
    """
    if ends_in(unpacked_name(path), ".parquet"):
        return 0.0

    try:
        with _opened(path) as stream:
            data = stream.read(_BEGINNING)
    except _UNREADABLE:
        return 0.0

    _refuse_no_text(path, data)
    text = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data)
    return text_field.replaced(text, data) / max(1, len(text))


def _refuse_no_text(path, data):
    """Raises ValueError, one line, if a file that begins with these bytes is not text in UTF-8."""
    if data.startswith(_UTF_32):  # first: the mark of one order begins with that of UTF-16
        raise ValueError(f"{path} is UTF-32; convert it: iconv -f UTF-32 -t UTF-8")
    if data.startswith(_UTF_16):
        raise ValueError(f"{path} is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")

    if (nuls := data.count(b"\0")) > max(_FEW_NULS, _NUL_SHARE * len(data)):
        raise ValueError(
            f"{path} is not text: {nuls:,} of its first {len(data):,} bytes are NUL; leave it out"
            " of data.source, or convert it if it is UTF-16: iconv -f UTF-16LE -t UTF-8"
        )


def striped(documents: Iterable[str], stripe: int, stripes: int) -> Iterator[str]:
    """Yields every `stripes`-th block of documents, beginning with block number `stripe`."""
    for number, document in enumerate(documents):
        if stripe_of(number, stripes) == stripe:
            yield document


def stripe_of(number: int, stripes: int) -> int:
    """The stripe of a document by its number within the file."""
    return number // BLOCK % stripes


def is_compressed(path: str) -> bool:
    """Returns whether a file has to be decompressed from its beginning to be read."""
    return ends_in(path, _COMPRESSED)


@dataclasses.dataclass(frozen=True)
class FilePart:
    """Bytes `first` to `end - 1` of a file; `line` is the number of their first line, from 1."""

    first: int = 0
    end: int | None = None  # None: to the end
    line: int = 1


WHOLE = FilePart()


def documents(
    path: str,
    options: TextOptions,
    counts: collections.Counter,
    parts: Iterable[FilePart] = (WHOLE,),
) -> Iterator[str]:
    """Yields the documents of a file that is no parquet, or of parts of it, see `blocks`.

    Of JSON lines they are the field data.text_field, '' for a record that lacks it. Those of plain
    text end at blank lines or, with data.documents='files', with the file, or with 'lines' with
    each line. Lines between <doc ...> and </doc>, as WikiExtractor writes them, are one document
    with any of them, blank ones too.
    """
    parts = list(parts)
    with _opened(path) as stream:
        found = (
            (number, record)
            for part in parts
            for (_, number), record in _records(stream, path, options, counts, part)
        )
        if is_json_lines(path):
            from_beginning = any(part.first == 0 for part in parts)
            yield from _fields(path, found, options, counts, from_beginning)
        else:
            yield from (document for _, document in found)


def blocks(path: str, options: TextOptions, counts: collections.Counter) -> np.ndarray:
    """[n, 3] `first`, `end` and `line` of parts of BLOCK documents each, the last with fewer.

    The file is read to its end, but no JSON of it. It must be neither compressed nor parquet.
    """
    with _opened(path) as stream:
        found = enumerate(_records(stream, path, options, counts, WHOLE))
        starts = [place for number, (place, _) in found if number % BLOCK == 0]
    first, line = np.array(starts, np.int64).reshape(-1, 2).T
    return np.stack([first, np.append(first[1:], os.path.getsize(path))[: len(first)], line], 1)


def is_json_lines(path: str) -> bool:
    """Returns whether each line of a file is a document, as JSON."""
    return ends_in(unpacked_name(path), (".jsonl", ".json", ".ndjson"))


def why_long(kind: str) -> str:
    """Why a document of plain text is long, and what to do. `kind` is data.documents."""
    return f"since {_ENDS[kind]}; {SEPARATE[kind]}, or give JSON lines with one document each"


def first_records(path: str, options: TextOptions) -> list[dict]:
    """The first BLOCK records of a file of JSON lines or parquet; [] of any other.

    Records behind one that cannot be read are left out: whoever reads the file says why.
    """
    found: list[dict] = []
    with contextlib.suppress(*_UNREADABLE):
        if ends_in(unpacked_name(path), ".parquet"):
            batch = next(_parquet(path).iter_batches(BLOCK), None)
            found = [] if batch is None else batch.to_pylist()
        elif is_json_lines(path):
            with _opened(path) as stream:
                lines = _records(stream, path, options, collections.Counter(), WHOLE)
                for _, line in itertools.islice(lines, BLOCK):
                    if isinstance(record := json.loads(line), dict):
                        found.append(record)
    return found


def _records(stream, path, options, counts, part):
    """Yields (place, document) of plain text, (place, line) of JSON lines; see `_lines`."""
    lines = _lines(stream, path, options, counts, part)
    fields = is_json_lines(path)

    if fields or options.documents == "files":  # then no blank line is left to end a document
        lines = ((place, line) for place, line in lines if line.strip())
    return lines if fields else _documents_of_lines(path, lines, options)


def _documents_of_lines(path, numbered, options):
    """Yields (place, document) of plain text; `numbered` are (place, line), see `_lines`."""
    lines: list[str] = []
    wrapped = False
    start, characters = None, 0  # where the document begins, and its length

    for place, line in numbered:
        characters = characters + len(line) if lines else len(line)
        if characters > LONGEST_DOCUMENT:
            raise ValueError(
                f"{path} has a document of more than {LONGEST_DOCUMENT:,} characters,"
                f" {why_long(options.documents)}"
            )

        if line.startswith("<doc ") and line.rstrip().endswith(">"):
            if lines:
                yield start, "\n".join(lines)
            start, lines, wrapped = place, [], True
            if (whole := _WHOLE_DOC.fullmatch(line.rstrip())) is not None:
                yield start, whole[1]
                wrapped = False
        elif wrapped and line.rstrip().endswith("</doc>"):
            lines.append(line.rstrip().removesuffix("</doc>"))
            yield start, "\n".join(lines)
            lines, wrapped = [], False
        elif wrapped or line.strip():
            if not lines and not wrapped:
                start = place
            lines.append(line)
            if options.documents == "lines" and not wrapped:
                yield start, line
                lines = []
        elif lines:
            yield start, "\n".join(lines)
            lines = []

    if lines:
        yield start, "\n".join(lines)


def _fields(path, numbered, options, counts, from_beginning):
    """Yields the text of each line of JSON, '' if it lacks the field.

    A field that none of the first BLOCK records of a file has, or of all if there are fewer, is
    misspelt: raises MissingFieldError. Only a reading from the beginning of the file checks this.
    """
    first_error, there = None, False
    for count, (number, line) in enumerate(numbered, 1):
        try:
            text, there = _field(path, number, line, options, counts), True
        except text_field.MissingFieldError as error:
            first_error, text = first_error or error, ""
            if from_beginning and not there and count == BLOCK:
                raise first_error from None
        yield text

    if first_error and not there and from_beginning:
        raise first_error


def _field(path, number, line, options, counts):
    """The text of a line of JSON."""
    try:
        record = json.loads(line)
    except ValueError as error:
        if number == 1 and (line.lstrip().startswith("[") or line.strip() == "{"):
            raise _not_by_lines(path, line) from error
        raise ValueError(f"{path}, line {number}: not JSON ({error}); mend or delete it") from error

    if number == 1 and isinstance(record, list) and all(isinstance(x, dict) for x in record):
        raise _not_by_lines(path, line)
    if not isinstance(record, dict):
        raise ValueError(
            f"{path}, line {number}: {type(record).__name__}, not an object with the field"
            f" {options.text_field!r}; mend or delete it"
        )
    return text_field.of_record(record, f"{path}, line {number}", options, counts)


def _not_by_lines(path, line):
    """The error for a file of JSON that begins with this line and has no record on each line."""
    is_list = line.lstrip().startswith("[")
    what, way = ("is one list of records", "'.[]'") if is_list else ("breaks its records", ".")
    return ValueError(
        f"{path} {what}, and each line must be a record of its own; write them so, as jq -c {way}"
        " does, and name that file"
    )


def parquet_documents(
    path: str, options: TextOptions, counts: collections.Counter, stripe: int, stripes: int
) -> Iterator[str]:
    """The documents of stripe k of K.

    They come from every K-th row group if the file has at least K of them, else from every K-th
    block of documents.
    """
    table = _parquet(path)
    if not text_field.columns(options.text_field, table.schema_arrow.names):
        raise ValueError(
            f"{path} has no column {options.text_field!r}; it has"
            f" {', '.join(table.schema_arrow.names)}: set data.text_field"
        )

    groups = list(range(table.num_row_groups))
    enough = len(groups) >= stripes
    mine = groups[stripe::stripes] if enough else groups
    if not enough and stripe:  # the first stripe reads the same and counts it
        counts = collections.Counter()

    values = _column(table, path, options, counts, mine)
    return values if enough else striped(values, stripe, stripes)


def _parquet(path):
    """An open parquet file. Raises ValueError, one line, if it is none."""
    from pyarrow import parquet  # noqa: PLC0415 - takes 0.3 s, and only parquet needs it

    try:
        if ends_in(path, _COMPRESSED):
            with _opened(path) as stream:
                return parquet.ParquetFile(io.BytesIO(stream.read()))
        # By default the whole column of all row groups is read before its first text.
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a parquet file: {one_line(error)}") from error


def _column(table, path, options, counts, groups):
    """Yields the texts of some row groups, '' for a null."""
    columns = text_field.columns(options.text_field, table.schema_arrow.names)
    batches = table.iter_batches(BLOCK, row_groups=groups, columns=columns)

    while True:
        try:
            batch = next(batches, None)
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} cannot be read: {one_line(error)}; is the file whole?"
            ) from error
        if batch is None:
            return

        for record in batch.to_pylist():
            yield text_field.of_record(record, path, options, counts)


def _lines(stream, path, options, counts, part):
    """Yields ((byte, number), line): where each line of the part begins, and its number in the
    file.

    The file is read in pieces of 1 MiB and decoded in whole lines, which end at newlines alone,
    with or without a carriage return. Counts invalid UTF-8.
    """
    byte, number, left = part.first, part.line, part.end and part.end - part.first
    tail: list[bytes] = []  # parts of a line whose end has not been read yet
    if byte != 0:
        stream.seek(byte)

    while True:
        try:
            chunk = stream.read(_CHUNK if left is None else min(_CHUNK, left))
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} cannot be read: {one_line(error)}; is the file whole?"
            ) from error

        if part is WHOLE and not byte and not tail:
            _refuse_no_text(path, chunk[:_BEGINNING])
        left = left and left - len(chunk)

        whole, newline, rest = chunk.rpartition(b"\n")
        tail.append(whole if newline or not chunk else chunk)
        if chunk and not newline:
            continue

        data, tail = b"".join(tail), [rest]
        if data or newline:
            text = _decoded(path, byte, data, options, counts)
            for raw, line in zip(data.split(b"\n"), text.split("\n")):
                yield (byte, number), line.removesuffix("\r")
                byte, number = byte + len(raw) + 1, number + 1

        if not chunk:
            return


def _decoded(path, byte, data, options, counts):
    """The text of whole lines that begin at this byte of a file, without a byte-order mark."""
    if not byte and data.startswith(codecs.BOM_UTF8):
        byte, data = len(codecs.BOM_UTF8), data.removeprefix(codecs.BOM_UTF8)

    try:
        text = data.decode("utf-8", "strict" if options.invalid_utf8 == "refuse" else "replace")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: invalid UTF-8 near byte {byte + error.start}; mend the file or set"
            " data.invalid_utf8=replace"
        ) from error

    if replaced := text_field.replaced(text, data):
        counts["invalid_utf8"] += replaced
    return text


def _opened(path):
    """Opens a file for reading bytes, decompressed by its ending."""
    if ends_in(path, ".gz"):
        return gzip.open(path, "rb")
    if ends_in(path, ".xz"):
        return lzma.open(path, "rb")
    if ends_in(path, ".bz2"):
        return bz2.open(path, "rb")
    if ends_in(path, ".zst"):
        import pyarrow  # noqa: PLC0415 - takes 0.3 s, and only zstd needs it

        return pyarrow.CompressedInputStream(pyarrow.OSFile(path), "zstd")
    return open(path, "rb")


def reason(error: Exception) -> str:
    """The kind and the message of an error, on one line; its kind alone if it has no message."""
    return ": ".join(filter(None, (type(error).__name__, one_line(error))))


def one_line(error: Exception) -> str:
    """The message of an error, on one line; a long one ends at a word, its parentheses closed."""
    line = " ".join(str(error).split())
    if len(line) <= _LONGEST_REASON:
        return line

    kept = line[:_LONGEST_REASON].rpartition(" ")[0] or line[:_LONGEST_REASON]
    return f"{kept} ..." + ")" * max(0, kept.count("(") - kept.count(")"))
