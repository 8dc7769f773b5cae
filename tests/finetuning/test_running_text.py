# SPDX-License-Identifier: Apache-2.0
"""The words of running text, for tasks that tag words."""

import pytest

from electra_jax.finetuning.tasks import running_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann sleeps in Paris.", "Ann|sleeps|in|Paris|."),
        ("Dr. A. Ng (51) didn't.", "Dr|.|A.|Ng|(|51|)|didn't|."),
        ("The U.S. pays $5.20, \N{LEFT DOUBLE QUOTATION MARK}half\N{RIGHT DOUBLE QUOTATION MARK}!",
         "The|U.S.|pays|$|5.20|,|\N{LEFT DOUBLE QUOTATION MARK}|half"
         "|\N{RIGHT DOUBLE QUOTATION MARK}|!"),
        ("(U.S.). A.", "(|U.S.|)|.|A."),
        ("IL-2-mediated activation... (p<0.05)", "IL-2-mediated|activation|.|.|.|(|p<0.05|)"),
        ("東京に住む、安藤 Ann。", "東|京|に|住|む|、|安|藤|Ann|。"),
        ("ที่นี่", "ที่|นี่"),  # letters with their vowels and tones
        ("--", "-|-"),
        ("  \t ", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_blanks_and_marks_part_words(text, words):
    found = running_text.words(text)
    assert [word.text for word in found] == (words.split("|") if words else [])
    assert all(text[word.start : word.end] == word.text for word in found)
    assert "".join(word.text for word in found) == "".join(text.split())
