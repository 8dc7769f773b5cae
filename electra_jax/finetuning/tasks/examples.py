# SPDX-License-Identifier: Apache-2.0
"""Examples as text: what every source is read into, and what features are made from.

    classification, regression, multi_label    Text('17', 'A sentence .', None, 1)
    tagging                                    Words('3', ('Ann', 'sleeps'), ('B-PER', 'O'))
    span                                       Question('7', 'Who ?', 'Ann sleeps', (('Ann', 0),))

Next: `reading.py` reads a task's splits of them; `features.py` makes arrays of a split.
"""

import collections
import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A sentence or a pair of them. `label`: number of the class, a score, numbers of classes."""

    id: str
    a: str
    b: str | None = None
    label: int | float | tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """A sentence as words with a tag each, BIO or BIOES or plain, as the file spells them."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a text. `answers`: (words, place in characters, -1 where they are not)."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    impossible: bool = False


Example = Text | Words | Question


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split, in the order of their files."""

    name: str  # train, dev, test, dev_matched, ...
    examples: tuple[Example, ...]
    files: tuple[str, ...]
    note: str = ""  # how it was made, where it is no file's content

    @property
    def labelled(self) -> bool:
        """Whether every example has what it is scored against."""
        return all(is_labelled(example) for example in self.examples)


class Report:
    """What reading and laying out met: counts by place and kind, and remarks, printed as lines."""

    def __init__(self):
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.notes: list[str] = []

    def count(self, where: str, what: str, number: int = 1) -> None:
        """Adds to a count: count('cola dev', 'blank lines')."""
        self.counts[where, what] += number

    def note(self, text: str) -> None:
        """Keeps a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """One line a count, in the order met, then the remarks."""
        found = [
            f"{where}: {number:,} {what}" for (where, what), number in self.counts.items() if number
        ]
        return found + self.notes


def take_id(identity: str, place: str, taken: dict[str, str]) -> None:
    """Notes where an id stands. Raises ValueError, one line, where it stood before.

    Ids name predictions in the files that are written: of two examples with one id, one would be
    lost there.

    Args:
      place: file and line, or what is like them.
      taken: {id: place} of the examples of the split so far.
    """
    if identity in taken:
        raise ValueError(
            f"{place}: id {identity!r} stands at {taken[identity]} too; give every example an id of"
            " its own"
        )
    taken[identity] = place


def is_labelled(example: Example) -> bool:
    """Whether an example has what it is scored against."""
    if isinstance(example, Text):
        return example.label is not None
    if isinstance(example, Words):
        return example.tags is not None
    return bool(example.answers) or example.impossible


def both_orders(split: Split) -> Split:
    """Every pair, then every pair the other way round: MRPC and STS-B train on both.

    Reference: `double_unordered`, configure_finetuning.py of google-research/electra.
    """
    turned = tuple(dataclasses.replace(e, a=e.b, b=e.a) for e in split.examples if e.b is not None)
    return dataclasses.replace(split, examples=split.examples + turned)
