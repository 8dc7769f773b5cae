# SPDX-License-Identifier: Apache-2.0
"""A corrupted row as text: what was masked, what the generator wrote, what the other believed.

    Example (pieces of one row)  ->  to_terminal: four lines that stand under each other
                                 ->  to_html:     the corrupted text, shaded and underlined
                                 ->  page:        several of them, with the key, in one file

Truth and belief are drawn apart. In HTML an underline says that a token was replaced, shading
says how sure the discriminator is that it was; so underlined and shaded is a catch, underlined
and bare a miss, shaded and bare a false alarm. In a terminal each judged token has one mark:

    original       the  chef  cooked  the  meal
    masked         the  chef  [MASK]  the  [MASK]
    generator      the  chef  ate     the  meal
    discriminator             ✓87%         =12%
"""

import dataclasses
import unicodedata
from collections.abc import Iterable, Sequence

from electra_jax.report import rendering

# The outcome of a token. A sample that equals the original counts as original (section 2.2).
CAUGHT = "caught"  # replaced, and believed to be
MISSED = "missed"  # replaced, and believed original
FALSE_ALARM = "false alarm"  # original, and believed replaced
UNJUDGED = "replaced"  # replaced, and no discriminator was asked
LUCKY = "lucky guess"  # masked, and the generator found the very token
PLAIN = "plain"  # all the rest: original, and believed so

THRESHOLD = 0.5  # belief from which on a token is called replaced


@dataclasses.dataclass(frozen=True)
class Example:
    """One row without its padding; all sequences have one entry a position.

    Pieces are the vocabulary's own, with their `▁` or `##`.

    Attributes:
      pieces: the original tokens, special ones included.
      starts_word: whether the original piece begins a word.
      masked: chosen, and shown to the generator as [MASK].
      kept: chosen, but shown as it is.
      sampled: what the generator wrote at the chosen positions, None elsewhere.
      replaced: whether the discriminator's input differs from the original (its label).
      p_replaced: the probability that the discriminator gives to `replaced`; None where it was
        not asked (an objective without a discriminator).
      special: whether the piece is [CLS], [SEP] or the like; empty means none.
      sampled_starts_word: whether the sampled piece begins a word; empty means as the original.
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

    def __post_init__(self):
        for field in dataclasses.fields(self):
            length = len(getattr(self, field.name))
            optional = field.name in ("special", "sampled_starts_word")
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

    def chosen(self, i: int) -> bool:
        """Whether position `i` was picked for the generator to predict."""
        return bool(self.masked[i] or self.kept[i])

    def outcome(self, i: int) -> str:
        """CAUGHT, MISSED, UNJUDGED, FALSE_ALARM, LUCKY or PLAIN."""
        if self.replaced[i] and self.p_replaced[i] is None:
            return UNJUDGED
        accused = self.p_replaced[i] is not None and self.p_replaced[i] >= THRESHOLD
        if self.replaced[i]:
            return CAUGHT if accused else MISSED
        if accused:
            return FALSE_ALARM
        return LUCKY if self.masked[i] and self.sampled[i] is not None else PLAIN

    def counts(self) -> dict[str, int]:
        """How many tokens came to each outcome."""
        outcomes = [self.outcome(i) for i in range(len(self.pieces))]
        return {outcome: outcomes.count(outcome) for outcome in _MARKS}


def to_terminal(example: Example, width: int = 100, colour: bool = True) -> str:
    """Blocks of four lines, wrapped by words at `width` columns."""
    names = ("original", "masked", "generator", "discriminator")
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


def terminal_key(colour: bool = True) -> str:
    """One line that explains the marks of `to_terminal`."""
    meanings = (
        (CAUGHT, "replaced and caught"),
        (MISSED, "replaced and missed"),
        (FALSE_ALARM, "original but accused"),
        (LUCKY, "the generator guessed the original"),
    )
    marks = [_painted(_MARKS[outcome], outcome, colour) + f" {text}" for outcome, text in meanings]
    return "   ".join([*marks, "%: belief that it was replaced"])


def to_html(example: Example) -> str:
    """The corrupted text as an HTML fragment, for `page` or for the report of a run."""
    return rendering.render("sample.html.j2", tokens=_tokens(example), counts=_sentence(example))


def page(fragments: Iterable[str], title: str, legend: str = "") -> str:
    """A whole self-contained page. `title` and `legend` are plain text, the fragments are HTML."""
    return rendering.render("samples.html.j2", samples=fragments, title=title, legend=legend)


_MARKS = {CAUGHT: "✓", MISSED: "✗", UNJUDGED: "~", FALSE_ALARM: "!", LUCKY: "=", PLAIN: "·"}
# Black on a colour reads on dark and on light terminals alike. Codes of the 256-colour table:
# sky blue, orange, yellow, grey; they differ in lightness too, for colour-blind eyes.
_BACKGROUNDS = {CAUGHT: 75, MISSED: 208, UNJUDGED: 208, FALSE_ALARM: 227, LUCKY: 250}


def _words(example: Example) -> list[list[int]]:
    """Positions grouped into words of the original; a special token stands alone."""
    words, glue = [], False
    for i in range(len(example.pieces)):
        special = bool(example.special and example.special[i])
        if glue and not special and not example.starts_word[i]:
            words[-1].append(i)
        else:
            words.append([i])
        glue = not special
    return words


def _columns(example: Example, word: list[int], room: int) -> list[tuple]:
    """The four cells of a word. A word too wide for a line is cut between pieces, then inside."""
    cells = _cells(example, word, room)
    if len(word) > 1 and max(map(_columns_wide, cells)) > room:
        half = len(word) // 2
        return _columns(example, word[:half], room) + _columns(example, word[half:], room)
    return [cells]


def _cells(example: Example, word: list[int], room: int) -> tuple:
    """Four lists of (text, outcome or None): original, masked, generator, discriminator."""
    original, masked, written, belief = [], [], [], []
    for i in word:
        outcome = example.outcome(i)
        text = _fitted(_original(example, i), room)
        original.append((text, None))
        masked.append(("[MASK]" if example.masked[i] else text, None))
        shown, starts = _shown(example, i)
        # A whole word sampled into the middle of one: the text that results has a space there.
        shown = _fitted(shown, room) if i == word[0] or not starts else " " + _fitted(shown, room)
        written.append((shown, None if outcome == PLAIN else outcome))
        if example.chosen(i) or outcome != PLAIN:
            belief.append((" ", None))
            belief.append((_mark(example, i, outcome), None if outcome == PLAIN else outcome))
    return original, masked, written, belief[1:]


def _mark(example: Example, i: int, outcome: str) -> str:
    p = example.p_replaced[i]
    return _MARKS[outcome] + ("" if p is None else f"{100 * p:.0f}%")


def _columns_wide(cell: list) -> int:
    return sum(_wide(text) for text, _ in cell)


def _padded(cell: list, size: int, colour: bool) -> str:
    text = "".join(_painted(text, outcome, colour) for text, outcome in cell)
    return text + " " * (size - _columns_wide(cell))


def _painted(text: str, outcome: str | None, colour: bool) -> str:
    if not colour or outcome is None or not text.strip():
        return text
    return f"\x1b[38;5;16;48;5;{_BACKGROUNDS[outcome]}m{text}\x1b[0m"


def _wide(text: str) -> int:
    """Columns that a terminal gives to the text: two to a wide East Asian letter, none to marks."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _fitted(text: str, room: int) -> str:
    if _wide(text) <= room:
        return text
    while _wide(text) > room - 1:
        text = text[:-1]
    return text + "…"


