# SPDX-License-Identifier: Apache-2.0
"""Reads parquet files as records of plain text and numbers.

    text       label
    A cat .    1      ->  ('dev.parquet:0', {'text': 'A cat .', 'label': 'good'})
    Who ?      -1     ->  ('dev.parquet:1', {'text': 'Who ?', 'label': None})

The data sets of the Hugging Face Hub have class numbers, and -1 where the class is not known. The
library `datasets`, which writes them, puts the names of the classes into the metadata of the file:

    'huggingface': {'info': {'features': {'label': {'names': ['bad', 'good'], ...}, ...}}}

Here class numbers are replaced by these names, also in lists. Without names they stay numbers. Rows
are counted from 0, as the pages of the Hub do.
"""

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from electra_jax.data import text_files
from electra_jax.finetuning.tasks import files, task

Record = tuple[str, dict[Any, Any]]  # where it is, and its fields

_UNREADABLE = (OSError, ValueError)  # pyarrow's own errors are kinds of these
_UNKNOWN = -1  # the number of a class that is not known


def is_parquet(path: str, source: task.SplitFiles) -> bool:
    """Returns whether a file of words or questions is parquet, by its ending or by the format."""
    return source.format == "parquet" or files.ending(path) == ".parquet"


class Table:
    """A parquet file whose columns are known and whose rows are not read yet."""

    def __init__(self, path: str):
        """Opens a file. Raises ValueError with its path if it is not parquet."""
        from pyarrow import parquet  # noqa: PLC0415 - takes 0.3 s, and only parquet needs it

        content = files.content(path)
        try:
            self._file = parquet.ParquetFile(io.BytesIO(content))
        except _UNREADABLE as error:
            reason = text_files.one_line(error)
            raise ValueError(f"{path} is not a parquet file: {reason}") from error

        schema = self._file.schema_arrow
        self._path, self._names = path, schema.names
        self._classes = _class_names(schema.metadata or {})

    def records(self, source: task.SplitFiles, labelled: bool) -> Iterator[Record]:
        """Yields (place, record) for each row; the fields are the columns as the source calls them.

        Args:
          labelled: whether label and query are required; otherwise they may be missing.

        Raises ValueError with the path if there is no such column, or a text is its own label.
        """
        texts = [column for column in (source.a, source.b) if column is not None]
        names = {column: self._name(column) for column in texts}
        if source.id is not None and (name := self._name(source.id, needed=False)):
            names[source.id] = name
        if source.query is not None and (name := self._name(source.query, labelled)):
            names[source.query] = name

        of_texts = [names[column] for column in texts]
        for column in source.label if isinstance(source.label, tuple) else (source.label,):
            name = None if column is None else self._name(column, labelled)
            if name in of_texts and labelled:
                raise ValueError(
                    f"{self._path}: column {name!r} would be the text and its label; set"
                    " custom.label, or custom.text and custom.pair, to another"
                )
            if name is not None and name not in of_texts:
                names[column] = name

        for place, row in self.rows(names.values()):
            yield place, {column: row[name] for column, name in names.items()}

    def rows(self, columns: Iterable[str]) -> Iterator[Record]:
        """Yields (place, record) for each row, with those of the columns that are there.

        Raises ValueError with the path if the file is damaged, and with the row for a number that
        is no class.
        """
        wanted = [column for column in dict.fromkeys(columns) if column in self._names]
        try:
            rows = self._file.read(columns=wanted).to_pylist()
        except _UNREADABLE as error:
            reason = text_files.one_line(error)
            raise ValueError(
                f"{self._path} cannot be read: {reason}; is the file whole?"
            ) from error

        for number, row in enumerate(rows):
            place = f"{self._path}:{number}"
            for column in self._classes.keys() & row.keys():
                row[column] = _named(row[column], self._classes[column], f"{place}: {column!r}")
            yield place, row

    def _name(self, column, needed=True):
        """Returns the name of a column, or None if it is missing and not needed."""
        if column in self._names:
            return column
        if isinstance(column, int) and -len(self._names) <= column < len(self._names):
            return self._names[column]
        if not needed:
            return None
        known = ", ".join(self._names)
        raise ValueError(f"{self._path}: no column {column!r}; there is {known[:200]}")


def _class_names(metadata):
    """Returns {column: names of its classes, in the order of their numbers}."""
    about = json.loads(metadata.get(b"huggingface", b"{}"))
    features = about.get("info", {}).get("features") or {}
    found = {column: _names_of(feature) for column, feature in features.items()}
    return {column: names for column, names in found.items() if names}


def _names_of(feature):
    """Returns the names of a class, or of the classes in a list; () of anything else."""
    if isinstance(feature, list):  # one way to write a list of classes; the other is below
        return _names_of(feature[0])
    if feature.get("_type") == "ClassLabel":
        return feature.get("names") or ()
    return _names_of(feature["feature"]) if "feature" in feature else ()


def _named(value, names, where):
    """Returns the name of a class number, or the names of a list of them; None for -1."""
    if isinstance(value, list):
        return [_named(part, names, where) for part in value]
    if value == _UNKNOWN:
        return None
    if not isinstance(value, int):  # null, or a name already
        return value
    if not 0 <= value < len(names):
        raise ValueError(f"{where} is {value}, which is no class of 0 to {len(names) - 1}; mend it")
    return names[value]
