# SPDX-License-Identifier: Apache-2.0
"""Reads TSV, CSV, JSONL, parquet and plain lines as rows, each with the place it came from.

    index \\t sentence \\t label   the header names the columns
    0 \\t It 's " fine " . \\t 1   ->  TableRow('dev.tsv:2', '0', 'It \\'s " fine " .', None, '1')

In TSV a quotation mark is an ordinary character; in CSV it may enclose commas and line ends. A row
with too few or too many cells raises an error that names its line or, with odd_rows='skip', is
skipped and counted. It is never repaired, because guessing would move texts into other columns.
"""

import csv
import io
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from electra_jax.finetuning.tasks import examples, files, parquet_records, task

RawLabel = str | tuple[str, ...] | None


class TableRow(NamedTuple):
    """One example with its label as the file spells it."""

    where: str  # file:line
    id: str | None
    a: str
    b: str | None
    label: RawLabel
    query: str | None = None


def read(
    path: str, source: task.SplitFiles, labelled: bool, where: str, report: examples.Report
) -> list[TableRow]:
    """Returns all rows of a file.

    Args:
      path: a file; in the format 'lines' it may end in '=label'.
      labelled: whether the columns of label and query are required; otherwise they may be missing.
      where: the name of the split in the report.

    Raises ValueError with file and line if a column is missing, a row has another number of cells,
    or there is no row.
    """
    kind = source.format or _FORMATS.get(files.ending(path))

    if kind == "lines":
        found = list(_lines(path, source, where, report))
    elif kind == "label_first":
        found = list(_label_first(path, source, where, report))
    elif kind in ("tsv", "csv"):
        found = list(_table(path, source, kind, labelled, where, report))
    elif kind == "jsonl":
        pairs = json_records(path, source.encoding, where, report)
        found = [of_record(record, source, place, labelled) for place, record in pairs]
    elif kind == "parquet":
        pairs = parquet_records.Table(path).records(source, labelled)
        found = [of_record(record, source, place, labelled) for place, record in pairs]
    else:
        raise ValueError(
            f"{path}: the ending does not tell the format; let it be one of"
            f" {', '.join(_FORMATS)}, or set format to one of {', '.join(task.TEXT_FORMATS)}"
        )

    if not found:
        raise ValueError(f"{path} holds no example; is it the right file?")
    return found


def plain_lines(path: str, encoding: str, where: str, report: examples.Report) -> list[TableRow]:
    """Returns each line of a file as a text without a label; the path is taken as it is.

    Raises ValueError if there is no line.
    """
    source = task.SplitFiles(files=(), encoding=encoding)
    found = list(_lines(path, source, where, report))
    if not found:
        raise ValueError(f"{path} holds no example; is it the right file?")
    return found


def json_records(
    path: str, encoding: str, where: str, report: examples.Report
) -> Iterator[parquet_records.Record]:
    """Yields (place, record) for each JSON object; one object per line.

    Raises ValueError with file and line for anything else.
    """
    for number, line in enumerate(files.lines(path, encoding), 1):
        place = f"{path}:{number}"
        if not line.strip():
            report.count(where, "blank lines skipped")
            continue

        try:
            record = files.from_json(line)
        except ValueError as error:
            raise ValueError(f"{place}: not JSON ({error}); write one object per line") from error

        if not isinstance(record, dict):
            raise ValueError(f"{place}: {type(record).__name__}, not an object of fields")
        yield place, record


def of_record(record: dict, source: task.SplitFiles, place: str, labelled: bool) -> TableRow:
    """Returns the row in a record of field names and values."""

    def value(column, needed=True):
        if column is None or (column not in record and not needed):
            return None
        if column not in record:
            raise ValueError(f"{place}: no field {column!r}; there is {', '.join(record)}")
        return record[column]

    def text(column):
        found = value(column)
        if found is not None and not isinstance(found, str):
            raise ValueError(f"{place}: field {column!r} is {type(found).__name__}, not text")
        return found

    if isinstance(source.label, tuple):
        cells = [value(column, labelled) for column in source.label]
        label = _columns_with_one(source.label, [_label_text(cell, place) for cell in cells], place)
    else:
        label = _label_text(value(source.label, labelled), place)

    identity, query = value(source.id, needed=False), value(source.query, labelled)
    return TableRow(
        place,
        None if identity is None else str(identity),
        text(source.a) or "",
        None if source.b is None else text(source.b) or "",
        label,
        _query_text(query, place),
    )


