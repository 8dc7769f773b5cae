# SPDX-License-Identifier: Apache-2.0
"""Check 21: a run that crashes and resumes, compared with a run that does not crash.

    made-up sentences -> two runs of 8 steps -> metrics.jsonl of both -> largest difference

The check is a function `check(config, seed) -> Result`, as in the other modules of checks.
"""

import math
import os
import tempfile

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.checks.result import Measure, Result
from electra_jax.report import writers
from electra_jax.training import loop

SAVED, CRASHED, ENDED = 4, 6, 8  # steps of the runs


def resuming_changes_nothing(config: config_lib.Config, seed: int) -> Result:
    """Check 21: a run that crashes and resumes has the same losses as one that does not crash.

    Both are real runs of 8 steps through `training.loop`, on made-up sentences, with dropout. The
    crash comes two steps after a checkpoint.
    """
    with tempfile.TemporaryDirectory() as folder, tiny_networks.compiling_fast():
        text = os.path.join(folder, "text.txt")
        _write_sentences(text, seed)
        small = _short_run(config, folder, text, seed)

        whole, broken = os.path.join(folder, "whole"), os.path.join(folder, "broken")
        loop.train(small, whole)
        try:
            loop.train(small, broken, [_Crash(CRASHED)])
        except _CrashedError:
            pass
        loop.train(small, broken)  # the same command in the same folder resumes the run

        rows = [writers.read(os.path.join(run, writers.METRICS)) for run in (whole, broken)]

    losses = [
        {(row["step"], row["kind"]): (row["gen_loss"], row["disc_loss"]) for row in found}
        for found in rows
    ]
    # Up to the checkpoint both runs are the same anyway.
    after = [at for at in losses[0] if at[0] > SAVED]
    differences = [
        max(abs(a - b) for a, b in zip(losses[0][at], losses[1].get(at, (math.inf,) * 2)))
        for at in after
    ]

    return Result(
        21,
        "a resumed run continues as if it had never stopped",
        "random numbers, optimizer or place in the data lost",
        (
            Measure("largest difference of a loss after resuming", max(differences), 0, 1e-6),
            Measure("steps and evaluations compared", len(after), ENDED - SAVED),
        ),
    )


CHECKS = {
    21: resuming_changes_nothing,
}


def _short_run(config, folder, text, seed):
    """Returns the configuration of a run of `ENDED` steps that reads a text file."""
    return tiny_networks.config(
        config,
        seed=seed,
        data__source=f"text:{text}",
        data__dir=os.path.join(folder, "data"),
        data__vocab="train:sentencepiece:64",
        data__heldout_fraction=0.1,
        data__batch_size=8,
        data__workers=1,
        # Sums of a GPU come in any order without it.
        mesh__compiler_options=(
            "xla_gpu_deterministic_ops=true" if jax.default_backend() == "gpu" else "auto"
        ),
        model__dropout=0.1,
        optimizer__learning_rate=1e-3,
        schedule__steps=ENDED,
        schedule__warmup_steps=2,
        schedule__accumulation=1,
        checkpoint__every=SAVED,
        evaluation__every=ENDED,
        evaluation__rows=16,
        logging__every=1,
        logging__report_every=10 * ENDED,
        logging__tensorboard=False,
    )


class _CrashedError(Exception):
    """Raised by `_Crash` to end a run."""


class _Crash:
    """A metrics writer that fails at a given step, as it would if the disk were full."""

    def __init__(self, step: int):
        self._step = step

    def write(self, step, kind, metrics):
        if step == self._step:
            raise _CrashedError

    def close(self):
        """Closes nothing, because no file is open."""


def _write_sentences(path, seed):
    """Writes 120 documents of made-up words, enough for a tokenizer and some batches."""
    draw = np.random.default_rng(seed)
    words = ["".join(draw.choice(list("abdegilmnorstu"), draw.integers(2, 7))) for _ in range(80)]

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(120):
            for _ in range(draw.integers(2, 8)):
                file.write(" ".join(draw.choice(words, draw.integers(4, 9))) + ".\n")
            file.write("\n")
