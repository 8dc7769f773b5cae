# SPDX-License-Identifier: Apache-2.0
"""A warning about plain text whose documents are far shorter than the rows.

In a book or an article a blank line ends a paragraph, and each paragraph is then a document: rows
of pairs hold little more than one of them, and some are held out of texts whose others are trained
on. Documents that truly are short look the same, so the line has a remedy for both. Nothing is said
if the files are not longer than the rows either, or if there is only one: as a document it would be
all of its source, of which one document must be held out. Where each line is a document, there is
no doubt, and one remedy.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.data import planning, text

MUCH = 0.5  # of the places of training rows that are padding
LEAST = 1_000  # rows; text of fewer is only a trial


def warning(tasks: Sequence[planning.UnitTask], results: Sequence[Mapping[str, Any]]) -> str:
    """A warning, one line, about the source with the most padding; '' if none has much of it.

    `results` are of tasks.
    """
    settings, length = tasks[0].settings, tasks[0].settings.sequence_length
    if settings.documents == "files":
        return ""
    lines_are_documents = settings.documents == "lines"

    counts: dict[int, collections.Counter] = collections.defaultdict(collections.Counter)
    files: dict[int, set[str]] = collections.defaultdict(set)
    for task, result in zip(tasks, results, strict=True):
        if text.is_plain(task.unit):
            counts[task.source_index].update(result["counts"])
            files[task.source_index].add(task.unit.origin)

    wrong = []
    for number, found in counts.items():
        tokens, count = found["tokens"] + found["heldout_tokens"], len(files[number])
        share = found["padding"] / max(1, found["rows"] * length)
        long = lines_are_documents or (count > 1 and tokens > length * count)
        if share > MUCH and found["rows"] >= LEAST and long:
            wrong.append((share, number, tokens / found["documents"]))
    if not wrong:
        return ""

    share, number, tokens = max(wrong)
    remedies = [
        "if blank lines end paragraphs, and each file is a document, as a book or an article, set"
        " data.documents=files",
        "if the texts are so short, choose data.rows=packed, which puts several into a row",
    ]
    if lines_are_documents:
        remedies = ["choose data.rows=packed, which puts several into a row"]
    return (
        f"{text.parse(settings.source)[number].spec}: documents of its plain text have"
        f" {tokens:,.0f} tokens on average, so {share:.0%} of the places in rows of"
        f" data.sequence_length={length} are padding; {'; '.join(remedies)}"
    )
