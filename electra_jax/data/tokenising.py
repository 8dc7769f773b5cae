# SPDX-License-Identifier: Apache-2.0
"""Documents to token ids, in tokenizer calls of bounded size; and the hash of a document.

documents -> batches -> lines -> parts of long lines -> token ids per document    encode
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_jax.data import progress_lines
from electra_jax.data import vocabulary as vocabulary_lib

_BATCH_CHARACTERS = 400_000  # per call of the tokenizer
_LINE_CHARACTERS = 16_384  # longer lines are cut into parts before tokenising


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Groups documents into lists that are large enough for one call of the tokenizer."""
    return batched(documents, _BATCH_CHARACTERS)


def batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Groups texts, in their order, into lists that have `size` characters or slightly more."""
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
    documents: Sequence[str], vocabulary: vocabulary_lib.Vocabulary
) -> Iterator[tuple[str, int, np.ndarray, list[int]]]:
    """Yields (document, hash, ids [T] uint32, tokens per line) of each document.

    The parts of a long line count as lines of their own.
    """
    lines = [[p for line in d.split("\n") for p in line_parts(line)] for d in documents]
    encoded = _encoded([line for found in lines for line in found], vocabulary)

    for document, found in zip(documents, lines):
        parts = [next(encoded) for _ in found]
        ids = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        yield document, document_hash(document)[0], ids, [len(part) for part in parts]


def _encoded(lines, vocabulary):
    """Yields the ids of each line.

    Even a huge document is tokenised in calls of bounded size, so that progress can be counted
    after each of them.
    """
    for batch in batched(lines, _BATCH_CHARACTERS):
        encoded = vocabulary.encode(batch)
        # Before the ids are handed on: nobody asks for more after those of the last line.
        progress_lines.count_characters(sum(map(len, batch)))
        yield from encoded


def line_parts(line: str) -> Iterator[str]:
    """Yields the line in parts that a tokenizer can handle, cut at spaces where there are any."""
    start = 0  # slicing off the rest after each part would copy a line of 50 MB 3,000 times

    while len(line) - start > _LINE_CHARACTERS:
        cut = line.rfind(" ", start + 1, start + _LINE_CHARACTERS)
        cut = cut if cut > 0 else start + _LINE_CHARACTERS
        yield line[start:cut]
        start = cut

    yield line[start:]


def document_hash(document: str) -> tuple[int, int]:
    """A 128-bit hash as two 64-bit integers; white space makes no difference.

    The first integer alone decides whether the document is held out.
    """
    data = " ".join(document.split()).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
