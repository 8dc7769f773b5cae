# SPDX-License-Identifier: Apache-2.0
"""What a reader of a comparison must know, because its numbers would mislead without it.

    groups of `comparison.py`, settings in which they differ  ->  of  ->  sentences

The same run twice, evaluations at different steps or over different text, and metrics of one name
that ask different questions: of other tokens, under other masks, about other generators.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.report import compared_run, means, metric_values

# Share of cases from which on luck is worth a note; with very many seeds the share is 0.046.
_OFTEN = 0.06
# Share of the entropy by which the rows of two seeds may differ; 0.0001 was seen.
_SEED_TOLERANCE = 0.005
# Settings that decide how much of a text a network is shown that predicts masked tokens.
_MASKING = ("mask_rate", "mask_token_rate", "random_token_rate", "mask_unit", "span_words")


def of(groups: Sequence[Any], differing: Mapping[str, Sequence]) -> list[str]:
    """The sentences, in the order in which they are shown.

    Args:
      groups: of `comparison.Group`.
      differing: as in `comparison.Comparison`.
    """
    runs = [run for group in groups for run in group.runs]
    return [
        *_of_copies(groups),
        *_of_evaluations(runs),
        *_of_predictions(runs),
        *_of_generators(runs, differing),
        *_of_luck(groups),
    ]


def _of_copies(groups) -> list[str]:
    """Runs that are the same one, and seeds that a group has more than once."""
    notes = []
    for group in groups:
        copies = [run.workdir for run in group.runs if run not in group.counted]
        if copies:
            notes.append(
                f"{group.letter} holds the same run again ({', '.join(copies)}: equal seed and"
                " metrics), which counts once"
            )
        seeds = collections.Counter(run.seed for run in group.counted)
        again = [seed for seed, count in seeds.items() if count > 1]
        if again:
            notes.append(
                f"{group.letter} has seed {again[0]} more than once: its standard error says"
                " less than it seems to"
            )
    return notes


def _of_luck(groups) -> list[str]:
    """How often so few seeds show a difference where there is none."""
    first, *others = (sum(bool(run.last("eval")) for run in group.counted) for group in groups)
    several = [count for count in others if count > 1]
    if first < 2 or not several:
        return []
    fewest = min(several, key=lambda count: means.degrees_of(first, count))
    share = means.of_luck(means.degrees_of(first, fewest))
    if share < _OFTEN:
        return []
    often = f"{'' if first == fewest else 'up to '}{share:.0%}"  # a bound where sizes differ
    return [
        f"with {first} and {fewest} seeds luck alone exceeds two standard errors in {often} of all"
        " cases (Student's t)"
    ]


def _of_evaluations(runs: Sequence[compared_run.ComparedRun]) -> list[str]:
    """When the runs were evaluated, and on what."""
    notes = []
    missing = [run.workdir for run in runs if not run.last("eval")]
    if missing:
        notes.append(f"not evaluated yet: {', '.join(missing)}")
    steps = sorted({run.last("eval")["step"] for run in runs if run.last("eval")})
    if len(steps) > 1:
        notes.append(f"the last evaluations are of different steps, {steps[0]:,} to {steps[-1]:,}")

    # The entropy is a property of the held-out text alone, so it tells whether texts are the same.
    # Each seed cuts the held-out documents into rows of its own, which changes it a little.
    found: dict[int, list[float]] = collections.defaultdict(list)
    for run in runs:
        value = metric_values.value(run.last("eval"), "unigram_entropy")
        if value is not None:
            found[run.seed].append(value)
    every = [value for values in found.values() for value in values]
    of_a_seed = [max(values) - min(values) for values in found.values()]
    if every and (max(of_a_seed) > 1e-4 or max(every) - min(every) > _SEED_TOLERANCE * min(every)):
        notes.append(
            "the runs were evaluated on different rows or vocabularies (unigram_entropy"
            f" {min(every):.4f} to {max(every):.4f}): compare margins over the guesser, not losses"
        )
    return notes


def _of_predictions(runs: Sequence[compared_run.ComparedRun]) -> list[str]:
    """Which tokens a network predicts, and how much of the text around them it is shown."""
    notes = []
    rows = [run.last("eval") for run in runs]
    if len({"gen_masked_loss" in row for row in rows if "mlm_masked_loss" in row}) > 1:
        notes.append(
            "mlm_masked_loss and mlm_masked_accuracy are of masked tokens without a generator, and"
            " of replaced ones beside one: do not compare them across the two"
        )

    for network in ("gen", "mlm"):
        mine = [run for run in runs if f"{network}_masked_loss" in run.last("eval")]
        names = f"{network}_masked_loss and {network}_masked_accuracy"

        # The towers of Electric predict every word from all others, whatever its mask rate.
        masked = [run for run in mine if run.settings["objective.name"] != "electric"]
        if masked and len(masked) < len(mine):
            notes.append(
                f"{names} are of words that electric predicts from all others, and of masked tokens"
                " elsewhere: do not compare them across the two"
            )
        if differences := _other_masks(masked):
            notes.append(
                f"{names} are under different masks ({differences}): where more is hidden, each"
                " guess is harder; compare neither them nor their margins over the guesser"
            )
    return notes


def _other_masks(runs: Sequence[compared_run.ComparedRun]) -> str:
    """`mask_rate 0.15 and 0.3` if that differs; '' if all runs mask alike.

    Evaluations use the mask rate at the end of a run, so `first_mask_rate` is no part of it.
    """
    spans = any(run.settings["objective.mask_unit"] == "span" for run in runs)
    found = []
    for name in _MASKING if spans else _MASKING[:-1]:
        values = list(dict.fromkeys(run.settings[f"objective.{name}"] for run in runs))
        if len(values) > 1:
            shown = [f"{value:g}" if isinstance(value, float) else value for value in values]
            found.append(f"{name} {', '.join(shown[:-1])} and {shown[-1]}")
    return "; ".join(found)


def _of_generators(
    runs: Sequence[compared_run.ComparedRun], differing: Mapping[str, Sequence]
) -> list[str]:
    """What each discriminator is tested on."""
    judged = any("disc_auc" in run.last("eval") for run in runs)
    if not judged or not differing:  # whatever differs makes another generator in the end
        return []
    return [
        "each discriminator is tested on its own generator's samples; across generators only"
        " disc_auc_unigram asks the same questions"
    ]
