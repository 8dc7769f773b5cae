# SPDX-License-Identifier: Apache-2.0
"""What a run has cost: tokens, FLOPs of matrix products, device-hours of training steps.

rows of metrics.jsonl, starts.jsonl  ->  Cost  ->  in words, for the report and for comparisons

Compilation, evaluations and steps that were lost in an interruption are not counted.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.report import metric_values, style
from electra_jax.workdir import starts as starts_lib


@dataclasses.dataclass(frozen=True)
class Cost:
    """The sums over all steps; None where something is not known."""

    tokens: float | None  # padding not counted
    flops: float | None
    device_seconds: float | None


def of(config: config_lib.Config, rows: Sequence[Mapping], starts: Sequence[Mapping]) -> Cost:
    """What a run had cost at its last training row.

    Args:
      config: of the run.
      rows: the rows of metrics.jsonl.
      starts: as `workdir.starts` reads them; the FLOPs of a row are in them as `row_flops`, one
        number for each stage.
    """
    last = next((row for row in reversed(rows) if row["kind"] == "train"), {})
    return Cost(
        metric_values.value(last, "tokens_seen"),
        _flops(config, rows, starts),
        starts_lib.device_seconds(list(intervals(rows)), starts),
    )


def describe(cost: Cost) -> dict[str, str]:
    """Each cost that is known as text: `{'tokens': '8.06M, padding not counted', ...}`."""
    found = {}
    if cost.tokens is not None:
        found["tokens"] = f"{style.count(cost.tokens)}, padding not counted"
    if cost.flops is not None:
        found["FLOPs"] = f"{cost.flops:.3g} in matrix products"
    if cost.device_seconds is not None:
        found["device-hours"] = f"{cost.device_seconds / 3600:.3g}, of training steps alone"
    return found


def intervals(rows: Sequence[Mapping]) -> Iterator[tuple[int, float]]:
    """Yields (last step, seconds) of each training row whose speed is known."""
    before = 0
    for row in rows:
        if row["kind"] == "train":
            if row.get("step_seconds"):
                yield row["step"], row["step_seconds"] * (row["step"] - before)
            before = row["step"]


def _flops(config, rows, starts) -> float | None:
    """The FLOPs of all training steps that are in the rows; None if a start does not tell them."""
    run_stages, schedule = stages.of(config), config.schedule
    row_flops = starts[-1].get("row_flops") if starts else None
    if not isinstance(row_flops, list) or len(row_flops) != len(run_stages):
        return None

    # A stage ends with a log line, so all steps of an interval are of the stage of its first step.
    total, step, tokens, seconds = 0.0, 0, 0, 0.0
    for row in rows:
        if row["kind"] == "train":
            number = stages.number(schedule, step, tokens, seconds)
            rows_read = (row["step"] - step) * run_stages[number].batch_size
            total += rows_read * row_flops[number]
            step, tokens = row["step"], row.get("tokens_seen") or tokens
            seconds = 60 * schedule.minutes * (row.get("progress") or 0.0)
    return total if step else None
