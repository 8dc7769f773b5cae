# SPDX-License-Identifier: Apache-2.0
"""Examples as text: every file format is read into these types, and features are made of them.

    tagging    TaggedExample('3', ('Ann', 'sleeps'), ('B-PER', 'O'))
    span       QuestionExample('7', 'Who ?', 'Ann sleeps', (('Ann', 0),))
    others     TextExample('17', 'A sentence .', None, 1)

Next: `reading.py` reads the splits of a task; `tuning/features.py` makes arrays of a split.
"""

import collections
import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair. `label` is a class number, a score, or a tuple of class numbers."""

    id: str
    a: str
    b: str | None = None
    label: int | float | tuple[int, ...] | None = None
    query: str | None = None  # of which it is a candidate, if candidates are ranked


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence as words with one tag each (BIO, BIOES or plain), as the file spells them."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    text: str | None = None  # the running text in which `running_text` has found the words


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a text.

    `answers` holds (words, position in characters); -1 if the context does not contain the words.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    impossible: bool = False


Example = TextExample | TaggedExample | QuestionExample


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split, in the order of their files."""

    name: str  # train, dev, test, dev_matched, ...
    examples: tuple[Example, ...]
    files: tuple[str, ...]
    note: str = ""  # how it was made, if it is not the content of files

    @property
    def labelled(self) -> bool:
        """Whether every example has a label, tags or an answer."""
        return all(is_labelled(example) for example in self.examples)


class Report:
    """Collects what reading and preparing found: counts by split and kind, and remarks."""

    def __init__(self):
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.notes: list[str] = []
        self._distinct: set[tuple[str, str, str]] = set()

    def count(self, where: str, what: str, number: int = 1) -> None:
        """Adds to a count, for example count('cola dev', 'blank lines skipped')."""
        self.counts[where, what] += number

    def count_distinct(self, where: str, what: str, thing: str) -> None:
        """Adds 1 to a count for each thing, however often it comes."""
        if (where, what, thing) not in self._distinct:
            self._distinct.add((where, what, thing))
            self.count(where, what)

    def note(self, text: str) -> None:
        """Adds a remark unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """Returns one line per count in the order of first use, then the remarks."""
        found = [
            f"{where}: {number:,} {what}" for (where, what), number in self.counts.items() if number
        ]
        return found + self.notes


def take_id(identity: str, place: str, taken: dict[str, str]) -> None:
    """Records that an id is used. Raises ValueError with both places if it was used before.

    Prediction files are keyed by id, so of two examples with the same id one would be lost.

    Args:
      place: where the example is, such as file and line.
      taken: {id: place} of the examples of the split read so far; extended here.
    """
    if identity in taken:
        raise ValueError(
            f"{place}: id {identity!r} is also that of {taken[identity]}; give every example an id"
            " of its own"
        )
    taken[identity] = place


def is_labelled(example: Example) -> bool:
    """Whether an example has a label, tags or an answer; a known lack of an answer counts too."""
    if isinstance(example, TextExample):
        return example.label is not None
    if isinstance(example, TaggedExample):
        return example.tags is not None
    return bool(example.answers) or example.impossible


def both_orders(split: Split) -> Split:
    """Appends every pair with its texts swapped: MRPC and STS-B train on both orders.

    Reference: `double_unordered`, configure_finetuning.py of google-research/electra.
    """
    turned = tuple(dataclasses.replace(e, a=e.b, b=e.a) for e in split.examples if e.b is not None)
    return dataclasses.replace(split, examples=split.examples + turned)
