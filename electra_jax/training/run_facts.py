# SPDX-License-Identifier: Apache-2.0
"""What the report of a run says beside its curves, each from what the run has recorded.

settings, and those of configs/base.py  ->  what was changed
versions, devices, processes            ->  the environment of this start, noted in starts.jsonl
devices, mesh, dtype, parameters        ->  a line of the console
rows of metrics.jsonl, starts.jsonl     ->  what the run has cost
"""

import dataclasses
import datetime
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from electra_jax import config as config_lib
from electra_jax.configs import base
from electra_jax.data import records
from electra_jax.model import accounting
from electra_jax.report import run_cost, run_page, style
from electra_jax.step import attention_choice
from electra_jax.training import budget as budget_lib
from electra_jax.training import provenance, runs, spikes
from electra_jax.workdir import starts


def summary(run: runs.Run, status: str, rows: Sequence[Mapping]) -> run_page.Summary:
    """All that the report shows beside the curves, without samples."""
    c = run.config
    return run_page.Summary(
        name=c.name,
        status=status,
        steps=c.schedule.steps if c.schedule.budget == "steps" else 0,
        budget=budget_lib.describe(c.schedule),
        device=provenance.devices(),
        elapsed_seconds=sum(seconds for _, seconds in run_cost.intervals(rows)),
        parameters=accounting.parameters(run.state.params),
        config=config_lib.flatten(c),
        base=config_lib.flatten(config_lib.parse(base.get_config())),
        environment=run.environment,
        cost=_cost(run, rows),
        corpus=_corpus(run.stage.records.manifest),
        rollbacks=[spikes.describe(rollback) for rollback in run.rollbacks],
    )


def describe_start(run: runs.Run) -> str:
    """What the run trains and on what: 'training 14,045,954 parameters in bfloat16 on 8 x TPU v5e'.

    Whoever expects an accelerator and has none should see it at once.
    """
    count = sum(accounting.parameters(run.state.params).values())
    axes = ", ".join(f"{name} {size}" for name, size in run.mesh.shape.items() if size > 1)
    return (
        f"training {count:,} parameters in {run.plan.networks.dtype}"
        f" on {provenance.devices()}{axes and f' ({axes})'}"
    )


LONG_WAIT = 120.0  # seconds; if the first log line is further away, the run says when it comes


def describe_wait(config: config_lib.Config, step: int, seconds: float) -> str:
    """An estimate of when the next log line comes; '' if that is within `LONG_WAIT` seconds.

    Args:
      config: the settings of the run.
      step: one that has been taken.
      seconds: what it took.
    """
    c = config.schedule
    last = c.steps if c.budget == "steps" else math.inf
    line = min((step // config.logging.every + 1) * config.logging.every, last)
    if seconds * (line - step) < LONG_WAIT:
        return ""

    told = f"about {seconds:.2g} s per step: the next log line (step {line:,}) comes in"
    told += f" {style.duration(seconds * (line - step))}"
    if last > line and c.budget == "steps":
        told += f", step {last:,} in {style.duration(seconds * (last - step))}"
    return f"{told}; schedule.steps and logging.every change that"


def attention_notes(run: runs.Run) -> list[str]:
    """A line for each length of rows that an accelerator has no kernel of attention for.

    Such a run trains as well, but holds the scores of all pairs of tokens, and is slower.
    """
    lines = []
    for length in dict.fromkeys(stage.sequence_length for stage in run.stages):
        if reason := attention_choice.why_no_kernel(run.config, run.mesh, length):
            lines.append(
                f"attention over rows of {length} tokens holds all scores (einsum): {reason}"
            )
    return lines


def note_start(run: runs.Run) -> None:
    """Adds this start of the run to starts.jsonl."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about = {"step": run.step, "time": now, "device_count": jax.device_count()}
    about["row_flops"] = _row_flops(run)
    starts.note(run.workdir, about | run.environment)


def _cost(run: runs.Run, rows: Sequence[Mapping]) -> dict[str, str]:
    """What the steps so far have used; what is not known is left out."""
    found = run_cost.of(run.config, rows, starts.read(run.workdir))

    # Up to the current step, not only to the last log line.
    flops = sum(map(operator.mul, _row_flops(run), run.rows_by_stage))
    return run_cost.describe(dataclasses.replace(found, flops=flops if run.step else None))


def _row_flops(run):
    """The FLOPs of training on a row, for each stage."""
    return [stage.objective.flops(stage.sequence_length).train for stage in run.stages]


def _corpus(manifest: records.Manifest) -> dict[str, Any]:
    """The facts of the manifest that the report shows."""
    return {
        "sources": ", ".join(source.spec for source in manifest.sources),
        "vocabulary": f"{manifest.vocabulary['kind']}, {manifest.vocabulary['size']:,} pieces",
        **manifest.totals,
        **(_of_whole_text(manifest) if manifest.totals else {}),
        "hash": manifest.hash[:16],
    }


def _of_whole_text(manifest):
    """Facts that are known when the text is prepared to its end."""
    return {
        "padding": f"{manifest.wasted_fraction:.2%} of all places",
        "unknown tokens": f"{manifest.unk_rate:.4%}",
        "unigram entropy": f"{manifest.unigram_entropy:.3f} nats, of all held-out text",
    }
