# SPDX-License-Identifier: Apache-2.0
"""Plain text in which nothing ends a document is warned about by name."""

import collections
import json
import types

import pytest

from electra_jax.data import preparation, text, text_files, text_remote, text_warnings
from electra_jax.data.text_options import TextOptions
from support.corpus import text_settings, write_corpus

LINES = ["the cat sees a letter."] * 400  # 9,199 characters


@pytest.mark.parametrize(
    ("name", "content", "warned"),
    [
        ("1.txt", "\n".join(LINES), True),
        ("1.TXT", "\n".join(LINES) + "\n\n", True),
        ("1.txt", "\n\n".join(LINES), False),
        ("1.jsonl", json.dumps({"text": "\n".join(LINES)}), False),
    ],
)
def test_a_long_file_without_blank_lines_is_named(tmp_path, monkeypatch, name, content, warned):
    monkeypatch.setattr(text_warnings, "MAX_MEAN_CHARACTERS", 5_000)
    write_corpus(tmp_path / "0.txt", 40)
    (tmp_path / name).write_text(content)
    settings = text_settings(
        f"text:{tmp_path}/?.*", "train:wordpiece:64", 16, heldout_fraction=0.1, workers=1
    )
    lines = []
    preparation.prepare(settings, str(tmp_path / "data"), lines.append)
    said = [line for line in lines if "blank line" in line]
    assert len(said) == warned
    if warned:
        assert said[0].startswith(f"warning: {tmp_path}/{name} has 1 document in 9,199 characters")
        assert "set data.documents=lines" in said[0] and "\n" not in said[0]


def unit_of(name, stripe=0, stripes=1):
    return text.FileUnit(name, stripe, stripes)


def warning(*found, kind="blank_lines", source="text:*.txt"):
    """What is said of (unit, its characters, its documents), ... of the first source."""
    shared = dict(
        options=TextOptions(documents=kind),
        settings=types.SimpleNamespace(source=source, documents=kind),
        source_index=0,
    )
    tasks = [types.SimpleNamespace(unit=unit, **shared) for unit, _, _ in found]
    counts = [{"characters": characters, "documents": number} for _, characters, number in found]
    return text_warnings.too_long(tasks, [{"counts": one} for one in counts])


def test_the_units_of_a_file_count_together_and_those_of_others_do_not():
    """A large file is read in stripes, of which the first may have its only document."""
    size = text_warnings.MAX_MEAN_CHARACTERS
    assert warning((unit_of("a.txt"), size, 1)) == ""
    halves = [(unit_of("a.txt", k, 2), size * (k == 0) + 1, 1 - k) for k in range(2)]
    assert warning(*halves).startswith("a.txt has 1 document in 5,000,002 characters")
    assert warning((unit_of("a.txt", 0, 2), size + 1, 1), (unit_of("a.txt", 1, 2), 0, 1)) == ""

    more = [(unit_of("b.txt"), 3 * size, 2), (unit_of("a.txt"), size + 1, 1)]
    assert warning(*more).startswith("b.txt (and 1 more files) has 2 documents in 15,000,000 ch")


def test_where_a_file_is_a_document_a_long_one_has_another_remedy():
    size = text_warnings.MAX_MEAN_CHARACTERS
    assert warning((unit_of("a.txt"), size, 1), kind="files") == ""
    said = warning((unit_of("a.txt"), size + 1, 1), kind="files")
    assert "each file is one; set data.documents=blank_lines or lines if files hold several" in said


def test_of_one_source_among_several_the_remedy_is_for_it_alone():
    long = (unit_of("a.txt"), text_warnings.MAX_MEAN_CHARACTERS + 1, 1)
    said = warning(long, source="books=text:*.txt; builtin")
    assert said.endswith(" (of this source alone: data.documents='blank_lines; books=...')")
    assert "alone" not in warning(long)


def test_files_that_were_fetched_are_named_by_their_address():
    file = text_remote.RemoteFile("https://lab/en/all.txt.gz", 9, "")
    said = warning((text.FetchedUnit(file, 0, 1), 2 * text_warnings.MAX_MEAN_CHARACTERS, 1))
    assert said.startswith("https://lab/en/all.txt.gz has 1 document in 10,000,000 characters")
    file = text_remote.RemoteFile("https://lab/en/all.parquet", 9, "")
    assert not warning((text.FetchedUnit(file, 0, 1), 2 * text_warnings.MAX_MEAN_CHARACTERS, 1))
    assert not text.is_plain(text.TfdsUnit("wiki", "train", 0, 9))


def test_a_document_too_long_for_the_memory_is_refused_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_DOCUMENT", 100)
    lines = ["twenty characters...."[:20]] * 5

    def documents(content, **options):
        (tmp_path / "1.txt").write_text(content)
        unit = unit_of(str(tmp_path / "1.txt"))
        return list(unit.documents(TextOptions(**options), collections.Counter()))

    whole = "\n".join(lines)
    assert documents(f"{whole}\n\n{whole}\n") == [whole, whole]
    with pytest.raises(
        ValueError, match=r"1\.txt has a document of more than 100 .* data.documents=lines"
    ):
        documents(f"{whole}\n\n{whole}\n.\n")

    assert documents("\n\n".join(lines), documents="files") == [whole]
    with pytest.raises(ValueError, match="more than 100 .* each file is one; set data.documents="):
        documents(f"{whole}\n\n{whole}\n", documents="files")
