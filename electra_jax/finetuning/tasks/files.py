# SPDX-License-Identifier: Apache-2.0
"""Finds the files of a task by name, glob or alternatives, also inside a zip, and decodes them.

    find('glue', 'CoLA/train.tsv')                             a file
    find('data', 'conll2000.zip/conll2000/train.txt')          a member of an archive
    find('data', 'eng.train|train.txt')                        the first of the two that exists
    lines(path)                                                without the line ends \\n or \\r\\n

Endings may be in capitals too: train.TSV.GZ. Lines end only at \\n, because texts may contain
U+2028, form feeds and other line separators. A byte-order mark at the beginning is removed.
"""

import bz2
import contextlib
import fnmatch
import glob
import gzip
import json
import lzma
import os
import re
import zipfile
import zlib
from typing import Any

from electra_jax.data import text_files, vocabulary_codecs

_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
_ZIP = re.compile(r"(.*?\.zip)(?:/(.*))?", re.IGNORECASE)
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError)


def find(directory: str, pattern: str) -> list[str]:
    """Returns the sorted paths that a pattern matches in a folder, [] if there are none."""
    for alternative in pattern.split("|"):
        name = os.path.expanduser(alternative)
        path = os.path.normpath(os.path.join(directory, name))

        archive, member = _parts(path)
        if archive:
            with _readable(archive), zipfile.ZipFile(archive) as file:
                names = [n for n in file.namelist() if not n.endswith("/")]
            wanted = [member] if member in names else fnmatch.filter(names, member)
            found = [f"{archive}/{name}" for name in sorted(wanted)]
        elif os.path.isfile(path):  # an existing name wins, even if it contains glob characters
            found = [path]
        else:
            pattern_there = os.path.join(glob.escape(directory), name)
            matched = glob.glob(pattern_there, recursive=True)
            # With two `**`, glob lists a file once for each way in which they match it.
            found = sorted({os.path.normpath(p) for p in matched if os.path.isfile(p)})

        if found:
            return found
    return []


def text(path: str, encoding: str = "utf-8") -> str:
    """Returns the whole text. Raises ValueError with file and line if it cannot be decoded."""
    data = content(path)
    try:
        # Most codecs keep the byte-order mark; only 'utf-8-sig' and 'utf-16' remove it themselves.
        return data.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise ValueError(f"encoding {encoding!r} is not known; try utf-8 or latin-1") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}:{line}: byte {data[error.start]:#x} is no {encoding}; convert the file, or"
            " name its encoding, such as latin-1"
        ) from error


def content(path: str) -> bytes:
    """Returns the content of a file or archive member, decompressed by its extension.

    Raises ValueError with the path if it cannot be read.
    """
    archive, member = _parts(path)
    with _readable(path):
        if archive:
            with zipfile.ZipFile(archive) as file:
                data = file.read(member)
        else:
            with open(path, "rb") as file:
                data = file.read()

        if text_files.ends_in(path, ".gz"):
            data = gzip.decompress(data)
        elif text_files.ends_in(path, ".xz"):
            data = lzma.decompress(data)
        elif text_files.ends_in(path, ".bz2"):
            data = bz2.decompress(data)
        elif text_files.ends_in(path, ".zst"):
            import pyarrow  # noqa: PLC0415 - takes 0.3 s, and only zstd needs it

            data = pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd").read()

    return data


def from_json(text: str) -> Any:
    """Returns the value in a text, with U+FFFD for halves of characters, which are no text.

    JSON can name them, as a broken emoji does. No tokenizer accepts them, and no file can hold
    them. Raises ValueError if the text is no JSON.
    """
    value = json.loads(text)
    return _without_halves(value) if "\\ud" in text.lower() else value


def _without_halves(value):
    if isinstance(value, str):
        return vocabulary_codecs.SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_halves(one) for one in value]
    if isinstance(value, dict):
        return {_without_halves(name): _without_halves(one) for name, one in value.items()}
    return value


def lines(path: str, encoding: str = "utf-8") -> list[str]:
    """Returns the lines without line ends; the last line may lack one."""
    found = text(path, encoding).split("\n")
    if found[-1] == "":
        found.pop()
    return [line.removesuffix("\r") for line in found]


def ending(path: str) -> str:
    """Returns the file extension without compression: '.tsv' for 'x/train.TSV.gz'."""
    while text_files.ends_in(path, _COMPRESSED):
        path = os.path.splitext(path)[0]
    return os.path.splitext(path)[1].lower()


def _parts(path):
    """Returns (archive, member) of a path that leads into an existing zip file, else ('', '')."""
    match = _ZIP.fullmatch(path.replace(os.sep, "/"))
    if match and match[2] and os.path.isfile(match[1]):
        return match[1], match[2]
    return "", ""


@contextlib.contextmanager
def _readable(path):
    """Turns any error that a damaged file causes into a ValueError that names the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(f"{path} cannot be read: {reason}; is it whole?") from error
