# SPDX-License-Identifier: Apache-2.0
"""A corrupted row as text: what was masked, what the generator wrote, how it was judged.

    Example (pieces of one row)  ->  to_terminal: up to four lines, aligned with each other
                                 ->  to_html:     the corrupted text, shaded and underlined
                                 ->  page:        several of them with a key, in one file

Truth and judgement are shown apart. In HTML a token that was replaced is underlined, and shading
shows how sure the discriminator is that it was. What it caught is green, with a straight line; what
it missed is red, with a wavy one; a false alarm is yellow, without a line. In a terminal each
judged token has one mark:

    original       the  chef  cooked  the  meal
    masked         the  chef  [MASK]  the  [MASK]
    generator      the  chef  ate     the  meal
    discriminator             ✓87%         =12%

Lines and words are those of networks that the objective has: without a discriminator the last line
has marks alone, and a masked language model has the first two lines.
"""

import dataclasses
from collections.abc import Sequence

from rich import cells as terminal_cells

from electra_jax.report import rendering

# The outcome of a token. A sample that equals the original counts as original (section 2.2).
CAUGHT = "caught"  # replaced, and judged replaced
MISSED = "missed"  # replaced, and judged original
FALSE_ALARM = "false alarm"  # original, and judged replaced
UNJUDGED = "replaced"  # replaced, and there is no discriminator
LUCKY = "lucky guess"  # masked, and the generator wrote the original token
PLAIN = "plain"  # all others: original, and judged original

THRESHOLD = 0.5  # where the discriminator finds both answers equally likely


@dataclasses.dataclass(frozen=True)
class Example:
    """One row without its padding. All sequences have one entry per position.

    Pieces are those of the vocabulary, with their `▁` or `##`.

    Attributes:
      pieces: the original tokens, special ones included.
      starts_word: whether the original piece begins a word.
      masked: whether the position was chosen and shown to the predicting network as [MASK].
      kept: whether the position was chosen but shown as another token than [MASK].
      sampled: what the generator wrote at the chosen positions, None elsewhere, and everywhere if
        the objective has no generator.
      replaced: whether the discriminator's input differs from the original (its label).
      p_replaced: the probability of `replaced` according to the discriminator; None if the
        objective has no discriminator.
      special: whether the piece is [CLS], [SEP] or the like. If empty, no piece is.
      sampled_starts_word: whether the sampled piece begins a word. If empty, it does where the
        original piece does.
      shown: where a kept position was shown as another token than the original one: its piece, and
        whether that begins a word; None elsewhere. If empty, there is no such position.
      threshold: the least probability at which a token is judged replaced.
    """

    pieces: Sequence[str]
    starts_word: Sequence[bool]
    masked: Sequence[bool]
    kept: Sequence[bool]
    sampled: Sequence[str | None]
    replaced: Sequence[bool]
    p_replaced: Sequence[float | None]
    special: Sequence[bool] = ()
    sampled_starts_word: Sequence[bool] = ()
    shown: Sequence[tuple[str, bool] | None] = ()
    threshold: float = THRESHOLD

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if field.name == "threshold":
                continue
            length = len(getattr(self, field.name))
            optional = field.name in ("special", "sampled_starts_word", "shown")
            if length != len(self.pieces) and not (optional and length == 0):
                raise ValueError(
                    f"{field.name} has {length} entries for {len(self.pieces)} pieces; "
                    "give one for each"
                )

        for i in range(len(self.pieces)):
            if self.masked[i] and self.kept[i]:
                raise ValueError(f"position {i} is both masked and kept; a slot is one of them")
            if self.replaced[i] and self.sampled[i] is None:
                raise ValueError(f"position {i} is replaced, but sampled[{i}] is None; by what?")

    @property
    def generated(self) -> bool:
        """Whether a generator wrote any token."""
        return any(piece is not None for piece in self.sampled)

    @property
    def judged(self) -> bool:
        """Whether a discriminator judged any token."""
        return any(p is not None for p in self.p_replaced)

    def chosen(self, i: int) -> bool:
        """Whether position `i` was chosen for the generator to predict."""
        return bool(self.masked[i] or self.kept[i])

    def outcome(self, i: int) -> str:
        """CAUGHT, MISSED, UNJUDGED, FALSE_ALARM, LUCKY or PLAIN."""
        if self.replaced[i] and self.p_replaced[i] is None:
            return UNJUDGED
        accused = self.p_replaced[i] is not None and self.p_replaced[i] >= self.threshold
        if self.replaced[i]:
            return CAUGHT if accused else MISSED
        if accused:
            return FALSE_ALARM
        return LUCKY if self.masked[i] and self.sampled[i] is not None else PLAIN

    def counts(self) -> dict[str, int]:
        """How many tokens have each outcome."""
        outcomes = [self.outcome(i) for i in range(len(self.pieces))]
        return {outcome: outcomes.count(outcome) for outcome in _MARKS}


