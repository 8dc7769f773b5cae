# SPDX-License-Identifier: Apache-2.0
"""A corrupted row as text: what was masked, what the generator wrote, how it was judged.

    Example (pieces of one row)  ->  view_terminal.to_terminal: lines that are aligned
                                 ->  view_html.to_html:         text, shaded and underlined
                                     view_html.page:            several of them with a key, a file

Truth and judgement are shown apart. Nothing is said of networks that the objective does not have: a
masked language model has neither a generator nor a discriminator.
"""

import dataclasses
from collections.abc import Sequence

# The outcome of a token. A sample that equals the original counts as original (section 2.2).
CAUGHT = "caught"  # replaced, and judged replaced
MISSED = "missed"  # replaced, and judged original
FALSE_ALARM = "false alarm"  # original, and judged replaced
UNJUDGED = "replaced"  # replaced, and there is no discriminator
LUCKY = "lucky guess"  # masked, and the generator wrote the original token
PLAIN = "plain"  # all others: original, and judged original
OUTCOMES = (CAUGHT, MISSED, UNJUDGED, FALSE_ALARM, LUCKY, PLAIN)

# The heads of a discriminator that find the original at a slot, and what they do with it.
SELECTION, CORRECTION = "selection", "correction"
FINDERS = {SELECTION: "selected", CORRECTION: "written"}

THRESHOLD = 0.5  # where the discriminator finds both answers equally likely
_MAY_BE_EMPTY = ("special", "sampled_starts_word", "shown", "offered")  # fields of Example


@dataclasses.dataclass(frozen=True)
class Offer:
    """A token that may be the original at a slot."""

    piece: str
    starts_word: bool
    p: float  # that it is the original, according to the discriminator


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
      offered: the original at a slot and others, those that it is selected among, or the likeliest
        of the correction; None elsewhere. If empty, the discriminator does not find originals.
      finder: which of `FINDERS` says how likely they are.
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
    offered: Sequence[Sequence[Offer] | None] = ()
    finder: str = ""
    threshold: float = THRESHOLD

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if field.name in ("finder", "threshold"):
                continue
            length = len(getattr(self, field.name))
            empty = field.name in _MAY_BE_EMPTY and length == 0
            if length != len(self.pieces) and not empty:
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

    @property
    def finds(self) -> bool:
        """Whether a discriminator was to find any original."""
        return any(offered is not None for offered in self.offered)

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

    def found(self, i: int) -> tuple[Offer, bool] | None:
        """(What the discriminator takes for the original at a slot, whether it is); None elsewhere.

        As in `selection_accuracy`, the original is not found if another token is as likely.
        """
        offered = self.offered[i] if self.offered else None
        if offered is None:
            return None
        original, *others = offered
        likeliest = max(others, key=lambda offer: offer.p)
        return (original, True) if original.p > likeliest.p else (likeliest, False)

    def counts(self) -> dict[str, int]:
        """How many tokens have each outcome."""
        outcomes = [self.outcome(i) for i in range(len(self.pieces))]
        return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}


def sentence(example: Example) -> str:
    """The outcomes in words: `7 replaced: 5 caught, 2 missed; 1 false alarm; 2 lucky guesses`.

    With selection, `; the original selected at 6 of 9 slots` follows, with correction `written`
    instead of `selected`. Without a generator it is
    `9 of 64 tokens chosen: 7 shown as [MASK], 1 as another token, 1 as it is`.
    """
    whole = len(example.pieces)
    if not example.generated and not example.judged:
        masked, chosen = sum(example.masked), sum(map(example.chosen, range(whole)))
        other = sum(one is not None for one in example.shown)
        how = f"{masked} shown as [MASK], {other} as another token"
        return f"{chosen} of {whole} tokens chosen: {how}, {chosen - masked - other} as it is"

    counts = example.counts()
    replaced = counts[CAUGHT] + counts[MISSED] + counts[UNJUDGED]
    parts = [f"{replaced} of {whole} tokens replaced"]
    if example.judged:
        alarms = counts[FALSE_ALARM]
        parts[0] += f": {counts[CAUGHT]} caught, {counts[MISSED]} missed"
        parts.append(f"{alarms} false alarm{'s' * (alarms != 1)}")
    parts.append(f"{counts[LUCKY]} lucky guess{'es' * (counts[LUCKY] != 1)}")
    if example.finds:
        right = [found[1] for i in range(whole) if (found := example.found(i))]
        how = FINDERS[example.finder]
        parts.append(f"the original {how} at {sum(right)} of {len(right)} slots")
    return "; ".join(parts)


def original_text(example: Example, i: int) -> str:
    """The original token at position `i`, without marks of the vocabulary."""
    return clean(example.pieces[i], example.starts_word[i], example.chosen(i))


def masked_text(example: Example, i: int) -> tuple[str, bool]:
    """What the predicting network reads at position `i`, and whether it begins a word."""
    if example.masked[i]:
        return "[MASK]", bool(example.starts_word[i])
    other = example.shown[i] if example.shown else None
    if other is None:
        return original_text(example, i), bool(example.starts_word[i])
    piece, starts = other
    return clean(piece, starts, visible=True), starts


def corrupted_text(example: Example, i: int) -> tuple[str, bool]:
    """What the main network reads at position `i`, and whether it begins a word."""
    if not example.generated:
        return masked_text(example, i)
    if example.sampled[i] is None:
        return original_text(example, i), bool(example.starts_word[i])
    starts = (example.sampled_starts_word or example.starts_word)[i]
    return clean(example.sampled[i], starts, visible=True), bool(starts)


def offer_text(offer: Offer) -> str:
    """A token that is offered, without marks of the vocabulary."""
    return clean(offer.piece, offer.starts_word, visible=True)


def clean(piece: str, starts_word: bool, visible: bool) -> str:
    """The piece without the vocabulary's marker; a dot replaces letters that move the cursor.

    A single `▁` has no letter and becomes empty, unless it has to be `visible`.
    """
    bare = piece.removeprefix("▁") if starts_word else piece.removeprefix("##")
    bare = bare or (piece if visible else "")
    return "".join(c if c.isprintable() else "·" for c in bare)
