# SPDX-License-Identifier: Apache-2.0
"""Statistics over the seeds of a fine-tuning, and warnings about single seeds.

    one value per seed  ->  summarise   ->  median, mean, sd, standard error, best, count
    predictions         ->  degenerate  ->  reasons to think that a seed has learnt nothing
    values              ->  far_below   ->  seeds that are far worse than the others
    two sets of values  ->  difference  ->  its standard error; 'not resolved' below two of them

Published scores of ELECTRA are medians over fine-tunings of one checkpoint. On small data sets some
seeds fail, and one failed seed pulls the mean far down (Devlin et al. 2019; Mosbach et al. 2021).
The median therefore comes first, and failed seeds are named.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from electra_jax.finetuning.results import ranking_scores
from electra_jax.finetuning.results import scores as scores_lib
from electra_jax.report import means

FAR = 3.0  # robust deviations below the median
FAR_AT_LEAST = 0.05  # and this much in the metric, as nearly equal seeds have tiny deviations


@dataclasses.dataclass(frozen=True)
class SeedStatistics:
    """One metric over seeds; sd (with n - 1) and error are None for a single finite value."""

    median: float
    mean: float
    sd: float | None
    error: float | None  # standard error of the mean
    best: float
    count: int  # of finite values
    failed: int  # number of values that are not finite; nothing above includes them


def summarise(metric: str, values: Sequence[float]) -> SeedStatistics:
    """Statistics over one value per seed; nan if no value is finite."""
    finite = [float(value) for value in values if math.isfinite(value)]
    failed = len(values) - len(finite)
    if not finite:
        return SeedStatistics(math.nan, math.nan, None, None, math.nan, 0, failed)

    mean = means.mean(finite)
    sd = None if mean.error is None else mean.error * math.sqrt(mean.count)
    best = min(finite) if metric in scores_lib.LOWER_IS_BETTER else max(finite)
    middle = statistics.median(finite)
    return SeedStatistics(middle, mean.value, sd, mean.error, best, mean.count, failed)


def degenerate(
    kind: str,
    metric: str,
    predictions,
    labels,
    names: Sequence[str] = (),
    ranked: Sequence[ranking_scores.Ranked] | None = None,
) -> list[str]:
    """Reasons, in words, to think that a seed has learnt nothing; empty if there are none.

    Args:
      kind: that of the task.
      metric: the one that counts for the task; it is compared with that of `scores.guess`.
      predictions: as `scores` takes them.
      labels: as `scores` takes them.
      names: the names of the classes, used in the texts.
      ranked: as `scores.compute` takes it.
    """
    warnings = []
    if scores_lib.is_of_rankings(metric):  # one class for all may still be a good ranking
        scores_R = np.array([one.score for one in ranked])
        if not np.isfinite(scores_R).all():
            warnings.append("predicts scores that are not finite: the run diverged")
        elif (scores_R == scores_R[0]).all():
            warnings.append("predicts the same score for every candidate")
    elif kind in ("classification", "regression"):
        predictions_R = np.asarray(predictions)
        if not np.isfinite(predictions_R).all():
            warnings.append("predicts numbers that are not finite: the run diverged")
        elif len(predictions_R) > 1 and (predictions_R == predictions_R[0]).all():
            value = predictions_R[0]
            named = kind == "classification" and len(names) > int(value)
            shown = names[int(value)] if named else f"{value:.6g}"
            warnings.append(f"predicts {shown} for every example")
    elif kind == "multi_label":
        rows = np.asarray(predictions)
        if len(rows) > 1 and (rows == rows[0]).all():
            warnings.append("predicts the same labels for every example")
    elif kind == "tagging":
        tags = {tag for sentence in predictions for tag in sentence}
        if len(tags) == 1:
            warnings.append(f"tags every word {tags.pop()}")
    elif kind == "span" and not any(predictions):
        warnings.append("answers no question")

    queries = None if ranked is None else [one.query for one in ranked]
    value = scores_lib.compute([metric], predictions, labels, ranked)[metric]
    guess = scores_lib.baseline(kind, [metric], labels, queries)[metric]
    if not warnings and not scores_lib.better(metric, value, guess):
        warnings.append(f"{metric} {value:.4f} is no better than a constant guess, {guess:.4f}")
    return warnings


def far_below(metric: str, values: Sequence[float]) -> dict[int, str]:
    """{place: text} of the seeds that are far worse than the others; empty for fewer than four.

    Far means more than three robust deviations (1.4826 x the median distance from the median) and
    more than 5 points.
    """
    finite = {place: value for place, value in enumerate(values) if math.isfinite(value)}
    if len(finite) < 4:
        return {}

    middle = statistics.median(finite.values())
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in finite.values())
    sign = -1 if metric in scores_lib.LOWER_IS_BETTER else 1
    return {
        place: f"{metric} {value:.4f} is far below the median of the seeds, {middle:.4f}"
        for place, value in finite.items()
        if sign * (middle - value) > max(FAR * deviation, FAR_AT_LEAST)
    }


def difference(metric: str, first: Sequence[float], second: Sequence[float]) -> means.Difference:
    """The mean of `first` minus that of `second`.

    Raises:
      ValueError: a set has no finite value.
    """
    found = []
    for name, values in (("first", first), ("second", second)):
        finite = [float(value) for value in values if math.isfinite(value)]
        if not finite:
            raise ValueError(f"the {name} set of runs has no finite {metric}")
        found.append(means.mean(finite))
    return means.difference(*found, higher_is_better=metric not in scores_lib.LOWER_IS_BETTER)
