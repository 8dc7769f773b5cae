# SPDX-License-Identifier: Apache-2.0
"""Reads sentences of words with their tags: CoNLL files, and records that hold them as lists.

    -DOCSTART- -X- -X- O          skipped
    # doc_id = 1                  skipped: a comment before a sentence, of other columns than words
                                  a blank line ends a sentence
    en:Ann   B-PER                WikiANN writes the language before every word: removed
    en:sleeps O

    1-2 im  _  _                  CoNLL-U: what is written for two words, which follow: skipped
    1   in  in ADP
    2   dem der DET
    2.1 _   _  _                  CoNLL-U: a word that is not written: skipped

A CoNLL file has one word per line with its tag in another column. Columns are separated by tabs if
the file contains tabs, otherwise by spaces. A record is a line of JSON or a row of parquet:

    {"tokens": ["Ann", "sleeps"], "ner_tags": ["B-PER", "O"]}
"""

import re
from collections.abc import Iterable, Iterator

from electra_jax.finetuning.tasks import examples, files, parquet_records, tables, task

_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_DOCUMENT = "-DOCSTART-"
_CONLL_U = 10  # columns of CoNLL-U, separated by tabs; the first has the number of the word
_NUMBER = re.compile(r"[0-9]+(?:(?P<several>-[0-9]+)|(?P<empty>\.[0-9]+))?")
_LONG = 1_000  # words of a sentence; its end is likely to be missing


class UnevenColumnsError(ValueError):
    """A line of a file of columns has another number of them than the first one."""


def read(
    path: str, source: task.SplitFiles, labelled: bool, where: str, report: examples.Report
) -> list[examples.TaggedExample]:
    """Returns the sentences of a file, numbered from 0.

    Args:
      labelled: whether tags are required; otherwise a file that holds only words is accepted.

    Raises UnevenColumnsError with file and line if a line has another number of columns than the
    first one, ValueError if a record has another number of tags than words, and ValueError with the
    file if it holds no sentence.
    """
    if has_columns(path, source):
        sentences = list(_sentences(path, source, labelled, where, report))
        longest = max((len(words) for words, _ in sentences), default=0)
        if longest > _LONG:
            report.note(f"{path} has a sentence of {longest:,} words; only a blank line ends one")
    elif parquet_records.is_parquet(path, source):
        records = parquet_records.Table(path).records(source, labelled)
        sentences = list(_of_records(records, source, labelled, where, report))
    else:
        records = tables.json_records(path, source.encoding, where, report)
        sentences = list(_of_records(records, source, labelled, where, report))
    if not sentences:
        raise ValueError(f"{path} holds no sentence; is it the right file?")

    prefix = _shared_prefix(sentences)
    if prefix:
        report.note(f"{path}: {prefix!r} taken off every word")

    return [
        examples.TaggedExample(
            str(number), tuple(word.removeprefix(prefix) for word in words), tags
        )
        for number, (words, tags) in enumerate(sentences)
    ]


def has_columns(path: str, source: task.SplitFiles) -> bool:
    """Returns whether a file has one word per line, and does not hold records."""
    return not (parquet_records.is_parquet(path, source) or tables.is_json_lines(path, source))


def tagged_share(path: str, source: task.SplitFiles, tags: Iterable[str]) -> float:
    """Returns the share of the lines of a file of columns that have one of these tags.

    The column in which most lines have one counts. The share is 1 for a file of words alone, which
    has no column that could hold tags. Lines of another width, such as comments, do not count.
    """
    lines = files.lines(path, source.encoding)
    separator = _separator(lines)
    width = _width(lines, separator)
    if width < 2:
        return 1.0

    found = [_cells(line, separator) for line in lines if line.strip()]
    rows = [cells for cells in found if len(cells) == width and cells[0] != _DOCUMENT]
    columns = ([cell.strip() for cell in column] for column in zip(*rows))
    known = frozenset(tags)
    return max(sum(cell in known for cell in column) / len(column) for column in columns)


