# SPDX-License-Identifier: Apache-2.0
"""A row as HTML: the corrupted text, shaded and underlined, and pages of such rows with a key.

A token that was replaced is underlined, and shading shows how sure the discriminator is that it
was. What it caught is green, with a straight line; what it missed is red, with a wavy one; a false
alarm is yellow, without a line. Without a generator it is the text that the network was shown.
"""

import dataclasses
import unicodedata
from collections.abc import Sequence

from electra_jax.report import rendering, view


def to_html(example: view.Example) -> str:
    """A row as an HTML fragment, for `page` or for the report of a run.

    It is the corrupted text or, without a generator, the text that the network was shown.
    """
    tokens = _tokens(example)
    return rendering.render(
        "sample.html.j2",
        tokens=tokens,
        counts=view.sentence(example),
        right_to_left=_is_right_to_left(tokens),
    )


def html_key(examples: Sequence[view.Example]) -> str:
    """An HTML fragment that explains the look of these examples."""
    return rendering.render(
        "key.html.j2",
        generated=any(example.generated for example in examples),
        judged=any(example.judged for example in examples),
        finders={example.finder for example in examples if example.finds},
    )


def page(examples: Sequence[view.Example], title: str, legend: str = "") -> str:
    """A whole self-contained page. `title` and `legend` are plain text."""
    fragments = [to_html(example) for example in examples]
    key = html_key(examples)
    return rendering.render(
        "samples.html.j2", samples=fragments, key=key, title=title, legend=legend
    )


_CLASSES = {  # outcome -> its name in the style sheet
    view.CAUGHT: "caught",
    view.MISSED: "missed",
    view.UNJUDGED: "replaced",
    view.FALSE_ALARM: "alarm",
    view.LUCKY: "lucky",
}


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


def _tokens(example: view.Example) -> list[_Token]:
    """All tokens of the corrupted text in natural spacing."""
    tokens, previous_special = [], True
    for i in range(len(example.pieces)):
        text, starts = view.corrupted_text(example, i)
        special = bool(example.special and example.special[i])
        space = bool(i and (starts or special or previous_special))
        tokens.append(_token(example, i, text, space, special))
        previous_special = special
    return tokens


def _is_right_to_left(tokens: Sequence[_Token]) -> bool:
    """Whether most letters, but for those of special tokens, are of Arabic, Hebrew and the like."""
    letters = [c for token in tokens if not token.special for c in token.text if c.isalpha()]
    right = sum(unicodedata.bidirectional(c) in ("R", "AL") for c in letters)
    return 2 * right > len(letters)


def _token(example: view.Example, i: int, text: str, space: bool, special: bool) -> _Token:
    """One token with its look. Only tokens that something happened to have classes and a title."""
    p, outcome = example.p_replaced[i], example.outcome(i)
    if special and outcome == view.PLAIN:
        return _Token(text, space, special=True)
    if outcome == view.PLAIN and not example.chosen(i) and (p is None or p < 0.005):
        return _Token(text, space)

    original, input_text = view.original_text(example, i), view.masked_text(example, i)[0]
    facts = [f"original: {original}"]
    if example.sampled[i] is not None:
        kept = bool(example.kept[i]) and input_text == original
        facts.append(f"generator: {text}" + (" (the input kept the token)" * kept))
    elif example.chosen(i):
        facts.append(f"shown to the network: {text}")
    if p is not None:
        facts.append(f"discriminator: {100 * p:.1f}% replaced")
    if example.offered and (offered := example.offered[i]) is not None:
        likeliest = sorted(offered, key=lambda offer: -offer.p)
        beliefs = [f"{view.offer_text(offer)} {100 * offer.p:.0f}%" for offer in likeliest]
        facts.append(f"{example.finder}: {', '.join(beliefs)}")

    hidden = not example.generated and input_text != original
    classes = ["w", *(["chosen"] if example.chosen(i) else [])]
    look = view.UNJUDGED if hidden else outcome
    classes += [_CLASSES[look]] if look in _CLASSES else []
    return _Token(
        text,
        space,
        classes=" ".join(classes),
        belief="" if p is None else f"{p:.3g}",
        title="\n".join(facts),
        original=original if hidden or example.replaced[i] else None,
    )
