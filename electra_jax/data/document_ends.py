# SPDX-License-Identifier: Apache-2.0
"""A warning about plain text in which nothing ends a document.

A file without blank lines is one document, however long it is, even if each of its lines is meant
as a document; with data.documents='files' a file of many documents is one, too. Rows then run on
from each text into the next, and held-out text, which is chosen document by document, has all of
the file or nothing.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.data import planning, text, text_files

LONGEST = 5_000_000  # characters that the documents of a file may have on average
_FOUND = ("documents", "duplicates", "skipped_short", "empty")  # counts of documents, kept or not


def warning(tasks: Sequence[planning.UnitTask], results: Sequence[Mapping[str, Any]]) -> str:
    """A warning, one line, if files have too few documents; '' if not. `results` are of tasks."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for task, result in zip(tasks, results, strict=True):
        if text.is_plain(task.unit):
            counts[task.unit.origin].update(result["counts"])

    wrong = [
        (found["characters"], documents, name)
        for name, found in counts.items()
        if found["characters"] > LONGEST * (documents := sum(found[kind] for kind in _FOUND))
    ]
    if not wrong:
        return ""

    characters, documents, name = max(wrong)
    others = f" (and {len(wrong) - 1:,} more files)" if len(wrong) > 1 else ""
    return (
        f"{name}{others} has {documents:,} document{'s' * (documents != 1)} in {characters:,}"
        f" characters, {text_files.why_long(tasks[0].settings.documents)}"
    )
