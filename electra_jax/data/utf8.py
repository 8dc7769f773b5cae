# SPDX-License-Identifier: Apache-2.0
"""Warnings about text that is not UTF-8, whose undecodable bytes become U+FFFD in the rows.

beginnings     before the vocabulary is trained: the first 64 KiB of each file of this machine
warning        when all text is read: each file, downloaded ones too
prepared       a folder of prepared data, as its manifest counts

A file with many NUL bytes is no text and is refused (text_files.py).
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.data import planning, records, text, text_files

# Of the characters that are not UTF-8. Text with a broken one here and there stays below it; in
# another encoding every accent, quotation mark and dash is one.
INVALID_SHARE = 1e-3
# Where it is so much, most letters are lost: Chinese in GB18030 has half, Russian in CP1251 more.
REFUSED_SHARE = 0.25
REMEDY = (
    "convert it from its encoding, as with iconv -f latin1 -t utf-8 (or -f gb18030, big5,"
    " shift_jis, euc-kr, cp1251)"
)


def beginnings(tasks: Sequence[planning.UnitTask]) -> str:
    """A warning, one line, if the beginnings of some files are not UTF-8; '' if all are.

    Raises ValueError, one line, if a file is not text, or is in another encoding.
    """
    files = dict.fromkeys(t.unit.path for t in tasks if isinstance(t.unit, text.FileUnit))
    shares = {path: text_files.invalid_share(path) for path in files}
    warning = _warning(shares, " in its beginning")
    if max(shares.values(), default=0) > REFUSED_SHARE:
        raise ValueError(f"{warning}. More than {REFUSED_SHARE:.0%} is refused")
    return warning


def warning(tasks: Sequence[planning.UnitTask], results: Sequence[Mapping[str, Any]]) -> str:
    """A warning, one line, if some files are not UTF-8; '' if all are. `results` are of tasks."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for task, result in zip(tasks, results, strict=True):
        counts[task.unit.origin].update(result["counts"])
    return _warning({name: share(found) for name, found in counts.items()})


def prepared(manifest: records.Manifest) -> str:
    """A warning, one line, if much of all prepared text is not UTF-8; '' if not."""
    return _warning({manifest.settings["source"]: share(manifest.totals)})


def share(counts: Mapping[str, int]) -> float:
    """The share of the characters that were not UTF-8, of the counts of units, at most 1.

    Characters are of the documents that were kept, U+FFFD of all that were read: the share is too
    high where many documents are dropped, and 0 where all are, for then nothing is trained on.
    """
    characters = counts.get("characters", 0)
    return min(1.0, counts.get("invalid_utf8", 0) / characters) if characters else 0.0


def _warning(shares, where=""):
    """Names the worst of those whose share is too high, and how many others there are."""
    wrong = sorted((found for found in shares.items() if found[1] > INVALID_SHARE), key=_share_of)
    if not wrong:
        return ""

    name, worst = wrong[-1]
    others = f" (and of {len(wrong) - 1:,} more files)" if len(wrong) > 1 else ""
    return (
        f"{worst:.1%} of the characters of {name}{where}{others} are not UTF-8 and become U+FFFD,"
        f" on which the networks are trained; {REMEDY}"
    )


def _share_of(found):
    return found[1]
