# SPDX-License-Identifier: Apache-2.0
"""Text of known words, and the vocabulary that knows them."""

import random

import pytest

from support.prepared import PIECES


@pytest.fixture(scope="session")
def vocab(tmp_path_factory):
    """A vocab.txt that knows every word of the corpus."""
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *PIECES]) + "\n")
    (path.parent / "other.txt").write_text("\n".join([*special, *reversed(PIECES)]) + "\n")
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    """Six files of twenty documents, so that there are six units."""
    draw = random.Random(3)
    for number in range(6):
        documents = []
        for _ in range(20):
            lines = [" ".join(draw.choices(PIECES[:13], k=draw.randint(1, 9))) for _ in range(4)]
            documents.append("\n".join(lines))
        (tmp_path / f"{number}.txt").write_text("\n\n".join(documents) + "\n")
    return tmp_path