def to_terminal(example: Example, width: int = 100, colour: bool = True) -> str:
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
    return "\n".join([*lines, _sentence(example)]) + "\n"


def terminal_key(examples: Sequence[Example], colour: bool = True) -> str:
    """One line that explains the marks of `to_terminal`; '' if these examples have none."""
    if any(example.judged for example in examples):
        meanings = (
            (CAUGHT, "replaced and caught"),
            (MISSED, "replaced and missed"),
            (FALSE_ALARM, "original but accused"),
            (LUCKY, "the generator guessed the original"),
        )
    elif any(example.generated for example in examples):
        meanings = ((UNJUDGED, "replaced"), (LUCKY, "the generator guessed the original"))
    else:
        return ""

    marks = [_painted(_MARKS[outcome], outcome, colour) + f" {text}" for outcome, text in meanings]
    beliefs = ["%: belief that it was replaced"] if meanings[0][0] == CAUGHT else []
    return "   ".join([*marks, *beliefs])


def to_html(example: Example) -> str:
    """A row as an HTML fragment, for `page` or for the report of a run.

    It is the corrupted text or, without a generator, the text that the network was shown.
    """
    return rendering.render("sample.html.j2", tokens=_tokens(example), counts=_sentence(example))


def html_key(examples: Sequence[Example]) -> str:
    """An HTML fragment that explains the look of these examples."""
    return rendering.render(
        "key.html.j2",
        generated=any(example.generated for example in examples),
        judged=any(example.judged for example in examples),
    )


def page(examples: Sequence[Example], title: str, legend: str = "") -> str:
    """A whole self-contained page. `title` and `legend` are plain text."""
    fragments = [to_html(example) for example in examples]
    key = html_key(examples)
    return rendering.render(
        "samples.html.j2", samples=fragments, key=key, title=title, legend=legend
    )


_CLASSES = {  # outcome -> its name in the style sheet
    CAUGHT: "caught",
    MISSED: "missed",
    UNJUDGED: "replaced",
    FALSE_ALARM: "alarm",
    LUCKY: "lucky",
}
_MARKS = {CAUGHT: "✓", MISSED: "✗", UNJUDGED: "~", FALSE_ALARM: "!", LUCKY: "=", PLAIN: "·"}
# Black letters on a colour can be read on dark and on light terminals. The numbers are codes of the
# 256-colour table: green, red, orange, yellow, grey. For colour-blind readers the marks differ too.
_BACKGROUNDS = {CAUGHT: 114, MISSED: 203, UNJUDGED: 208, FALSE_ALARM: 227, LUCKY: 250}


def _words(example: Example) -> list[list[int]]:
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


def _columns(example: Example, word: list[int], room: int) -> list[tuple]:
    """The columns of a word, each of four cells. A word that is too wide is cut between pieces."""
    cells = _cells(example, word, room)
    if len(word) > 1 and max(map(_columns_wide, cells)) > room:
        half = len(word) // 2
        return _columns(example, word[:half], room) + _columns(example, word[half:], room)
    return [cells]


def _lines(example: Example) -> tuple[str, ...]:
    """The names of the lines in a terminal: those of networks that the objective has."""
    names = ["original", "masked", *(["generator"] if example.generated else [])]
    if example.judged:
        return *names, "discriminator"
    return *names, *(["outcome"] if example.generated else [])


def _cells(example: Example, word: list[int], room: int) -> tuple:
    """A list of (text, outcome or None) for each of the `_lines`.

    A single piece that is too wide for a line is shortened.
    """
    original, masked, written, outcomes = [], [], [], []
    for i in word:
        outcome = example.outcome(i)
        original.append((_fitted(_original(example, i), room), None))

        # If a whole word stands in the middle of one now, the new text has a space there.
        for line, (text, starts), look in (
            (masked, _seen(example, i), None),
            (written, _shown(example, i), None if outcome == PLAIN else outcome),
        ):
            text = _fitted(text, room)
            line.append((text if i == word[0] or not starts else f" {text}", look))

        if example.chosen(i) or outcome != PLAIN:
            outcomes.append((" ", None))
            outcomes.append((_mark(example, i, outcome), None if outcome == PLAIN else outcome))

    cells = {"original": original, "masked": masked, "generator": written}
    cells |= dict.fromkeys(("discriminator", "outcome"), outcomes[1:])
    return tuple(cells[name] for name in _lines(example))


def _mark(example: Example, i: int, outcome: str) -> str:
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


