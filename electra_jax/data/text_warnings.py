# SPDX-License-Identifier: Apache-2.0
"""Warnings about text that was cut into documents and rows otherwise than its owner meant.

    tasks                 ->  missing_fields       one of several fields is in no record
    tasks, their results  ->  too_long             hardly anything ends a document
                          ->  too_short            documents are far shorter than the rows
    manifest              ->  much_held_out        far more is held out than was asked for
                          ->  few_second_segments  hardly a row has two segments

Each is one line with the remedy, or '' where nothing is wrong.
"""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.data import by_source, planning, records, text, text_field, text_files

MAX_MEAN_CHARACTERS = 5_000_000  # characters that the documents of a file may have on average
MAX_PADDING_SHARE = 0.5  # of the places of training rows; less is no waste
LOOKED_AT = 8  # files of a source whose first records are looked at
MIN_ROWS = 1_000  # text of fewer is only a trial
MIN_HELD_OUT_TOKENS = 1_000  # as above
HARMLESS_HELD_OUT_SHARE = 0.05  # of a source's tokens; less is no loss
MIN_PAIRS_SHARE = 0.1  # of the rows that might have two segments
# Times the share that was asked for; a few dozen documents may well come to twice of it.
MAX_TIMES_ASKED = 3
_FOUND = ("documents", "duplicates", "skipped_short", "empty")  # counts of documents, kept or not


def missing_fields(tasks: Sequence[planning.UnitTask]) -> str:
    """A warning about one of several fields with the text that no record has.

    Records may lack some of them, and so may all of a source, if another one has them. The text of
    a misspelt one would be left out without a word. Looked at are the first records of the first
    files of each source, if all that are read alike are on this machine.
    """
    alike: dict[str, list[planning.UnitTask]] = collections.defaultdict(list)
    for task in tasks:
        alike[task.options.text_field].append(task)
    return next(filter(None, map(_missing_field, alike.values())), "")


def _missing_field(tasks):
    """The warning about sources with one data.text_field; '' if nothing is wrong."""
    options = tasks[0].options
    elsewhere = any(isinstance(task.unit, text.FetchedUnit | text.TfdsUnit) for task in tasks)
    if "+" not in options.text_field or elsewhere:
        return ""  # a single field that is missing is refused

    files: dict[int, dict[str, None]] = collections.defaultdict(dict)
    for task in tasks:
        if isinstance(task.unit, text.FileUnit):
            files[task.source_index][task.unit.path] = None
    looked_at = [path for paths in files.values() for path in itertools.islice(paths, LOOKED_AT)]
    seen = [record for path in looked_at for record in text_files.first_records(path, options)]

    missing = text_field.missing(options.text_field, seen)
    if not missing:
        return ""
    return (
        f"none of the first {len(seen):,} records has the field {missing[0]!r} of"
        f" data.text_field={options.text_field!r}; if it is misspelt, set data.text_field: there"
        f" is {', '.join(seen[0])}"
    )


def too_long(tasks: Sequence[planning.UnitTask], results: Sequence[Mapping[str, Any]]) -> str:
    """A warning about plain text in which hardly anything ends a document.

    There is one of the `results` for each of the tasks.
    A file without blank lines is one document, however long it is, even if each of its lines is
    meant as a document; with data.documents='files' a file of many documents is one, too. Rows then
    run on from each text into the next, and held-out text, which is chosen document by document,
    has all of the file or nothing.
    """
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    task_of = {}
    for task, result in zip(tasks, results, strict=True):
        if text.is_plain(task.unit):
            counts[task.unit.origin].update(result["counts"])
            task_of[task.unit.origin] = task

    wrong = [
        (found["characters"], documents, name)
        for name, found in counts.items()
        if found["characters"]
        > MAX_MEAN_CHARACTERS * (documents := sum(found[kind] for kind in _FOUND))
    ]
    if not wrong:
        return ""

    characters, documents, name = max(wrong)
    task = task_of[name]
    others = f" (and {len(wrong) - 1:,} more files)" if len(wrong) > 1 else ""
    return (
        f"{name}{others} has {documents:,} document{'s' * (documents != 1)} in {characters:,}"
        f" characters, {text_files.why_long(task.options.documents)}"
        f"{_for_one(task.settings, task.source_index)}"
    )


