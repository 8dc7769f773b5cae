# SPDX-License-Identifier: Apache-2.0
"""A row in a terminal: lines that are aligned with each other, and each judged token with a mark.

    original       the  chef  cooked  the  meal
    masked         the  chef  [MASK]  the  [MASK]
    generator      the  chef  ate     the  meal
    discriminator             ✓87%         =12%
    selection                 ✗ate 61%     ✓44%

Lines are those of networks that the objective has: without a discriminator the fourth has marks
alone, and a masked language model has the first two. The last is there if the discriminator finds
originals, here among several tokens; another token that it took is named, with its belief in it.

    tokens         the  chef  ate   the  me al
    discriminator  1%   3%    !87%  2%   4% 12%

is somebody's own text, of which nobody knows what was replaced. Words are two blanks apart, the
pieces of a word one.
"""

import functools
from collections.abc import Callable, Sequence

from rich import cells as terminal_cells

from electra_jax.objectives import scoring
from electra_jax.report import view


def to_terminal(example: view.Example, width: int = 100, colour: bool = True) -> str:
    """Blocks of two to five lines, wrapped between words at `width` columns; the counts in words.

    Raises ValueError if `width` is too narrow.
    """
    words = _words(example.starts_word, example.special)
    lines = _blocks(_lines(example), words, functools.partial(_cells, example), width, colour)
    return "\n".join([*lines, view.sentence(example)]) + "\n"


def tokens_to_terminal(
    tokens: Sequence[scoring.Token], width: int = 80, colour: bool = True
) -> str:
    """Blocks of two lines, wrapped between words at `width` columns: the pieces, the percentages.

    Raises ValueError if `width` is too narrow.
    """
    judged = any(token.p_replaced is not None for token in tokens)
    names = ("tokens", "discriminator" if judged else "probability")
    words = _words([token.starts_word for token in tokens])
    cells = functools.partial(_token_cells, tokens)
    return "\n".join(_blocks(names, words, cells, width, colour))


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
    line = "   ".join([*marks, *beliefs])
    finders = {example.finder for example in examples if example.finds}
    if not finders:
        return line

    right, wrong = (_painted(_MARKS[look], look, colour) for look in (view.CAUGHT, view.MISSED))
    return (
        f"{line}\n{', '.join(sorted(finders))}: {right} the original   {wrong} another token, which"
        " is named   %: belief that it stood there"
    )


def tokens_key(judged: bool, colour: bool = True) -> str:
    """One line that explains `tokens_to_terminal`; `judged`: whether by a discriminator."""
    if not judged:
        return "%: probability that the token stands there"
    mark = _painted(_MARKS[view.FALSE_ALARM], view.FALSE_ALARM, colour)
    return f"{mark} more likely replaced than not   %: belief that it was replaced"


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


def _blocks(
    names: Sequence[str], words: list[list[int]], cells_of: Callable, width: int, colour: bool
) -> list[str]:
    """Blocks of lines with these names, an empty line after each.

    Args:
      words: the positions of each word.
      cells_of: (positions, room) -> a list of (text, outcome or None) for each of the names.
    """
    margin = max(map(len, names)) + 2
    room = width - margin
    if room < 20:
        raise ValueError(f"width {width} is too narrow; give at least {margin + 20} columns")

    blocks, block, used = [], [], 0
    for word in words:
        for column in _columns(cells_of, word, room):
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
    return lines


def _words(starts_word: Sequence[bool], special: Sequence[bool] = ()) -> list[list[int]]:
    """The positions grouped by words of the original text; a special token is a word of its own."""
    words, glue = [], False  # glue: whether the next piece may continue the word
    for i in range(len(starts_word)):
        alone = bool(special and special[i])
        if glue and not alone and not starts_word[i]:
            words[-1].append(i)
        else:
            words.append([i])
        glue = not alone
    return words


def _columns(cells_of: Callable, word: list[int], room: int) -> list[tuple]:
    """The columns of a word, a cell for each line. One that is too wide is cut between pieces."""
    cells = cells_of(word, room)
    if len(word) > 1 and max(map(_columns_wide, cells)) > room:
        half = len(word) // 2
        return _columns(cells_of, word[:half], room) + _columns(cells_of, word[half:], room)
    return [cells]


def _lines(example: view.Example) -> tuple[str, ...]:
    """The names of the lines in a terminal: those of networks that the objective has."""
    names = ["original", "masked", *(["generator"] if example.generated else [])]
    if example.judged:
        return *names, "discriminator", *([example.finder] if example.finds else [])
    return *names, *(["outcome"] if example.generated else [])


def _cells(example: view.Example, word: list[int], room: int) -> tuple:
    """A list of (text, outcome or None) for each of the `_lines`.

    A single piece that is too wide for a line is shortened.
    """
    original, masked, written, outcomes, finds = [], [], [], [], []
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
        if found := example.found(i):
            finds += [(" ", None), _found(*found, room)]

    cells = {"original": original, "masked": masked, "generator": written}
    cells |= dict.fromkeys(("discriminator", "outcome"), outcomes[1:])
    cells[example.finder] = finds[1:]
    return tuple(cells[name] for name in _lines(example))


def _token_cells(tokens: Sequence[scoring.Token], word: list[int], room: int) -> tuple:
    """A list of (text, outcome or None) for the pieces of a word and for their percentages."""
    pieces: list[tuple] = []
    percentages: list[tuple] = []
    for i in word:
        token, look = tokens[i], None
        piece = _fitted(view.clean(token.piece, token.starts_word, visible=True), room)
        if token.p_replaced is None:
            percentage = _probability(token.p)
        else:
            look = view.FALSE_ALARM if token.p_replaced >= view.THRESHOLD else None
            percentage = f"{_MARKS[look] if look else ''}{100 * token.p_replaced:.0f}%"

        blank = [(" ", None)] if i != word[0] else []
        size = max(map(terminal_cells.cell_len, (piece, percentage)))
        for line, text in ((pieces, piece), (percentages, percentage)):
            rest = size - terminal_cells.cell_len(text)
            line += [*blank, (text, look), (" " * rest, None)]
    return pieces, percentages


def _probability(p: float) -> str:
    """Per cent with two digits; of Electric, which does not normalise, it may be any number."""
    if 0 <= p < 1e-4:
        return "<0.01%"
    if p >= 1.005:
        return ">100%"
    return f"{100 * p:.2g}%" if p < 0.1 else f"{100 * p:.0f}%"


def _mark(example: view.Example, i: int, outcome: str) -> str:
    p = example.p_replaced[i]
    return _MARKS[outcome] + ("" if p is None else f"{100 * p:.0f}%")


def _found(offer: view.Offer, right: bool, room: int) -> tuple[str, str]:
    """(text, outcome) of what is taken for the original: `✓44%`, or another token, `✗ate 61%`."""
    look = view.CAUGHT if right else view.MISSED
    belief = f"{100 * offer.p:.0f}%"
    if right:
        return _MARKS[look] + belief, look
    text = _fitted(view.offer_text(offer), room - len(belief) - 2)
    return f"{_MARKS[look]}{text} {belief}", look


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
