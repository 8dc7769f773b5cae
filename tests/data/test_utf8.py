# SPDX-License-Identifier: Apache-2.0
"""Text that is not UTF-8 is warned about by name, and what is no text is refused."""

import pytest

from electra_jax.data import preparation, utf8
from electra_jax.report import data_summary
from support.corpus import text_settings, write_corpus


@pytest.fixture
def corpus(tmp_path):
    """Three files in UTF-8, beside which a test puts others."""
    for number in range(3):
        write_corpus(tmp_path / f"{number}.txt", 40)
    return tmp_path


def settings_for(folder):
    source, vocab = f"text:{folder}/*.txt", "train:wordpiece:64"
    return text_settings(source, vocab, 16, heldout_fraction=0.1, workers=1)


def test_latin_1_is_warned_about_before_the_vocabulary_and_in_the_summary(corpus):
    (corpus / "3.txt").write_bytes("déjà vu\n\nla forêt\n\nun été\n".encode("latin-1") * 9)
    settings, root, lines = settings_for(corpus), str(corpus / "data"), []
    folder = preparation.prepare(settings, root, lines.append)
    warned = [n for n, line in enumerate(lines) if "iconv -f latin1 -t utf-8" in line]
    assert "warning: 19.2% of the characters of" in lines[warned[0]]
    assert f"{corpus}/3.txt in its beginning are not UTF-8 and become U+FFFD" in lines[warned[0]]
    assert warned[0] < lines.index("reading text to train a vocabulary on") < warned[1]
    assert f"characters of {corpus}/3.txt are not UTF-8" in lines[warned[1]]
    assert len(warned) == 2

    # The next start does not read files; it tells of all text together.
    again = []
    preparation.prepare(settings, root, again.append)
    assert len(again) == 1 and f"characters of text:{corpus}/*.txt are not UTF-8" in again[0]
    assert "are not UTF-8 and become U+FFFD" in data_summary.text(folder)


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "shift_jis"])
def test_another_encoding_is_refused_before_the_vocabulary(corpus, encoding):
    (corpus / "3.txt").write_bytes(("人生而自由\n\n" * 40).encode(encoding))
    lines = []
    with pytest.raises(
        ValueError, match=r"% of the characters of .*/3.txt .* -f gb18030, big5.*25%"
    ):
        preparation.prepare(settings_for(corpus), str(corpus / "data"), lines.append)
    assert len(lines) == 1  # that preparation begins


@pytest.mark.parametrize(("kept", "share"), [(0, 0), (100, 1), (50_000, 0.1)])
def test_the_share_that_is_not_utf8_is_one_of_text_that_is_trained_on(kept, share):
    """U+FFFD are counted in dropped documents too, characters are not."""
    assert utf8.share({"invalid_utf8": 5000, "characters": kept}) == share


def test_a_file_that_is_no_text_is_refused_before_the_vocabulary(corpus):
    (corpus / "3.txt").write_bytes(bytes(range(256)) * 9)
    (corpus / "4.txt").write_bytes("déjà vu\n".encode("latin-1"))
    lines = []
    with pytest.raises(ValueError, match="3.txt is not text: 9 of its first 2,304 bytes are NUL"):
        preparation.prepare(settings_for(corpus), str(corpus / "data"), lines.append)
    assert len(lines) == 1  # that preparation begins
