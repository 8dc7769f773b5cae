# SPDX-License-Identifier: Apache-2.0
"""Converts a loss per token to a loss per word and per character of the same text.

Tokens differ between vocabularies, words and characters do not. A loss in nats per token, times the
number of tokens per character, is the loss in nats per character:

    text             the cat slept .           4 words, 15 characters
    tokens           the cat sle ##pt .        5
    loss per token   2.4 nats                  a perplexity of exp(2.4) = 11.0
    per word         2.4 x 5 / 4  = 3.0 nats   a perplexity of 20.1
    per character    2.4 x 5 / 15 = 0.8 nats   1.15 bits, a perplexity of 2.23

Words are separated by white space. Characters are those of the text before the vocabulary
normalises it, with one blank between words. A masked language model predicts a token from both
sides, so none of these figures is a likelihood of the text (docs/evaluation.md).
"""

import math
from collections.abc import Mapping
from typing import Any

from electra_jax.report import baselines, metric_values

UNITS = ("word", "character")
FIGURES = ("perplexity",) + tuple(
    f"{measure}_per_{unit}" for unit in UNITS for measure in ("nats", "bits", "perplexity")
)
_LARGEST = 700.0  # nats; the exponential of more overflows a float


def figures(
    loss: float | None, tokens: int, words: int, characters: int
) -> dict[str, float | None]:
    """All FIGURES of a loss in nats per token, for a text of this size.

    All are None if the loss is None; those per word or character are None for a text that has none,
    and a perplexity that would overflow is None too.
    """
    found = {"perplexity": _exp(loss)}
    for unit, count in zip(UNITS, (words, characters), strict=True):
        nats = None if loss is None or not count else loss * tokens / count
        found |= {
            f"nats_per_{unit}": nats,
            f"bits_per_{unit}": None if nats is None else nats / math.log(2),
            f"perplexity_per_{unit}": _exp(nats),
        }
    return found


def baseline(name: str, metrics: Mapping[str, Any]) -> baselines.Baseline | None:
    """As `baselines.of`; for one of the FIGURES of a loss, the unigram entropy in the same unit."""
    stem, _, figure = name.partition("_masked_")
    if figure not in FIGURES:
        return baselines.of(name, metrics)

    entropy = metric_values.value(metrics, f"unigram_{figure}")
    if entropy is None or baselines.of(f"{stem}_masked_loss", metrics) is None:
        return None
    return baselines.Baseline("unigram_entropy", entropy, lower_wins=True)


def _exp(nats):
    return None if nats is None or not nats < _LARGEST else math.exp(nats)