def _original(example: Example, i: int) -> str:
    return _clean(example.pieces[i], example.starts_word[i], example.chosen(i))


def _clean(piece: str, starts_word: bool, visible: bool) -> str:
    """The piece without the vocabulary's marker, and without what would move the cursor.

    A lone `▁` holds no letter and disappears, unless it has to be `visible`.
    """
    bare = piece.removeprefix("▁") if starts_word else piece.removeprefix("##")
    bare = bare or (piece if visible else "")
    return "".join(c if c.isprintable() else "·" for c in bare)


def _shown(example: Example, i: int) -> tuple[str, bool]:
    """What the discriminator reads at position `i`, and whether a space goes before it."""
    if example.sampled[i] is None:
        return _original(example, i), bool(example.starts_word[i])
    starts = (example.sampled_starts_word or example.starts_word)[i]
    return _clean(example.sampled[i], starts, visible=True), bool(starts)


@dataclasses.dataclass(frozen=True)
class _Token:
    """A token as the template shows it; one without classes is bare text."""

    text: str
    space_before: bool
    special: bool = False
    classes: str = ""
    belief: str = ""  # that it was replaced, from 0 to 1
    title: str = ""  # what the reader sees when pointing at it
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
    p, outcome = example.p_replaced[i], example.outcome(i)
    if special and outcome == PLAIN:
        return _Token(text, space, special=True)
    if outcome == PLAIN and not example.chosen(i) and (p is None or p < 0.005):
        return _Token(text, space)

    original = _original(example, i)
    facts = [f"original: {original}"]
    if example.sampled[i] is not None:
        facts.append(f"generator: {text}" + (" (the input kept the token)" * bool(example.kept[i])))
    if p is not None:
        facts.append(f"discriminator: {100 * p:.1f}% replaced")

    classes = ["w", *(["chosen"] if example.chosen(i) else [])]
    if outcome in (CAUGHT, MISSED, UNJUDGED, LUCKY):
        classes.append(outcome.split()[0])
    return _Token(
        text,
        space,
        classes=" ".join(classes),
        belief="" if p is None else f"{p:.3g}",
        title="\n".join(facts),
        original=original if example.replaced[i] else None,
    )


def _sentence(example: Example) -> str:
    """The outcomes in words: `7 replaced: 5 caught, 2 missed; 1 false alarm; 2 lucky guesses`."""
    counts = example.counts()
    replaced = counts[CAUGHT] + counts[MISSED] + counts[UNJUDGED]
    judged = any(p is not None for p in example.p_replaced)
    parts = [f"{replaced} of {len(example.pieces)} tokens replaced"]
    if judged:
        alarms = counts[FALSE_ALARM]
        parts[0] += f": {counts[CAUGHT]} caught, {counts[MISSED]} missed"
        parts.append(f"{alarms} false alarm{'s' * (alarms != 1)}")
    parts.append(f"{counts[LUCKY]} lucky guess{'es' * (counts[LUCKY] != 1)}")
    return "; ".join(parts)
