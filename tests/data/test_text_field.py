# SPDX-License-Identifier: Apache-2.0
"""data.text_field: which fields of a record are its text, in JSON lines and in parquet alike."""

import collections
import json

import pyarrow
import pytest
from pyarrow import parquet

from electra_jax.data import text

RECORD = {
    "title": "The cat",
    "abstract": "It sat.",
    "meta": {"text": "A dog", "n": 3},
    "sections": ["One.", "", "Two."],
    "a.b": "dotted",
    "nothing": None,
    "gap": float("nan"),
}
FOUND = {
    "title": ["The cat"],
    "meta.text": ["A dog"],
    "title+abstract": ["The cat\nIt sat."],
    "abstract+missing": ["It sat."],
    "sections": ["One.\nTwo."],
    "title+sections": ["The cat\nOne.\nTwo."],
    "a.b": ["dotted"],
    "nothing": [],
    "gap": [],
}
WRONG = {
    "missing": "no (field|column) 'missing'.*title, abstract, meta, .*set data.text_field",
    "missing+gone": "no (field|column) 'missing.gone'",
    "meta": "field 'meta' is dict, not text; set data.text_field to a text field",
    "meta.n": "field 'meta.n' is int, not text",
    "title.x": "no field 'title.x'",
}


@pytest.fixture(params=["jsonl", "parquet"])
def file(tmp_path, request):
    path = tmp_path / f"a.{request.param}"
    if request.param == "jsonl":
        path.write_text(json.dumps(RECORD) + "\n")
    else:
        parquet.write_table(pyarrow.Table.from_pylist([RECORD]), path)
    return path


def read(file, field):
    (source,) = text.parse(f"text:{file}")
    counts, options = collections.Counter(), text.Options(text_field=field)
    return [one for unit in text.units(source) for one in unit.documents(options, counts)]


@pytest.mark.parametrize(("field", "documents"), FOUND.items())
def test_a_field_names_the_text(file, field, documents):
    assert read(file, field) == documents


@pytest.mark.parametrize(("field", "message"), WRONG.items())
def test_what_is_no_text_is_refused(file, field, message):
    with pytest.raises(ValueError, match=message) as error:
        read(file, field)
    assert str(file) in str(error.value) and "\n" not in str(error.value)
