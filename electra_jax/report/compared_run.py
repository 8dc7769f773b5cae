# SPDX-License-Identifier: Apache-2.0
"""A run as comparisons read it from its workdir: settings, metrics, environment and cost.

config.json, metrics.jsonl, starts.jsonl  ->  ComparedRun

The run may still be going on: its files are only read.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax import config as config_lib
from electra_jax.report import metric_values, run_cost, writers
from electra_jax.workdir import saved_config, starts

_SPEED = ("tokens_per_second", "step_seconds", "mfu", "seconds_left")
_NO_ENVIRONMENT = ("step", "time", "device_count", "row_flops")  # what else a start has


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """What was read from a workdir."""

    workdir: str
    settings: Mapping[str, Any]  # by dotted path
    rows: Sequence[Mapping]  # of metrics.jsonl
    environment: Mapping[str, Any]  # of the last start; empty if starts.jsonl is not there
    cost: run_cost.Cost

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    @property
    def step(self) -> int:
        """That of the last row."""
        return self.rows[-1]["step"]

    @property
    def unfinished(self) -> str:
        """How far a run has got that has not spent its budget, in words; else ''."""
        steps, kind = self.settings["schedule.steps"], self.settings["schedule.budget"]
        share = metric_values.value(self.last("train"), "progress") or 0.0
        if self.step >= steps or share >= 1:
            return ""
        return f"step {self.step:,} of {steps:,}" if kind == "steps" else f"{share:.1%}"

    def last(self, kind: str) -> Mapping:
        """The last row of that kind; empty if there is none."""
        return next((row for row in reversed(self.rows) if row["kind"] == kind), {})

    @property
    def result(self) -> dict[str, Any]:
        """Its last metrics but for the speed: two runs share them only if they are the same run."""
        row = self.last("eval") or self.last("train")
        return {name: row[name] for name in sorted(row) if name not in _SPEED}

    def curve(self, kind: str, name: str, along: str) -> tuple[list[float], list[float]]:
        """The finite values of a metric as (x, y); x is `step` or `tokens_seen`."""
        found = [
            (row[along], row[name])
            for row in self.rows
            if row["kind"] == kind
            and metric_values.value(row, name) is not None
            and metric_values.value(row, along) is not None
        ]
        return [x for x, _ in found], [y for _, y in found]


def load(workdir: str) -> ComparedRun:
    """Reads a workdir. Raises ValueError, in one line, if it is not a run with metrics."""
    if not os.path.isdir(workdir):
        raise ValueError(f"{workdir} is not a folder; give the workdirs of runs")
    path, config = os.path.join(workdir, writers.METRICS), saved_config.of_run(workdir)
    for name, there in ((saved_config.NAME, config), (writers.METRICS, os.path.isfile(path))):
        if not there:
            raise ValueError(
                f"{workdir} has no {name}; give the workdir of a run that has"
                " reported at least once"
            )

    rows = [row for row in writers.read(path) if row["kind"] in writers.KINDS]
    if not rows:
        raise ValueError(f"{path} holds no rows yet; wait for the run's first report")
    begun = starts.read(workdir)
    return ComparedRun(
        workdir,
        config_lib.flatten(config),
        rows,
        _environment(begun[-1]) if begun else {},
        run_cost.of(config, rows, begun),
    )


def _environment(start: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, devices and command of a start, without what its line has for other purposes."""
    return {name: value for name, value in start.items() if name not in _NO_ENVIRONMENT}
