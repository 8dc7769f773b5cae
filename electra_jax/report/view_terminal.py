# SPDX-License-Identifier: Apache-2.0
"""A row in a terminal: lines that are aligned with each other, and each judged token with a mark.

    original       the  chef  cooked  the  meal
    masked         the  chef  [MASK]  the  [MASK]
    generator      the  chef  ate     the  meal
    discriminator             ✓87%         =12%

Lines are those of networks that the objective has: without a discriminator the last line has marks
alone, and a masked language model has the first two lines.
"""

from collections.abc import Sequence

from rich import cells as terminal_cells

from electra_jax.report import view


def to_terminal(example: view.Example, width: int = 100, colour: bool = True) -> str:
    """Blocks of two to four lines, wrapped between words at `width` columns; the counts in words.

    Raises ValueError if `width` is too narrow.
    """
    names = _lines(example)
    margin = max(map(len, names)) + 2
    room = width - margin
    if room < 20:
        raise ValueError(f"width {width} is too narrow; give at least {margin + 20} columns")

    blocks, block, used = [], [], 0
    for word in _words(example):
        for column in _columns(example, word, room):
            size = max(map(_columns_wide, column))
            if block and used + 2 + size > room:
                blocks.append(block)
                block, used = [], 0
            block.append((size, column))
            used += size + (2 if len(block) > 1 else 0)
    blocks.append(block)

    lines = []
    for block in blocks:
        for row, name in enumerate(names):
            cells = [_padded(column[row], size, colour) for size, column in block]
            label = name.ljust(margin)
            label = f"\x1b[2m{label}\x1b[0m" if colour else label
            lines.append((label + "  ".join(cells)).rstrip())
        lines.append("")
    return "\n".join([*lines, view.sentence(example)]) + "\n"


def terminal_key(examples: Sequence[view.Example], colour: bool = True) -> str:
    """One line that explains the marks of `to_terminal`; '' if these examples have none."""
    if any(example.judged for example in examples):
        meanings = (
            (view.CAUGHT, "replaced and caught"),
            (view.MISSED, "replaced and missed"),
            (view.FALSE_ALARM, "original but accused"),
            (view.LUCKY, "the generator guessed the original"),
        )
    elif any(example.generated for example in examples):
        meanings = ((view.UNJUDGED, "replaced"), (view.LUCKY, "the generator guessed the original"))
    else:
        return ""

    marks = [_painted(_MARKS[outcome], outcome, colour) + f" {text}" for outcome, text in meanings]
    beliefs = ["%: belief that it was replaced"] if meanings[0][0] == view.CAUGHT else []
    return "   ".join([*marks, *beliefs])


_MARKS = {
    view.CAUGHT: "✓",
    view.MISSED: "✗",
    view.UNJUDGED: "~",
    view.FALSE_ALARM: "!",
    view.LUCKY: "=",
    view.PLAIN: "·",
}
# Black letters on a colour can be read on dark and on light terminals. The numbers are codes of the
# 256-colour table: green, red, orange, yellow, grey. For colour-blind readers the marks differ too.
_BACKGROUNDS = {
    view.CAUGHT: 114,
    view.MISSED: 203,
    view.UNJUDGED: 208,
    view.FALSE_ALARM: 227,
    view.LUCKY: 250,
}


def _words(example: view.Example) -> list[list[int]]:
    """The positions grouped by words of the original text; a special token is a word of its own."""
    words, glue = [], False  # glue: whether the next piece may continue the word
    for i in range(len(example.pieces)):
        special = bool(example.special and example.special[i])
        if glue and not special and not example.starts_word[i]:
            words[-1].append(i)
        else:
            words.append([i])
        glue = not special
    return words


def _columns(example: view.Example, word: list[int], room: int) -> list[tuple]:
    """The columns of a word, a cell for each line. One that is too wide is cut between pieces."""
    cells = _cells(example, word, room)
    if len(word) > 1 and max(map(_columns_wide, cells)) > room:
        half = len(word) // 2
        return _columns(example, word[:half], room) + _columns(example, word[half:], room)
    return [cells]


def _lines(example: view.Example) -> tuple[str, ...]:
    """The names of the lines in a terminal: those of networks that the objective has."""
    names = ["original", "masked", *(["generator"] if example.generated else [])]
    if example.judged:
        return *names, "discriminator"
    return *names, *(["outcome"] if example.generated else [])


def _cells(example: view.Example, word: list[int], room: int) -> tuple:
    """A list of (text, outcome or None) for each of the `_lines`.

    A single piece that is too wide for a line is shortened.
    """
    original, masked, written, outcomes = [], [], [], []
    for i in word:
        outcome = example.outcome(i)
        original.append((_fitted(view.original_text(example, i), room), None))

        # If a whole word stands in the middle of one now, the new text has a space there.
        for line, (text, starts), look in (
            (masked, view.masked_text(example, i), None),
            (written, view.corrupted_text(example, i), None if outcome == view.PLAIN else outcome),
        ):
            text = _fitted(text, room)
            line.append((text if i == word[0] or not starts else f" {text}", look))

        if example.chosen(i) or outcome != view.PLAIN:
            outcomes.append((" ", None))
            outcomes.append(
                (_mark(example, i, outcome), None if outcome == view.PLAIN else outcome)
            )

    cells = {"original": original, "masked": masked, "generator": written}
    cells |= dict.fromkeys(("discriminator", "outcome"), outcomes[1:])
    return tuple(cells[name] for name in _lines(example))


def _mark(example: view.Example, i: int, outcome: str) -> str:
    p = example.p_replaced[i]
    return _MARKS[outcome] + ("" if p is None else f"{100 * p:.0f}%")


def _columns_wide(cell: list) -> int:
    return sum(terminal_cells.cell_len(text) for text, _ in cell)


def _padded(cell: list, size: int, colour: bool) -> str:
    text = "".join(_painted(text, outcome, colour) for text, outcome in cell)
    return text + " " * (size - _columns_wide(cell))


def _painted(text: str, outcome: str | None, colour: bool) -> str:
    if not colour or outcome is None or not text.strip():
        return text
    return f"\x1b[38;5;16;48;5;{_BACKGROUNDS[outcome]}m{text}\x1b[0m"


def _fitted(text: str, room: int) -> str:
    if terminal_cells.cell_len(text) <= room:
        return text
    return terminal_cells.set_cell_size(text, room - 1).rstrip() + "…"
