# SPDX-License-Identifier: Apache-2.0
"""A summary of prepared data: a table and a few held-out rows as text."""

import os

import numpy as np

from electra_jax.data import pipeline, records, utf8
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import console_table

_EXAMPLES = 2  # rows that are shown


def text(folder: str) -> str:
    """Returns a table about a folder of prepared data, and its first held-out rows as text."""
    prepared = records.open(folder)
    vocabulary = vocabulary_lib.load(os.path.join(folder, records.VOCABULARY))
    m = prepared.manifest

    lines = [("folder", folder)]
    applied = pipeline.apportion([source.weight for source in m.sources], pipeline.PATTERN)
    for source, places in zip(m.sources, applied.tolist()):
        share, rows = places / pipeline.PATTERN, source.counts["rows"]
        times = share * m.totals["rows"] / rows
        about = (
            f"{source.spec}, {share:.2%} of the training rows; an epoch reads each of its rows"
            f" {times:.3g} times"
        )
        lines += [(f"source {source.name}", about)] if len(m.sources) > 1 else []
        lines += [
            ("documents", _both(source.counts, "documents", "heldout_documents")),
            ("text tokens", _train_and_heldout(source.counts, "tokens")),
            ("characters per token", _characters_per_token(source.counts)),
            ("rows", _train_and_heldout(source.counts, "rows")),
        ]

    lines += [
        ("row", f"{m.sequence_length} tokens, {m.settings['rows']}"),
        ("two segments", f"{m.two_segment_fraction:.1%} of the rows"),
        ("padding", f"{m.wasted_fraction:.2%} of all places"),
        ("vocabulary", f"{vocabulary.kind}, {vocabulary.size:,} pieces, {vocabulary.sha256[:12]}"),
        ("unknown tokens", f"{m.unk_rate:.4%}"),
        ("unigram entropy", f"{m.unigram_entropy:.3f} nats, of the held-out text"),
        ("left out", _left_out(m.totals)),
        *([("warning", line)] if (line := utf8.prepared(m)) else []),
        ("hash", m.hash[:16]),
    ]

    return "\n".join([*console_table.lines(lines), "", *_examples(prepared, vocabulary)])


def _both(counts, whole, part):
    return f"{counts[whole]:,}, of which {counts[part]:,} held out"


def _train_and_heldout(counts, name):
    return f"{counts[name]:,} for training, {counts['heldout_' + name]:,} held out"


def _characters_per_token(counts):
    """How well the vocabulary fits a source: the length of its tokens, and what it does not know.

    The unknown characters are those of the first of each part of the text.
    """
    tokens = counts["tokens"] + counts["heldout_tokens"]
    told = f"{counts['characters'] / tokens:.2f}"
    looked_at = counts.get("looked_at", 0)  # older folders have not counted it
    if not looked_at:
        return told
    return f"{told}; {counts['unknown'] / looked_at:.3%} of the characters are unknown"


def _left_out(totals):
    names = {
        "empty": "empty documents",
        "skipped_short": "short documents",
        "duplicates": "duplicates",
        "invalid_utf8": "invalid bytes (replaced)",
    }

    found = [f"{totals[name]:,} {words}" for name, words in names.items() if totals.get(name)]
    return ", ".join(found) or "nothing"


def _examples(prepared, vocabulary):
    """Yields the first held-out rows as text, with the special tokens that the networks see."""
    shown = pipeline.heldout(prepared, 0, _EXAMPLES)
    special = {vocabulary.cls_id: "[CLS]", vocabulary.sep_id: "[SEP]"}

    for ids_L in shown.ids:
        ids_L = ids_L[ids_L != vocabulary.pad_id]

        # The vocabulary decodes the text between two special tokens.
        places = np.flatnonzero(np.isin(ids_L, list(special)))
        parts = []
        for place, end in zip(places, [*places[1:], len(ids_L)]):
            between = ids_L[place + 1 : end].tolist()
            parts += [special[int(ids_L[place])], vocabulary.decode(between)]

        yield " ".join(part for part in parts if part)
