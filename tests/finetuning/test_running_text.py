# SPDX-License-Identifier: Apache-2.0
"""The words of running text, for tasks that tag words."""

import pytest

from electra_jax.finetuning.tasks import running_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann sleeps in Paris.", "Ann|sleeps|in|Paris|."),
        ("Dr. A. Ng (51) didn't.", "Dr|.|A.|Ng|(|51|)|didn't|."),
        ('The U.S. pays $5.20, "half"!', 'The|U.S.|pays|$|5.20|,|"|half|"|!'),
        ("(U.S.). World War I.", "(|U.S.|)|.|World|War|I|."),
        ("E\u0301. Zola", "E\u0301.|Zola"),  # a letter and its accent
        ("그런 것. 그런", "그런|것|.|그런"),  # one letter that has no capital
        ("Ann's and Bob\N{RIGHT SINGLE QUOTATION MARK}s.",
         "Ann|'s|and|Bob|\N{RIGHT SINGLE QUOTATION MARK}s|."),
        ("Paris\N{EM DASH}the city\N{HORIZONTAL ELLIPSIS}here",
         "Paris|\N{EM DASH}|the|city|\N{HORIZONTAL ELLIPSIS}|here"),
        ("IL-2-mediated activation... (p<0.05)", "IL-2-mediated|activation|.|.|.|(|p<0.05|)"),
        ("東京に住む、安藤 Ann。", "東|京|に|住|む|、|安|藤|Ann|。"),
        ("ที่นี่", "ที่|นี่"),  # letters with their vowels and tones
        ("5\N{NO-BREAK SPACE}kg\tof it", "5|kg|of|it"),
        ("I \u2764\ufe0f Paris\u2600\ufe0f", "I|\u2764\ufe0f|Paris|\u2600\ufe0f"),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd!",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467|\U0001f44d\U0001f3fd|!"),
        ("--", "-|-"),
        ("  \t ", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_blanks_and_punctuation_part_words(text, words):
    found = running_text.words(text)
    assert [word.text for word in found] == (words.split("|") if words else [])
    assert all(text[word.start : word.end] == word.text for word in found)
    assert "".join(word.text for word in found) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ירושלים.\u200f", "ירושלים|."),
        ("(\u202bהעיר\u202c)", "(|העיר|)"),
        ("\u200b Ann\u200bBob\ufeff", "Ann|Bob"),
        ("\u200b", ""),
        ("می\u200cروم", "می\u200cروم"),  # within a word it stays
    ],
)
def test_characters_that_nobody_sees_are_no_words(text, words):
    found = running_text.words(text)
    assert [word.text for word in found] == (words.split("|") if words else [])
    assert all(text[word.start : word.end] == word.text for word in found)
