# SPDX-License-Identifier: Apache-2.0
"""Baselines: the score of a guesser that has learnt nothing, for each metric that has one.

    gen_masked_loss    unigram_entropy   always answering with the word frequencies of the text
    mlm_masked_loss    the same          if the main network is shown [MASK], as in masked_lm
    disc_loss          constant guess    the same probability for every token
    disc_accuracy      disc_majority     always saying "original"
                       always replaced   always saying "replaced", if most judged tokens are
    disc_auc           chance            0.5, whatever the share of replaced tokens
    disc_recall_at_2   chance            2 %, the share of false alarms at its threshold
    selection_accuracy selection_chance  one of the tokens that a slot is offered
    selection_loss     selection_chance  the same probability for each of them

Each is the score of the best constant answer over the same tokens as its metric. These are the
chosen slots for the discriminator of ELECTRA 15 %, and the words for that of Electric;
`disc_majority` is summed over them (`objectives/measuring.py`). `unigram_entropy` is the entropy of
all tokens of the evaluated rows that may be chosen; the slots are a uniform sample of these
(`evaluation.py`).

`mlm_masked_loss` of Replace MLM and All-Tokens MLM has no baseline. It is a mean over the positions
where the generator was wrong. Their words are rarer than those of the text on average, and the main
network does not know the positions, so the frequencies of the whole text are no measure for it.

A metric of one source, such as `gen_masked_loss/wiki`, is compared with `unigram_entropy/wiki`.
The console and the reports read their baselines here, so that they always agree.
"""

import dataclasses
import math
from collections.abc import Mapping

from electra_jax.report import metric_values

CHANCE = 0.5
FALSE_ALARMS = 0.02  # that of core/metrics.py, which imports jax
ALWAYS_REPLACED = "always replaced"
IN_WORDS = {  # each baseline as tables and tiles call it
    "unigram_entropy": "token frequencies",
    "constant guess": "one probability",
    "disc_majority": 'always "original"',
    ALWAYS_REPLACED: 'always "replaced"',
    "selection_chance": "chance",
    "chance": "chance",
}
GUESSERS = {  # what each baseline is the score of
    "unigram_entropy": "answering with the token frequencies (unigram_entropy)",
    "constant guess": "giving every token the same probability of being replaced",
    "disc_majority": 'always saying "original" (disc_majority)',
    ALWAYS_REPLACED: 'always saying "replaced"',
    "selection_chance": "guessing one of the tokens offered (selection_chance)",
    "chance": "guessing at random",
}


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The score of a guesser."""

    name: str
    value: float
    lower_wins: bool  # whether a trained network should be below it

    def margin(self, value: float) -> float:
        """How much better `value` is than the baseline; negative if it is worse."""
        return self.value - value if self.lower_wins else value - self.value

    def side(self, value: float) -> str:
        """On which side of the baseline `value` is: `below` or `above`."""
        return "below" if value < self.value else "above"


def of(name: str, metrics: Mapping[str, metric_values.Number]) -> Baseline | None:
    """The baseline of the metric `name`, from other metrics of the same row.

    Returns None if the metric has no baseline or the row lacks what it is computed from.
    """
    stem, slash, source = name.partition("/")
    if stem in ("disc_auc", "disc_auc_unigram"):
        return Baseline("chance", CHANCE, lower_wins=False)
    if stem == "disc_recall_at_2":
        return Baseline("chance", FALSE_ALARMS, lower_wins=False)
    if stem == "mlm_masked_loss" and f"gen_masked_loss{slash}{source}" in metrics:
        return None  # a generator filled the slots, so the main network is shown no [MASK]
    if stem in ("gen_masked_loss", "mlm_masked_loss"):
        entropy = metric_values.value(metrics, f"unigram_entropy{slash}{source}")
        return None if entropy is None else Baseline("unigram_entropy", entropy, lower_wins=True)

    if stem in ("selection_loss", "selection_accuracy"):
        return _of_selection(stem, metric_values.value(metrics, f"selection_chance{slash}{source}"))

    majority = metric_values.value(metrics, f"disc_majority{slash}{source}")
    if majority is None:
        return None
    if stem == "disc_accuracy":
        if majority < 0.5:
            return Baseline(ALWAYS_REPLACED, 1 - majority, lower_wins=False)
        return Baseline("disc_majority", majority, lower_wins=False)
    if stem == "disc_loss":
        return Baseline("constant guess", _entropy(majority), lower_wins=True)
    return None


def _of_selection(stem: str, chance: float | None) -> Baseline | None:
    if chance is None:
        return None
    if stem == "selection_loss":
        return Baseline("selection_chance", -math.log(chance), lower_wins=True)
    return Baseline("selection_chance", chance, lower_wins=False)


def verdict(metrics: Mapping[str, metric_values.Number]) -> str:
    """One plain sentence: how far both networks are from their baselines.

    The samples of a generator that has learnt nothing yet are easy to tell, so beside one the
    discriminator's AUC is given on tokens drawn by frequency too.
    """
    parts, easy = [], False
    for name, who in (("gen_masked_loss", "generator"), ("mlm_masked_loss", "main network")):
        loss, entropy = metric_values.value(metrics, name), of(name, metrics)
        if loss is not None and entropy is not None:
            distance = f"{abs(entropy.margin(loss)):.2f} nats"
            where = "at" if distance == "0.00 nats" else f"{distance} {entropy.side(loss)}"
            parts.append(f"{who} {where} the unigram line")
            easy |= who == "generator" and entropy.margin(loss) < 0

    auc = metric_values.value(metrics, "disc_auc")
    accuracy, majority = metric_values.value(metrics, "disc_accuracy"), of("disc_accuracy", metrics)
    heard = []
    if auc is not None:
        heard.append(
            f"AUC {auc:.2f}" + (" (no better than chance)" if round(auc, 2) <= CHANCE else "")
        )
        drawn = metric_values.value(metrics, "disc_auc_unigram")
        if easy and drawn is not None:
            heard[-1] += f" on its easy samples and {drawn:.2f} on tokens drawn by frequency"
    if accuracy is not None and majority is not None:
        points = f"{100 * abs(majority.margin(accuracy)):.1f} points"
        where = "equal to" if points == "0.0 points" else f"{points} {majority.side(accuracy)}"
        answer = "replaced" if majority.name == ALWAYS_REPLACED else "original"
        heard.append(f'accuracy {where} always saying "{answer}"')
    if heard:
        parts.append("discriminator " + ", ".join(heard))

    sentence = "; ".join(parts) or "no held-out evaluation yet"
    return sentence[0].upper() + sentence[1:] + "."


def _entropy(rate: float) -> float:
    """The entropy of a yes-or-no answer that is yes with probability `rate`, in nats."""
    return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)
