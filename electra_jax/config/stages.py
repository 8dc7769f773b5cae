# SPDX-License-Identifier: Apache-2.0
"""Stages of a run: from a share of the budget on, rows have another length or batches another size.

    data.sequence_length, data.batch_size             from the first step on
    schedule.stages = ((share, length, rows), ...)    each from its share of the budget on

The stage of a step follows only from what was spent before it, in steps, tokens or seconds as the
budget counts. So a run that is continued is in the stage in which it stopped.

Sources: BERT trains 90 % of its steps on rows of 128 tokens and the rest on 512 (Devlin et al.
2019, arXiv:1810.04805, appendix A.2). GPT-3 (Brown et al. 2020, arXiv:2005.14165, appendix B) and
ModernBERT (arXiv:2412.13663) increase the batch size during training.
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from electra_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Stage:
    """Row length and batch size from a share of the budget on."""

    share: float  # of the budget, spent before the stage begins
    sequence_length: int  # tokens per row
    batch_size: int  # rows per step


def of(config: config_lib.Config) -> tuple[Stage, ...]:
    """All stages; row length and batch size of the first are those of the section `data`."""
    first = Stage(0.0, config.data.sequence_length, config.data.batch_size)
    return first, *(Stage(*stage) for stage in config.schedule.stages)


def distinct(config: config_lib.Config) -> tuple[Stage, ...]:
    """The stages whose step is a program of its own: the first of each row length and batch."""
    kinds: dict[tuple[int, int], Stage] = {}
    for stage in of(config):
        kinds.setdefault((stage.sequence_length, stage.batch_size), stage)
    return tuple(kinds.values())


def longest_row(config: config_lib.Config, rows_by_stage: Sequence[int]) -> int:
    """Tokens in the longest rows of the stages that took rows; of the first stage if none did.

    A checkpoint at the border of two stages names the next one, which has not taken any row yet,
    so its number does not say which lengths were trained.

    Args:
      rows_by_stage: the rows that each stage took, from the metadata of a checkpoint.
    """
    return max(
        (stage.sequence_length for stage, rows in zip(of(config), rows_by_stage) if rows),
        default=config.data.sequence_length,
    )


def begins(schedule: config_lib.Schedule) -> list[float]:
    """What is spent when each stage begins, in steps, tokens or seconds as the budget counts."""
    shares = [0.0, *(stage[0] for stage in schedule.stages)]
    if schedule.budget == "minutes":
        return [share * 60 * schedule.minutes for share in shares]
    whole = schedule.tokens if schedule.budget == "tokens" else schedule.steps
    # Rounded first: 0.55 x 100 is a little more than 55 in floating point.
    return [math.ceil(round(share * whole, 6)) for share in shares]


def number(schedule: config_lib.Schedule, step: int, tokens: int, seconds: float) -> int:
    """The number of the stage to which the next step belongs when this much is spent.

    After the last step it is the stage of that step: one whose share rounds up to the end of the
    run takes none, and is not what the run ends with.
    """
    spent = {"steps": min(step, schedule.steps - 1), "tokens": tokens, "minutes": seconds}[
        schedule.budget
    ]
    return bisect.bisect_right(begins(schedule), spent) - 1


def steps(
    schedule: config_lib.Schedule,
    kinds: Sequence[Stage],
    real: Sequence[float] = (),
    step_seconds: Sequence[float] = (),
) -> list[int] | None:
    """The number of steps of each stage; None if it depends on a speed that is not given.

    Args:
      schedule: the section `schedule` of the configuration.
      kinds: the stages.
      real: for each stage, the share of tokens in its rows that are not padding; 1 if not given.
      step_seconds: for each stage, the seconds per step; needed for a budget of minutes.
    """
    counts: list[int] = []
    c = schedule
    if c.budget == "minutes" and not step_seconds:
        return None

    end = {"steps": c.steps, "tokens": c.tokens, "minutes": 60 * c.minutes}[c.budget]
    marks: list[Any] = [*begins(c), end]
    for place, stage in enumerate(kinds):
        count = marks[place + 1] - marks[place]
        if c.budget == "tokens":
            share = real[place] if real else 1.0
            count = math.ceil(count / (stage.batch_size * stage.sequence_length * share))
        elif c.budget == "minutes":
            count = math.ceil(count / step_seconds[place])
        counts.append(min(count, c.steps - sum(counts)))  # `steps` limits every run

    return counts


def describe(stage: Stage) -> str:
    """A stage as text: `32 rows of 512 tokens`."""
    return f"{stage.batch_size:,} rows of {stage.sequence_length:,} tokens"