def without_label(path: str) -> tuple[str, str | None]:
    """Splits 'plot.txt=objective' into ('plot.txt', 'objective'); the label is None without '='."""
    name, equals, label = path.rpartition("=")
    return (name, label) if equals else (path, None)


def is_json_lines(path: str, source: task.SplitFiles) -> bool:
    """Returns whether a file of words is JSON lines, by its ending or by the format."""
    return "jsonl" in (source.format, _FORMATS.get(files.ending(path)))


_FORMATS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}


def _lines(path, source, where, report) -> Iterator[TableRow]:
    """Yields every line as a text; its label, if any, belongs to the whole file."""
    name, label = without_label(path) if source.format == "lines" else (path, None)
    for number, line in enumerate(files.lines(name, source.encoding), 1):
        if line.strip():
            yield TableRow(f"{name}:{number}", None, line.strip(), None, label)
        else:
            report.count(where, "blank lines skipped")


_BLANK = re.compile("[ \t]+")  # without the no-break space, which may be part of a text


def _label_first(path, source, where, report) -> Iterator[TableRow]:
    """Yields rows from lines such as 'DESC:manner How did serfdom develop ?': label, then text."""
    for number, line in enumerate(files.lines(path, source.encoding), 1):
        if not line.strip():
            report.count(where, "blank lines skipped")
            continue

        label, *text = _BLANK.split(line.strip(), maxsplit=1)
        if not text:
            raise ValueError(f"{path}:{number}: {line[:60]!r} is no label with a text behind it")
        yield TableRow(f"{path}:{number}", None, text[0], None, label)


def _table(path, source, kind, labelled, where, report) -> Iterator[TableRow]:
    """Yields the rows of a TSV or CSV file; the first row fixes the number of columns."""
    quotes = kind == "csv" if source.quotes is None else source.quotes
    cells = _cells(path, source.encoding, "," if kind == "csv" else "\t", quotes)
    head = next(cells, None)
    if head is None:
        raise ValueError(f"{path} is empty; is it the right file?")

    width = len(head[1])
    picker = _CellPicker(path, source, head[1] if source.header else None, width, labelled)
    if not source.header:
        yield picker.row(*head)

    for number, row in cells:
        # Rows of empty cells, in which tables often end, are no examples to learn from; where each
        # row is to be answered, they are empty texts.
        if _is_blank(row, width, quotes) or (labelled and not any(row)):
            report.count(where, "blank lines skipped")
        elif len(row) < width or any(row[width:]):  # empty cells at the end do no harm
            if source.odd_rows != "skip":
                raise ValueError(
                    f"{path}:{number}: {len(row)} cells where there are {width} columns; mend the"
                    " row, or leave such rows out with custom.odd_rows='skip'"
                )
            report.count(where, "rows with another number of cells skipped")
        else:
            yield picker.row(number, row)


def _is_blank(row, width, quotes):
    """Whether a line has nothing, not even empty cells; of one column only quotes show one."""
    return not any(row) and len(row) < 2 and (not quotes or len(row) < width)