def of_record(
    record: dict, source: task.SplitFiles, place: str, labelled: bool
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Returns (words, tags) of a record; a sentence with a tag that is not known has no tags.

    Raises ValueError with the place if a list is missing, or there is not a tag for each word.
    """
    words = _list_in(record, source.a, place)
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f"{place}: field {source.a!r} holds {word!r}, which is no word")
    if source.label is None or not (labelled or source.label in record):
        return words, None

    tags = _list_in(record, source.label, place)
    if len(tags) != len(words):
        raise ValueError(f"{place}: {len(words)} words and {len(tags)} tags; mend or delete it")
    if None in tags and labelled:
        raise ValueError(f"{place}: a word without a tag; mend or delete it")
    return words, None if None in tags else tuple(str(tag) for tag in tags)


def _list_in(record, column, place):
    """Returns the items of a list in a record."""
    if not isinstance(record.get(column), list | tuple):
        state = type(record[column]).__name__ if column in record else "missing"
        raise ValueError(
            f"{place}: field {column!r} is {state}, not a list; set custom.text to the field of the"
            f" words, and custom.label to that of their tags: {', '.join(map(str, record))}"
        )
    return tuple(record[column])


def _of_records(records, source, labelled, where, report) -> Iterator[tuple]:
    """Yields (words, tags) for each record."""
    for place, record in records:
        words, tags = of_record(record, source, place, labelled)
        if words:
            yield words, tags
        else:
            report.count(where, "sentences without a word skipped")


def _sentences(path, source, labelled, where, report) -> Iterator[tuple]:
    """Yields (words, tags) for each sentence; the tags are None if the file has one column."""
    words, tags = [], []
    lines = files.lines(path, source.encoding)
    separator = _separator(lines)
    width = _width(lines, separator)
    numbered = _is_conll_u(lines, separator, width)
    checked = False

    for number, line in enumerate([*lines, ""], 1):  # a blank line at the end closes the last one
        if not line.strip():
            if words:
                yield tuple(words), tuple(tags) if tags else None
            words, tags = [], []
            continue

        cells = _cells(line, separator)
        if cells[0] == _DOCUMENT:
            report.count(where, "document marks skipped")
            continue
        if cells[0].startswith("#") and not words and len(cells) != width:
            report.count(where, "comments skipped")
            continue

        if not checked:
            _check_columns(path, number, source, labelled, width)
            if numbered:
                _check_not_numbers(path, number, source, width)
            checked = True
        if len(cells) != width:
            raise UnevenColumnsError(
                f"{path}:{number}: {len(cells)} columns where the first line has {width}; mend it"
            )
        if numbered and (what := _no_word(cells[0])):
            report.count(where, what)
            continue

        words.append(cells[source.a if width > 1 else 0])
        if width > 1 and source.label is not None:
            tags.append(cells[source.label].strip())


def _separator(lines):
    """The character between the columns: a tab if there is one, or None for blanks."""
    return "\t" if any("\t" in line.strip() for line in lines) else None


def _cells(line, separator):
    """The columns of a line; separators at its end begin none."""
    if separator:
        return line.rstrip(separator).split(separator)
    # Split at the space character only: a word may contain a no-break space.
    return [cell for cell in line.split(" ") if cell]


def _width(lines, separator):
    """The number of columns of the first line that has words and is surely no comment.

    "#" is also a word: where all lines begin with it, the first one counts.
    """
    rows = [_cells(line, separator) for line in lines if line.strip()]
    rows = [cells for cells in rows if cells[0] != _DOCUMENT]
    surely = [cells for cells in rows if not cells[0].startswith("#")]
    return len((surely or rows or [()])[0])


def _is_conll_u(lines, separator, width):
    """Whether the first of ten columns numbers the words of each sentence, as in CoNLL-U."""
    if separator != "\t" or width != _CONLL_U:
        return False
    rows = (_cells(line, separator) for line in lines if line.strip())
    firsts = {cells[0] for cells in rows if len(cells) == width and cells[0] != _DOCUMENT}
    # Where all are as 1-2, they are the numbers of sentence and word.
    return all(map(_NUMBER.fullmatch, firsts)) and any(map(str.isdecimal, firsts))


def _no_word(number):
    """What a line of CoNLL-U with this number stands for; '' if that is a word of its sentence."""
    found = _NUMBER.fullmatch(number)
    if found["several"]:
        return "lines for several words skipped, whose own lines follow"
    return "lines for words that are not written skipped" if found["empty"] else ""


def _check_not_numbers(path, number, source, width):
    """Raises ValueError if the numbers of the words would be the words, or their tags."""
    if any(column is not None and column % width == 0 for column in (source.a, source.label)):
        raise ValueError(
            f"{path}:{number}: column 0 of CoNLL-U numbers the words; set custom.text=1, and"
            " custom.label=3 for parts of speech (UPOS), 4 for those of the language (XPOS), 7 for"
            " relations (DEPREL)"
        )


def _check_columns(path, number, source, labelled, width):
    if labelled and width < 2:
        raise ValueError(f"{path}:{number}: a word without a tag; tabs or spaces separate columns")
    for column in (source.a,) if source.label is None else (source.a, source.label):
        if width > 1 and not (isinstance(column, int) and -width <= column < width):
            raise ValueError(
                f"{path}:{number}: no column {column!r}; there is 0 to {width - 1}, and"
                " custom.text='' takes the first, custom.label='' the last"
            )
    if width > 1 and source.label is not None and (source.a - source.label) % width == 0:
        raise ValueError(
            f"{path}:{number}: column {source.a % width} would be the word and its tag; set"
            " custom.label or custom.text to another"
        )


def _shared_prefix(sentences) -> str:
    """Returns the prefix that all words share, such as 'en:', or '' if there is none."""
    match = _PREFIX.match(sentences[0][0][0])
    prefix = match[0] if match else ""
    return prefix if all(w.startswith(prefix) for words, _ in sentences for w in words) else ""