def _original(example: Example, i: int) -> str:
    return _clean(example.pieces[i], example.starts_word[i], example.chosen(i))


def _clean(piece: str, starts_word: bool, visible: bool) -> str:
    """The piece without the vocabulary's marker; a dot replaces letters that move the cursor.

    A single `▁` has no letter and becomes empty, unless it has to be `visible`.
    """
    bare = piece.removeprefix("▁") if starts_word else piece.removeprefix("##")
    bare = bare or (piece if visible else "")
    return "".join(c if c.isprintable() else "·" for c in bare)


def _seen(example: Example, i: int) -> tuple[str, bool]:
    """What the predicting network reads at position `i`, and whether it begins a word."""
    if example.masked[i]:
        return "[MASK]", bool(example.starts_word[i])
    other = example.shown[i] if example.shown else None
    if other is None:
        return _original(example, i), bool(example.starts_word[i])
    piece, starts = other
    return _clean(piece, starts, visible=True), starts


def _shown(example: Example, i: int) -> tuple[str, bool]:
    """What the main network reads at position `i`, and whether it begins a word."""
    if not example.generated:
        return _seen(example, i)
    if example.sampled[i] is None:
        return _original(example, i), bool(example.starts_word[i])
    starts = (example.sampled_starts_word or example.starts_word)[i]
    return _clean(example.sampled[i], starts, visible=True), bool(starts)


@dataclasses.dataclass(frozen=True)
class _Token:
    """A token as the template shows it; one without classes is plain text."""

    text: str
    space_before: bool
    special: bool = False
    classes: str = ""
    belief: str = ""  # that it was replaced, from 0 to 1
    title: str = ""  # shown when the mouse is over the token
    original: str | None = None  # None where nothing was replaced


def _tokens(example: Example) -> list[_Token]:
    """All tokens of the corrupted text in natural spacing."""
    tokens, previous_special = [], True
    for i in range(len(example.pieces)):
        text, starts = _shown(example, i)
        special = bool(example.special and example.special[i])
        space = bool(i and (starts or special or previous_special))
        tokens.append(_token(example, i, text, space, special))
        previous_special = special
    return tokens


def _token(example: Example, i: int, text: str, space: bool, special: bool) -> _Token:
    """One token with its look. Only tokens that something happened to have classes and a title."""
    p, outcome = example.p_replaced[i], example.outcome(i)
    if special and outcome == PLAIN:
        return _Token(text, space, special=True)
    if outcome == PLAIN and not example.chosen(i) and (p is None or p < 0.005):
        return _Token(text, space)

    original, input_text = _original(example, i), _seen(example, i)[0]
    facts = [f"original: {original}"]
    if example.sampled[i] is not None:
        kept = bool(example.kept[i]) and input_text == original
        facts.append(f"generator: {text}" + (" (the input kept the token)" * kept))
    elif example.chosen(i):
        facts.append(f"shown to the network: {text}")
    if p is not None:
        facts.append(f"discriminator: {100 * p:.1f}% replaced")

    hidden = not example.generated and input_text != original
    classes = ["w", *(["chosen"] if example.chosen(i) else [])]
    look = UNJUDGED if hidden else outcome
    classes += [_CLASSES[look]] if look in _CLASSES else []
    return _Token(
        text,
        space,
        classes=" ".join(classes),
        belief="" if p is None else f"{p:.3g}",
        title="\n".join(facts),
        original=original if hidden or example.replaced[i] else None,
    )


def _sentence(example: Example) -> str:
    """The outcomes in words: `7 replaced: 5 caught, 2 missed; 1 false alarm; 2 lucky guesses`.

    Without a generator: `9 of 64 tokens chosen: 7 shown as [MASK], 1 as another token, 1 as it is`.
    """
    whole = len(example.pieces)
    if not example.generated and not example.judged:
        masked, chosen = sum(example.masked), sum(map(example.chosen, range(whole)))
        other = sum(one is not None for one in example.shown)
        shown = f"{masked} shown as [MASK], {other} as another token"
        return f"{chosen} of {whole} tokens chosen: {shown}, {chosen - masked - other} as it is"

    counts = example.counts()
    replaced = counts[CAUGHT] + counts[MISSED] + counts[UNJUDGED]
    parts = [f"{replaced} of {whole} tokens replaced"]
    if example.judged:
        alarms = counts[FALSE_ALARM]
        parts[0] += f": {counts[CAUGHT]} caught, {counts[MISSED]} missed"
        parts.append(f"{alarms} false alarm{'s' * (alarms != 1)}")
    parts.append(f"{counts[LUCKY]} lucky guess{'es' * (counts[LUCKY] != 1)}")
    return "; ".join(parts)
