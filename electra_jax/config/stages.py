# SPDX-License-Identifier: Apache-2.0
"""Stages of a run: rows of another length, or more of them a step, from a share of its budget on.

    data.sequence_length, data.batch_size             from the first step on
    schedule.stages = ((share, length, rows), ...)    each from its share of the budget on

The stage of a step follows from what was spent before it - steps, tokens or seconds, whatever the
budget counts - and from nothing else, so a run goes on in the stage in which it stopped. Sources:
BERT's 90 % of the steps with rows of 128 tokens and the rest with 512 (Devlin et al. 2019,
arXiv:1810.04805, appendix A.2); growing batches as GPT-3 (Brown et al. 2020, arXiv:2005.14165,
appendix B) and ModernBERT (arXiv:2412.13663) have them.
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from electra_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a step takes, from a share of the budget on."""

    share: float
    sequence_length: int
    batch_size: int


def of(config: config_lib.Config) -> tuple[Stage, ...]:
    """All stages; the first has the rows of `data`."""
    first = Stage(0.0, config.data.sequence_length, config.data.batch_size)
    return first, *(Stage(*stage) for stage in config.schedule.stages)


def config_of(config: config_lib.Config, number: int) -> config_lib.Config:
    """The configuration of a run that would have this stage's rows from its first step on."""
    stage = of(config)[number]
    data = dataclasses.replace(
        config.data, sequence_length=stage.sequence_length, batch_size=stage.batch_size
    )
    return dataclasses.replace(
        config, data=data, schedule=dataclasses.replace(config.schedule, stages=())
    )


def begins(schedule: config_lib.Schedule) -> list[float]:
    """What is spent when each stage begins: steps, tokens or seconds, as the budget counts."""
    shares = [0.0, *(stage[0] for stage in schedule.stages)]
    if schedule.budget == "minutes":
        return [share * 60 * schedule.minutes for share in shares]
    whole = schedule.tokens if schedule.budget == "tokens" else schedule.steps
    # 0.55 x 100 is a little more than 55 in binary fractions.
    return [math.ceil(round(share * whole, 6)) for share in shares]


def number(schedule: config_lib.Schedule, step: int, tokens: int, seconds: float) -> int:
    """The stage of the step that begins when so much is spent."""
    spent = {"steps": step, "tokens": tokens, "minutes": seconds}[schedule.budget]
    return bisect.bisect_right(begins(schedule), spent) - 1


def steps(
    config: config_lib.Config, real: Sequence[float] = (), step_seconds: Sequence[float] = ()
) -> list[int] | None:
    """How many steps each stage has; None where that hangs on a speed that is not given.

    Args:
      real: of each stage, the share of the places in its rows that are no padding; all without it.
      step_seconds: of a step of each stage; a budget of minutes needs them.
    """
    counts: list[int] = []
    c, kinds = config.schedule, of(config)
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
        counts.append(min(count, c.steps - sum(counts)))
    return counts


def in_words(stage: Stage) -> str:
    """`32 rows of 512 tokens`."""
    return f"{stage.batch_size:,} rows of {stage.sequence_length:,} tokens"
