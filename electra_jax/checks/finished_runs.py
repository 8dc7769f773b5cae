# SPDX-License-Identifier: Apache-2.0
"""The runs that checks read: trained once through `training.loop`, kept, and opened.

    WORKDIR/data            prepared text, shared by all runs
    WORKDIR/seed0/micro     the configuration as it is: the micro-run
    WORKDIR/seed0/NAME      the same with a few settings changed

A run that is finished is not trained again; a run that was interrupted is resumed.
"""

import dataclasses
import functools
import os
from typing import Any

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.checks import scoring
from electra_jax.core import streams
from electra_jax.host import error_causes
from electra_jax.report import writers
from electra_jax.training import loop, run_data, trained_run
from electra_jax.workdir import metadata

MICRO = "micro"


@dataclasses.dataclass(frozen=True)
class RunsOfSeed:
    """All runs with one seed."""

    config: config_lib.Config
    seed: int
    workdir: str

    def micro(self) -> "FinishedRun":
        """Returns the micro-run: the configuration as it is."""
        return self.run(MICRO)

    def run(self, name: str, **changes) -> "FinishedRun":
        """Returns the run of that name and trains it first if it is not finished.

        `changes` are settings by path, written as section__field. Raises MayPass if it was stopped.
        """
        return FinishedRun.of(self.changed(name, **changes), self.folder(name))

    def changed(self, name: str, **changes) -> config_lib.Config:
        """Returns the configuration of the run of that name."""
        tree = config_lib.to_tree(self.config)
        if name != MICRO:
            tree["name"] = f"{tree['name']}_{name}"

        tree["seed"] = self.seed
        tree["data"]["dir"] = tree["data"]["dir"] or os.path.join(self.workdir, "data")
        for path, value in changes.items():
            section, _, field = path.partition("__")
            tree[section][field] = value

        return config_lib.parse(tree)

    def folder(self, name: str) -> str:
        """Returns the workdir of the run of that name."""
        return os.path.join(self.workdir, f"seed{self.seed}", name)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run. What is read or computed from it is computed once."""

    config: config_lib.Config
    workdir: str
    trained: trained_run.TrainedRun
    objective: Any  # for one device

    @classmethod
    def of(cls, config: config_lib.Config, workdir: str) -> "FinishedRun":
        """Trains a run to its last step, and its evaluation, if it is not there yet, and opens it.

        Raises MayPass if it was stopped before, at SIGTERM or Ctrl-C.
        """
        if not cls._is_finished(config, workdir):
            loop.train(config, workdir)
        if not cls._is_finished(config, workdir):
            raise error_causes.MayPass(f"{workdir} was stopped; the same command continues")
        return cls.open(config, workdir)

    @classmethod
    def _is_finished(cls, config, workdir):
        # A run that was stopped in its last evaluation makes that up when it is started again.
        steps = metadata.steps(metadata.directory(workdir))
        if not steps or steps[-1] < config.schedule.steps:
            return False
        evaluations = cls.open(config, workdir).evaluations
        return bool(evaluations) and evaluations[-1]["step"] == config.schedule.steps

    @classmethod
    def open(cls, config: config_lib.Config, workdir: str) -> "FinishedRun":
        """Reads the newest checkpoint of a workdir; writes nothing."""
        found = trained_run.open(config, workdir)
        return cls(found.config, workdir, found, found.objective.placed())

    @property
    def params(self) -> dict:
        """The trained weights."""
        return self.trained.params

    @functools.cached_property
    def first_params(self) -> dict:
        """The weights at step 0."""
        init = jax.jit(self.objective.init)
        return init(streams.stream(jax.random.key(self.config.seed), "init"))

    @functools.cached_property
    def evaluations(self) -> list[dict]:
        """The evaluations in metrics.jsonl, in the order of steps."""
        return self._metrics("eval")

    @functools.cached_property
    def log(self) -> list[dict]:
        """The lines of training in metrics.jsonl, in the order of steps."""
        return self._metrics("train")

    def _metrics(self, kind):
        rows = writers.read(os.path.join(self.workdir, writers.METRICS))
        return [row for row in rows if row["kind"] == kind]

    @functools.cached_property
    def heldout(self) -> tuple[np.ndarray, np.ndarray]:
        """(ids, marks) of the held-out rows that evaluations use."""
        sources = run_data.heldout(self.trained.records, self.config.evaluation.rows)
        return tuple(np.concatenate([source[lane] for source in sources]) for lane in (1, 2))

    @functools.cached_property
    def judged(self) -> scoring.Judged:
        """The held-out rows, corrupted and judged by the run's own networks."""
        return self.judge.played(self.params, *self.heldout)

    @functools.cached_property
    def judge(self) -> scoring.RowJudge:
        """What corrupts and judges rows with any weights of this shape."""
        return scoring.RowJudge(self.objective, self.pad_id)

    def training_rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (ids, marks) of random training rows, in proportion to the sizes of the sources.

        The first rows of the run would not do: they come from a few files, whose words differ from
        those of the whole text.
        """
        records, draw = self.trained.records, np.random.default_rng(0)
        sizes = [records.rows("train", s) for s in range(len(records.manifest.sources))]
        count = min(count, sum(sizes))
        asked = np.sort(draw.choice(sum(sizes), count, replace=False))

        ends = np.cumsum(sizes)
        parts = [
            records.read("train", s, asked[(asked >= end - size) & (asked < end)] - (end - size))
            for s, (size, end) in enumerate(zip(sizes, ends))
        ]

        order = draw.permutation(count)
        return tuple(np.concatenate([part[lane] for part in parts])[order] for lane in (0, 1))

    @property
    def pad_id(self) -> int:
        """The id of [PAD]."""
        return self.trained.vocabulary.pad_id

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of all special tokens."""
        return tuple(self.trained.vocabulary.special_ids)