def too_short(tasks: Sequence[planning.UnitTask], results: Sequence[Mapping[str, Any]]) -> str:
    """A warning about the source whose rows have most padding; tasks and results as above.

    In a book or an article a blank line ends a paragraph, and each paragraph is then a document:
    rows of pairs hold little more than one of them, and some are held out of texts whose others are
    trained on. Documents that truly are short look the same, so the line has a remedy for both.
    Nothing is said if the files are not longer than the rows either, or if there is only one: as a
    document it would be all of its source, of which one document must be held out. Where each line
    is a document, there is no doubt, and one remedy.
    """
    settings, length = tasks[0].settings, tasks[0].settings.sequence_length
    documents = {task.source_index: task.options.documents for task in tasks}

    counts: dict[int, collections.Counter] = collections.defaultdict(collections.Counter)
    files: dict[int, set[str]] = collections.defaultdict(set)
    for task, result in zip(tasks, results, strict=True):
        if text.is_plain(task.unit) and task.options.documents != "files":
            counts[task.source_index].update(result["counts"])
            files[task.source_index].add(task.unit.origin)

    wrong = []
    for number, found in counts.items():
        tokens, count = found["tokens"] + found["heldout_tokens"], len(files[number])
        share = found["padding"] / max(1, found["rows"] * length)
        long = documents[number] == "lines" or (count > 1 and tokens > length * count)
        if share > MAX_PADDING_SHARE and found["rows"] >= MIN_ROWS and long:
            wrong.append((share, number, tokens / found["documents"]))
    if not wrong:
        return ""

    share, number, tokens = max(wrong)
    remedies = [
        "if blank lines end paragraphs, and each file is a document, as a book or an article, set"
        f" data.documents=files{_for_one(settings, number)}",
        "if the texts are so short, choose data.rows=packed, which puts several into a row",
    ]
    if documents[number] == "lines":
        remedies = ["choose data.rows=packed, which puts several into a row"]
    return (
        f"{text.parse(settings.source)[number].spec}: documents of its plain text have"
        f" {tokens:,.0f} tokens on average, so {share:.0%} of the places in rows of"
        f" data.sequence_length={length} are padding; {'; '.join(remedies)}"
    )


def much_held_out(manifest: records.Manifest) -> str:
    """A warning about the source of which the largest share is held out.

    A document is held out as a whole, and at least one of each source is. Of a few documents, such
    as books or files without blank lines, that may be a large share of the text, which is then
    never trained on.
    """
    asked = manifest.settings["heldout_fraction"]
    many = [
        source
        for source in manifest.sources
        if source.counts["heldout_tokens"] >= MIN_HELD_OUT_TOKENS
        and _share_held_out(source) > max(HARMLESS_HELD_OUT_SHARE, MAX_TIMES_ASKED * asked)
    ]
    if not many:
        return ""

    source = max(many, key=_share_held_out)
    counts = source.counts
    given, names = manifest.settings["documents"], [one.name for one in manifest.sources]
    documents = by_source.of(given, source.name)
    alone = by_source.for_one("data.documents", given, source.name, names)
    return (
        f"{source.spec}: {counts['heldout_documents']:,} of {counts['documents']:,} documents are"
        f" held out, which are {_share_held_out(source):.0%} of the tokens, not the {asked:.1%} of"
        " data.heldout_fraction, and are not trained on; a document is held out whole, so"
        f" {text_files.SEPARATE[documents]}{alone}, give JSON lines with one document each, or"
        " name more text"
    )


def few_second_segments(manifest: records.Manifest) -> str:
    """A warning if far fewer rows have two segments than were asked for.

    A segment ends where a line ends. So a document of a single line, as abstracts in JSON lines
    often are, has no second segment, and the embedding of its type is never trained.
    """
    settings, found = manifest.settings, manifest.two_segment_fraction
    asked = 1 - settings["single_segment_rate"]
    is_trial = manifest.totals["rows"] < MIN_ROWS
    if settings["rows"] != "pairs" or is_trial or found >= MIN_PAIRS_SHARE * asked:
        return ""

    return (
        f"{found:.1%} of the rows have a second segment, where data.single_segment_rate allows"
        f" {asked:.0%}: a segment ends with a line, and most documents have a single one; end each"
        " sentence with a line break, in JSON with \\n, or choose data.rows=packed, which has no"
        " segments"
    )


def _for_one(settings, number):
    """How to set data.documents for one source of several, in a part of a line."""
    names = [source.name for source in text.parse(settings.source)]
    return by_source.for_one("data.documents", settings.documents, names[number], names)


def _share_held_out(source: records.RecordedSource) -> float:
    """The share of a source's tokens that is held out; 0 if it has no tokens."""
    heldout = source.counts["heldout_tokens"]
    whole = source.counts["tokens"] + heldout
    return heldout / whole if whole else 0.0
