# SPDX-License-Identifier: Apache-2.0
"""Documents -> token ids, in calls of bounded size."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_jax.data import progress_lines, vocabulary

_BATCH_CHARACTERS = 400_000  # encoded in one call
_LINE_CHARACTERS = 16_384  # a longer line goes to the tokenizer in parts


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Lists of documents, each list large enough to be worth a call of the tokenizer."""
    return batched(documents, _BATCH_CHARACTERS)


def batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of texts in their order, each of `size` characters or a little more."""
    batch, characters = [], 0
    for text_ in texts:
        batch.append(text_)
        characters += len(text_)
        if characters >= size:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encode(
    documents: Sequence[str], words: vocabulary.Vocabulary
) -> Iterator[tuple[str, int, np.ndarray, list[int]]]:
    """(document, hash, its ids [T], tokens in each line) of each document."""
    lines = [[p for line in d.split("\n") for p in line_parts(line)] for d in documents]
    encoded = _encoded([line for found in lines for line in found], words)
    for document, found in zip(documents, lines):
        parts = [next(encoded) for _ in found]
        ids = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        yield document, document_hash(document)[0], ids, [len(part) for part in parts]


def _encoded(lines, words):
    """The ids of each line; a document of any size goes to the tokenizer in calls of bounded size,
    so that it can be told how far it is."""
    for batch in batched(lines, _BATCH_CHARACTERS):
        yield from words.encode(batch)
        progress_lines.count_characters(sum(map(len, batch)))


def line_parts(line):
    """A line, in parts cut at spaces where it is so long that a tokenizer would choke on it."""
    start = 0  # cutting the rest off each time would copy a line of 50 MB 3,000 times
    while len(line) - start > _LINE_CHARACTERS:
        cut = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
        cut = cut if cut > 0 else start + _LINE_CHARACTERS
        yield line[start:cut]
        start = cut
    yield line[start:]


def document_hash(document):
    """Two 64-bit numbers that are equal for documents that differ in white space alone."""
    data = " ".join(document.split()).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