def _cells(path, encoding, separator, quotes) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, cells) for each row, where `line` is the line on which the row ends."""
    if not quotes:
        for number, line in enumerate(files.lines(path, encoding), 1):
            yield number, line.split(separator)
        return

    csv.field_size_limit(_LONGEST_CELL)
    text = files.text(path, encoding)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"{path}:{reader.line_num}: {error}; if quotation marks are plain text there, set"
                " custom.quotes='off'"
            ) from error

        if row is None:
            return
        yield reader.line_num, row


class _CellPicker:
    """Picks the texts, the id, the label and the query out of the cells of a row."""

    def __init__(self, path, source, names, width, labelled):
        self._path = path
        self._names, self._width = names, width

        self._a = self._place(source.a)
        self._b = self._place(source.b)
        self._id = self._place(source.id, needed=False)
        self._query = self._place(source.query, labelled)

        self._columns = source.label if isinstance(source.label, tuple) else None
        if self._columns:
            places = [self._place(column, labelled) for column in self._columns]
            self._labels = None if None in places else places
        self._label = None if self._columns else self._place(source.label, labelled)
        self._check_apart(labelled)

    def _check_apart(self, labelled):
        """Raises ValueError if a text would be its own label; a test set has no label then."""
        places = (self._labels or ()) if self._columns else (self._label,)
        shared = [place for place in places if place is not None and place in (self._a, self._b)]
        if shared and labelled:
            raise ValueError(
                f"{self._path}: column {shared[0]} would be the text and its label; set"
                " custom.label, or custom.text and custom.pair, to another"
            )
        if shared:
            self._label = self._labels = None

    def row(self, number, row) -> TableRow:
        """Returns the row in the cells of one line."""
        where = f"{self._path}:{number}"
        if self._columns:
            marks = [row[place] for place in self._labels] if self._labels else None
            label = _columns_with_one(self._columns, marks, where) if marks else None
        else:
            label = None if self._label is None else row[self._label].strip()

        return TableRow(
            where,
            None if self._id is None else row[self._id].strip(),
            row[self._a].strip(),
            None if self._b is None else row[self._b].strip(),
            label,
            None if self._query is None else row[self._query].strip(),
        )

    def _place(self, column, needed=True):
        """Returns the number of a column, or None if it is missing and not needed."""
        if column is None:
            return None
        if isinstance(column, int):
            if -self._width <= column < self._width:
                # From the end of the header: a row may have empty cells behind its last column.
                return column % self._width
        elif self._names is None:
            raise ValueError(f"{self._path} has no header; give column {column!r} by its number")
        else:
            places = [n for n, name in enumerate(self._names) if name.strip() == column]
            if len(places) > 1:
                raise ValueError(
                    f"{self._path}:1: column {column!r} occurs {len(places)} times; give it by"
                    f" number, one of {', '.join(map(str, places))}"
                )
            if places:
                return places[0]

        if needed:
            raise ValueError(self._missing(column))
        return None

    def _missing(self, column) -> str:
        """Returns a line that says which columns there are, and how they may be separated."""
        known = ", ".join(self._names) if self._names else f"0 to {self._width - 1}"
        other = next((mark for mark in (";", "\t", "|", ",") if mark in known), "")
        hint = ""
        if self._width == 1 and other:  # the file may have another separator than its format
            known = known.replace("\t", "\\t")
            formats = {",": "give custom.format=csv", "\t": "give custom.format=tsv"}
            remedy = formats.get(other, "write commas (csv) or tabs (tsv)")
            hint = f", one column; if {other!r} separates columns, {remedy}"
        return f"{self._path}:1: no column {column!r}; there is {known[:200]}{hint}"


def _label_text(value, place) -> RawLabel:
    """Returns a label as text: 1, 1.0 and True all become '1'; a list becomes a tuple of texts."""
    if value is None or isinstance(value, str):
        return value and value.strip()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        if None in value:
            raise ValueError(f"{place}: one of several labels is missing; mend or delete it")
        return tuple(str(_label_text(part, place)) for part in value)
    if isinstance(value, float) and not math.isfinite(value):  # json reads NaN and Infinity too
        raise ValueError(f"{place}: the label is {value}, which is no number; mend or delete it")
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) else str(value)
    raise ValueError(f"{place}: a label is {type(value).__name__}, neither text nor number")


def _query_text(value, place) -> str | None:
    """Returns a query as text: 1 and 1.0 both become '1', since a column with gaps holds 1.0."""
    if isinstance(value, list | dict):
        raise ValueError(f"{place}: the query is {type(value).__name__}, neither text nor number")
    if value is None or isinstance(value, float) and math.isnan(value):  # a gap, as pandas has it
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


_LONGEST_CELL = 2**31 - 1  # characters; the default of csv refuses texts of more than 131,072
_FLAGS = {"1": True, "true": True, "1.0": True, "0": False, "false": False, "0.0": False, "": False}


def _columns_with_one(columns, cells, place) -> RawLabel:
    """Returns the names of the columns that hold a 1, or None if a cell is missing."""
    if None in cells:
        return None

    on = []
    for column, cell in zip(columns, cells):
        if cell.strip().lower() not in _FLAGS:
            raise ValueError(f"{place}: {cell!r} in column {column!r} is neither 0 nor 1")
        if _FLAGS[cell.strip().lower()]:
            on.append(str(column))
    return tuple(on)
