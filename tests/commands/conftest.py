# SPDX-License-Identifier: Apache-2.0
"""A made-up workdir and its Hugging Face folder, which the tests of conversions share and read."""

import pytest

from electra_jax.data import vocabulary_training
from electra_jax.weights import exporting, reading
from support import workdirs
from support.corpus import write_corpus


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")
    return vocabulary_training.train("sentencepiece", 64, iter(corpus.read_text().splitlines()))


@pytest.fixture(scope="session")
def workdir(words, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "made"
    workdirs.made(path, words)
    return path


@pytest.fixture(scope="session")
def folder(workdir, tmp_path_factory):
    """The Hugging Face folder of that workdir."""
    out = tmp_path_factory.mktemp("out") / "folder"
    exporting.to_hugging_face(reading.open(workdir), str(out))
    return out
