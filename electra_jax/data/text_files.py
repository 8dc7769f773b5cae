# SPDX-License-Identifier: Apache-2.0
"""Reads documents from files: plain text, JSON lines and parquet, compressed or not.

    pattern        ->  matching_paths         the files, sorted
    *.parquet      ->  parquet_documents      one column
    *.jsonl, ...   ->  json_line_documents    one field of each line
    other files    ->  blank_line_documents   separated by blank lines, or by <doc ...> tags

Endings may be in capitals too: a.TXT.GZ.

`options` are text.Options; what is wrong with the text is added to `counts`. Errors are ValueErrors
of one line that name the file and the remedy.
"""

import bz2
import codecs
import collections
import glob
import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

LONGEST_DOCUMENT = 100_000_000  # characters of plain text; a worker needs over 20 bytes for each
SEPARATE = (
    "put blank lines between documents (sed G does after each line), or give JSON lines with one"
    " document each"
)
BLOCK = 256  # consecutive documents that go to the same stripe
_CHUNK = 1 << 20  # bytes per read
_BEGINNING = 1 << 16  # bytes of a file that tell whether it is text
# NUL bytes among them. Compressed data has one in 256, UTF-16 at least one in every line; text that
# was damaged may have a few, which are dropped.
_NUL_SHARE = 1e-3
_FEW_NULS = 8  # in a short file too
_LONGEST_REASON = 160  # characters of another program's message
_COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", ".7z")
_TABLES = (".csv", ".tsv")
_REPLACED = "\ufffd".encode()  # the character that stands for invalid bytes
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
    """Raises ValueError if the ending is that of an archive of several files, or of a table."""
    if ends_in(unpacked_name(path), _ARCHIVES):
        raise ValueError(f"{path} is an archive; unpack it and give its files: text:GLOB")
    if ends_in(unpacked_name(path), _TABLES):
        raise ValueError(
            f"{path} is a table, and its separators and columns would be read as text; write its"
            " column of text as .jsonl or .parquet (data.text_field names it), or as .txt with a"
            " blank line between documents"
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
    return _replaced(text, data) / max(1, len(text))


def _refuse_no_text(path, data):
    """Raises ValueError, one line, if a file that begins with these bytes is not text in UTF-8."""
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


def blank_line_documents(path: str, options: Any, counts: collections.Counter) -> Iterator[str]:
    """Yields documents of plain text, which end at blank lines.

    Between <doc ...> and </doc>, as WikiExtractor writes them, blank lines are part of the
    document.
    """
    lines: list[str] = []
    wrapped = False
    characters = 0

    for line in _lines(path, options, counts):
        characters = characters + len(line) if lines else len(line)
        if characters > LONGEST_DOCUMENT:
            raise ValueError(
                f"{path} has a document of more than {LONGEST_DOCUMENT:,} characters, since only a"
                f" blank line ends one; {SEPARATE}"
            )

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


def json_line_documents(path: str, options: Any, counts: collections.Counter) -> Iterator[str]:
    """Yields the field data.text_field of each line."""
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
        if text is None:  # a document without text, like a null in parquet
            text = ""

        if not isinstance(text, str):
            known = ", ".join(record) if isinstance(record, dict) else type(record).__name__
            raise ValueError(
                f"{path}, line {number}: no text in field {options.text_field!r} (there is:"
                f" {known}); set data.text_field"
            )

        yield text


def parquet_documents(
    path: str, options: Any, counts: collections.Counter, stripe: int, stripes: int
) -> Iterator[str]:
    """The documents of stripe k of K.

    They come from every K-th row group if the file has at least K of them, else from every K-th
    block of documents.
    """
    from pyarrow import parquet  # noqa: PLC0415 - takes 0.3 s, and only parquet needs it

    try:
        if ends_in(path, _COMPRESSED):
            with _opened(path) as stream:
                table = parquet.ParquetFile(io.BytesIO(stream.read()))
        else:
            # By default the whole column of all row groups is read before its first text.
            table = parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except _UNREADABLE as error:
        raise ValueError(f"{path} is not a parquet file: {one_line(error)}") from error

    if options.text_field not in table.schema_arrow.names:
        raise ValueError(
            f"{path} has no column {options.text_field!r}; it has"
            f" {', '.join(table.schema_arrow.names)}: set data.text_field"
        )

    groups = list(range(table.num_row_groups))
    enough = len(groups) >= stripes
    mine = groups[stripe::stripes] if enough else groups

    values = _column(table, path, options, counts, mine)
    return values if enough else striped(values, stripe, stripes)


def _column(table, path, options, counts, groups):
    """Yields the texts of some row groups, '' for a null."""
    batches = table.iter_batches(BLOCK, row_groups=groups, columns=[options.text_field])

    while True:
        try:
            batch = next(batches, None)
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} cannot be read: {one_line(error)}; is the file whole?"
            ) from error
        if batch is None:
            return

        for value in batch.column(0).to_pylist():
            where = f"{path}, column {options.text_field!r}"
            yield "" if value is None else as_text(value, where, options, counts)


def _lines(path, options, counts):
    """Yields the lines of a file, which is read and decoded in pieces of 1 MiB.

    Lines end at newlines alone, with or without a carriage return. Counts invalid UTF-8.
    """
    strict = options.invalid_utf8 == "refuse"
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict" if strict else "replace")
    read = 0
    tail: list[str] = []  # parts of a line whose end has not been read yet

    with _opened(path) as stream:
        while True:
            pending = decoder.getstate()[0]  # incomplete character at the end of the last piece

            try:
                chunk = stream.read(_CHUNK)
            except _UNREADABLE as error:
                raise ValueError(
                    f"{path} cannot be read: {one_line(error)}; is the file whole?"
                ) from error

            if not read:
                _refuse_no_text(path, chunk[:_BEGINNING])

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


def as_text(value: Any, where: str, options: Any, counts: collections.Counter) -> str:
    """The value of a field as text; decodes bytes and counts invalid UTF-8."""
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
    """The number of invalid sequences that decoding has turned into U+FFFD.

    Characters U+FFFD that are valid in the data do not count.
    """
    if "\ufffd" not in text:
        return 0
    return text.count("\ufffd") - data.count(_REPLACED)


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
