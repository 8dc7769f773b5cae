# SPDX-License-Identifier: Apache-2.0
"""data.text_field: which fields of a record are its text, in JSON lines and in parquet alike."""

import collections
import json

import pyarrow
import pytest
from pyarrow import parquet

from electra_jax.data import planning, preparation, text, text_warnings
from electra_jax.data.text_options import TextOptions
from support.corpus import text_settings

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
    counts, options = collections.Counter(), TextOptions(text_field=field)
    return [one for unit in text.units(source) for one in unit.documents(options, counts)]


@pytest.mark.parametrize(("field", "documents"), FOUND.items())
def test_a_field_names_the_text(file, field, documents):
    assert read(file, field) == documents


@pytest.mark.parametrize(("field", "message"), WRONG.items())
def test_what_is_no_text_is_refused(file, field, message):
    with pytest.raises(ValueError, match=message) as error:
        read(file, field)
    assert str(file) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "missing"),
    [("title+abstract", ""), ("title+abstrakt", "abstrakt"), ("titel+abstract", "titel")],
)
def test_one_of_several_fields_that_no_record_has_is_named(file, field, missing):
    settings = text_settings(f"text:{file}", "train:sentencepiece:64", 16, text_field=field)
    tasks = planning.make_tasks(planning.make_plan(settings, str(file.parent)))
    said = text_warnings.missing_fields(tasks)
    if not missing:
        assert not said
        return
    assert f"none of the first 1 records has the field {missing!r} of data.text_field=" in said
    assert "there is title, abstract, meta, " in said


def test_a_field_that_some_records_have_is_not_misspelt(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title": "One"}\nbroken\n')  # the rest is not looked at
    (tmp_path / "b.jsonl").write_text('{"title": "Two", "abstract": null}\n')
    (tmp_path / "c.txt").write_text("plain text\n")
    a, b, c = (f"text:{tmp_path}/{name}.*" for name in "abc")
    said = {a: True, b: False, c: False, f"{a};{c}": True, f"{a};{b}": False}
    for source, is_said in said.items():
        settings = text_settings(source, "train:sentencepiece:64", 16, text_field="title+abstract")
        tasks = planning.make_tasks(planning.make_plan(settings, str(tmp_path)))
        assert bool(text_warnings.missing_fields(tasks)) == is_said, source


def test_a_misspelt_field_is_told_before_text_is_prepared(tmp_path):
    records = ({"title": "The cat", "abstract": f"It sat on mat {n}."} for n in range(60))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    settings = text_settings(
        f"text:{tmp_path}/a.jsonl", "train:wordpiece:64", 16, workers=1, text_field="titel+abstract"
    )
    told = []
    preparation.prepare(settings, str(tmp_path / "data"), told.append)
    (place,) = (n for n, line in enumerate(told) if "has the field 'titel' of" in line)
    assert told[place].startswith("warning: ") and place < len(told) - 1
