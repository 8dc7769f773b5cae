# SPDX-License-Identifier: Apache-2.0
"""How well rows were judged: at a threshold with few false alarms, and in order of the margin.

    examples -> judged:   the same rows, with a threshold at which 2 % of the originals are accused
             -> ranked:   the row in which replaced tokens stand out most comes first
    -> extremes: a few of the first and of the last of them
             -> sentence: what was caught in all of them, beside what a guesser would have caught

While few tokens are replaced, a discriminator that has learnt little gives no token a probability
of one half, and at that threshold it would catch nothing.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from electra_jax.core import metrics
from electra_jax.report import view

# Without it a reader wonders why the best row may have nothing caught.
IN_WORDS = (
    "Rows are ranked by how far the mean belief at their replaced tokens is above that at their"
    " original ones, times the root of the number of replaced ones, and not by what is caught at"
    " the threshold: while beliefs are low everywhere, even the best row may have nothing caught"
)


def judged(examples: Sequence[view.Example]) -> list[view.Example]:
    """Returns the examples with one threshold: at most 2 % of all original tokens are above it.

    Without a discriminator, or without an original token, they are returned as they are.
    """
    _, original = _beliefs(examples)
    if not len(original):
        return list(examples)

    allowed = int(metrics.FALSE_ALARMS * len(original))
    highest = np.sort(original)[::-1]
    threshold = float(np.nextafter(highest[allowed], np.inf))  # above the first that is too many
    return [dataclasses.replace(example, threshold=threshold) for example in examples]


def margin(example: view.Example) -> float | None:
    """Returns the mean belief at replaced tokens less that at original ones.

    It is 0 for a guesser. None if there are not both kinds of tokens, or if nobody judged them.
    """
    replaced, original = _beliefs([example])
    if not (len(replaced) and len(original)):
        return None
    return float(replaced.mean() - original.mean())


def ranked(examples: Sequence[view.Example], worst_first: bool = False) -> list[view.Example]:
    """Returns the rows by falling or rising margin; those that have none come last, in their order.

    A margin counts by the root of the number of replaced tokens: a single one may stand out by
    luck, and many hardly do.
    """

    def place(example):
        found = margin(example)
        stands_out = (found or 0.0) * math.sqrt(sum(example.replaced))
        return (found is None, stands_out if worst_first else -stands_out)

    return sorted(examples, key=place)


def extremes(
    examples: Sequence[view.Example], best: int, worst: int
) -> tuple[list[view.Example], list[view.Example]]:
    """Returns (the first `best` rows of `ranked`, the last `worst` that have a margin, last first).

    No row is in both. If nobody judged the rows, the first `best` of them and none.
    """
    rows = [example for example in ranked(examples) if margin(example) is not None]
    if not rows:
        return list(examples[:best]), []
    return rows[:best], rows[best:][::-1][:worst]


def sentence(examples: Sequence[view.Example]) -> str:
    """What was caught at the threshold of `judged`; empty if nothing was replaced or judged."""
    replaced, original = _beliefs(examples)
    if not (len(replaced) and len(original)):
        return ""

    threshold = examples[0].threshold
    caught, alarms = (float((kind >= threshold).mean()) for kind in (replaced, original))
    return (
        f"{len(examples):,} held-out rows, {len(replaced):,} tokens replaced: {caught:.1%} caught"
        f" at a belief of {threshold:.0%} or more, where {alarms:.1%} of the original tokens are"
        f" false alarms (a guesser would catch {alarms:.1%} too)"
    )


def _beliefs(examples):
    """(at all replaced tokens, at all original tokens), [K] and [M]; empty without beliefs."""
    kinds = ([], [])
    for example in examples:
        for replaced, p in zip(example.replaced, example.p_replaced, strict=True):
            if p is not None:
                kinds[0 if replaced else 1].append(p)
    return tuple(np.asarray(kind, np.float64) for kind in kinds)
