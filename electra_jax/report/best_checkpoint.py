# SPDX-License-Identifier: Apache-2.0
"""The best checkpoint of a run by one of its held-out metrics (`checkpoint.keep_best`).

    rows of metrics.jsonl, steps that have a checkpoint  ->  the best of these steps, and its value

It follows from what is on the disk, so a run may begin to ask for it, or ask for another metric, at
any start. Checkpoints that were deleted before are lost.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from electra_jax.report import metric_values


@dataclasses.dataclass(frozen=True)
class Best:
    """The best checkpoint that a run has, and how the newest one does."""

    metric: str
    step: int
    value: float
    newest_step: int
    newest_value: float

    def __str__(self) -> str:
        """`step 500, whose gen_masked_loss is 3.21 (3.4 at step 900)`."""
        words = f"step {self.step:,}, whose {self.metric} is {self.value:.4g}"
        if self.step == self.newest_step:
            return words
        return f"{words} ({self.newest_value:.4g} at step {self.newest_step:,})"


def of(rows: Iterable[Mapping], metric: str, steps: Collection[int]) -> Best | None:
    """The best of these steps by a metric; None if none of them was evaluated.

    Args:
      rows: of metrics.jsonl. A value that is missing or not finite is passed over.
      metric: one of `config.BEST_BY`. The lowest loss is the best, of all others the highest value.
        Of equal ones the newest is.
      steps: those that have a checkpoint.
    """
    found = {}
    for row in rows:
        value = metric_values.value(row, metric)
        if row["kind"] == "eval" and row["step"] in steps and value is not None:
            found[row["step"]] = value
    if not found:
        return None

    sign = -1 if metric.endswith("loss") else 1
    best, newest = max(found, key=lambda step: (sign * found[step], step)), max(found)
    return Best(metric, best, found[best], newest, found[newest])
