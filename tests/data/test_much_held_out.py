# SPDX-License-Identifier: Apache-2.0
"""A source of which far more is held out than was asked for is warned about."""

import types

import pytest

from electra_jax.data import preparation, text_warnings
from support.corpus import text_settings

SENTENCES = [f"the cat sees letter {number}." for number in range(300)]


@pytest.mark.parametrize(
    ("end", "fraction", "said"),
    [
        # Three files of one document each: one is held out, as of each source at least one is.
        ("\n", 0.005, "/?.txt: 1 of 3 documents are held out, which are 33% of the tokens, not"
                      " the 0.5% of data.heldout_fraction"),
        ("\n", 0.3, ""),
        ("\n\n", 0.005, ""),
    ],
)  # fmt: skip
def test_long_documents_are_held_out_whole_which_is_said(tmp_path, end, fraction, said):
    for number in range(3):
        text = end.join(f"{number} {sentence}" for sentence in SENTENCES)
        (tmp_path / f"{number}.txt").write_text(text)
    settings = text_settings(
        f"text:{tmp_path}/?.txt", "train:wordpiece:64", 16, heldout_fraction=fraction, workers=1
    )
    lines = []
    preparation.prepare(settings, str(tmp_path / "data"), lines.append)
    found = [line for line in lines if "are held out" in line]
    assert len(found) == bool(said)
    assert not said or said in found[0] and "blank lines" in found[0]


def test_a_small_source_does_not_hide_a_large_one():
    """Of the first 90 % of a few tokens is held out, of the second 10 % of many."""

    def source(spec, tokens, heldout):
        counts = {"tokens": tokens, "heldout_tokens": heldout, "documents": 9}
        how_many = counts | {"heldout_documents": 1}
        return types.SimpleNamespace(spec=spec, name="a", counts=how_many)

    sources = (source("few", 80, 720), source("many", 90_000, 10_000))
    for kind, remedy in (("blank_lines", "put blank lines"), ("files", "set data.documents=bl")):
        settings = {"heldout_fraction": 0.005, "documents": kind}
        manifest = types.SimpleNamespace(sources=sources, settings=settings)
        said = text_warnings.much_held_out(manifest)
        assert said.startswith("many: 1 of 9 documents are held out, which are 10% of the tokens")
        assert f"so {remedy}" in said
