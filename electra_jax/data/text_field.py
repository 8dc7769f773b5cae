# SPDX-License-Identifier: Apache-2.0
"""The text of a record: what data.text_field names in a line of JSON, a row of parquet, of TFDS.

    text              the field of this name
    meta.text         a field within a field
    title+abstract    several, each of which begins a line; records may lack some of them
    a list of texts   its items are lines

A field that has the whole name comes first, so dots and plus signs may be part of names.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_jax.data.text_options import TextOptions

_REPLACED = "\ufffd".encode()  # the character that stands for invalid bytes


class MissingFieldError(ValueError):
    """A record has none of the fields that data.text_field names."""


def of_record(
    record: Mapping[str, Any], where: str, options: TextOptions, counts: collections.Counter
) -> str:
    """The text of a record; '' for null and for NaN, as in parquet from a table with gaps.

    Args:
      where: what messages call the record.
      counts: counts what was not UTF-8.

    Raises ValueError, one line, if it is no text, and MissingFieldError if there is no such field.
    """
    parts = _parts(options.text_field, record)
    found = {part: _value(record, part) for part in parts}
    there = {part: value for part, value in found.items() if value is not _MISSING}
    if not there:
        raise MissingFieldError(
            f"{where}: no field {options.text_field!r} (there is: {', '.join(record)}); set"
            " data.text_field"
        )

    lines = []
    for part, value in there.items():
        value = value.tolist() if isinstance(value, np.ndarray) else value
        items = value if isinstance(value, list) else [value]
        named = f"{where}, field {part!r}"
        lines += [text for item in items if (text := as_text(item, named, options, counts))]
    return "\n".join(lines)


def columns(text_field: str, known: Sequence[str]) -> list[str]:
    """The columns of a table that hold the text; empty if there are none."""
    parts = _parts(text_field, known)
    tops = (part if part in known else part.partition(".")[0] for part in parts)
    return list(dict.fromkeys(top for top in tops if top in known))


def missing(text_field: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Those of several fields that none of the records has; empty without records."""
    left: list[str] | None = None
    for record in records:
        lacks = [part for part in _parts(text_field, record) if _value(record, part) is _MISSING]
        left = lacks if left is None else [part for part in left if part in lacks]
        if not left:
            break
    return left or []


def as_text(value: Any, where: str, options: TextOptions, counts: collections.Counter) -> str:
    """A value as text; decodes bytes and counts invalid UTF-8. '' for null and NaN.

    Raises ValueError, one line, if it is something else.
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
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
        counts["invalid_utf8"] += replaced(text, value)
        return text


def replaced(text: str, data: bytes) -> int:
    """The number of invalid sequences that decoding has turned into U+FFFD.

    Characters U+FFFD that are valid in the data do not count.
    """
    if "\ufffd" not in text:
        return 0
    return text.count("\ufffd") - data.count(_REPLACED)


_MISSING = object()


def _parts(text_field: str, known: Iterable[str]) -> list[str]:
    return [text_field] if text_field in known else text_field.split("+")


def _value(record, path):
    """The value at a path; _MISSING if there is none."""
    if path in record:
        return record[path]
    first, dot, rest = path.partition(".")
    inner = record.get(first, _MISSING) if dot else _MISSING
    if inner is None:  # null is a record without anything
        return None
    return _value(inner, rest) if isinstance(inner, Mapping) else _MISSING
