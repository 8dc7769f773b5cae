# SPDX-License-Identifier: Apache-2.0
"""The training loop of one task for several seeds: epochs of batches, and evaluations on dev.

    state of Z seeds -> update, update, ... -> predict -> score -> ... -> kept weights per seed

The number of a seed decides its head, its order of rows and its dropout. The result of a seed does
not depend on which other seeds are trained with it. This module reads and writes no files.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.finetuning.tuning import batches, tuning_step

EVALUATION_ROWS = 2  # times the rows of a micro-batch, as no gradients need memory


@dataclasses.dataclass(frozen=True)
class TuningPlan:
    """How to train: the settings of one point of the grid."""

    peak: float
    epochs: int
    batch_size: int
    warmup_share: float
    buckets: tuple[int, ...]
    shared_seed: int  # decides the order of the shapes
    evaluate_times: int = 1
    keep: str = "last"  # weights of the last step, or of the 'best' evaluation on dev

    def steps(self, rows: int) -> int:
        """The number of updates for this many rows."""
        return batches.steps(rows, self.batch_size, self.epochs)


@dataclasses.dataclass(frozen=True)
class SeedEvaluation:
    """One evaluation of one seed."""

    step: int
    loss: float  # mean training loss since the previous evaluation
    scores: Mapping[str, Mapping[str, float]]  # split -> metric -> value


@dataclasses.dataclass(frozen=True)
class TrainedSeeds:
    """What training some seeds came to."""

    params: dict  # the weights that are kept, leaves [Z, ...]
    evaluations: list[list[SeedEvaluation]]  # per seed
    chosen: list[int]  # per seed, the place of the kept weights among its evaluations
    skipped: list[int]  # per seed, steps that were not finite and not applied
    seconds: float  # of training, without compilation and evaluation
    tokens: int  # trained on in these seconds, over all seeds, padding not counted
    places: int  # of tokens and padding, in the same batches
    compile_seconds: float


Score = Callable[[dict], list[dict[str, dict[str, float]]]]  # params -> scores per seed


def train(
    programs: tuning_step.Programs,
    state: tuning_step.State,
    keys_Z: jax.Array,
    seeds: Sequence[int],
    rows: batches.TaskRows,
    plan: TuningPlan,
    pad_id: int,
    score: Score,
    better: Callable[[Mapping, Mapping], bool],
    report: Callable[[int, int, list[SeedEvaluation]], None] = lambda *_: None,
) -> TrainedSeeds:
    """Trains to the end of the plan.

    Args:
      state: the initial state of these seeds.
      keys_Z: one key per seed.
      score: scores all dev sets.
      better: whether the first scores are better than the second; used if plan.keep is 'best'.
      report: called after each evaluation with (step, all steps, evaluation per seed).
    """
    steps = plan.steps(len(rows))
    evaluation_steps = evaluated_at(steps, plan.evaluate_times)
    rate_schedule = tuning_step.rate_schedule(plan.peak, steps, plan.warmup_share)
    training = _Training(programs, state, keys_Z, rate_schedule, len(seeds))

    for pieces in _batches_of(rows, seeds, plan):
        training.update(
            batches.stacked(rows, pieces, plan.batch_size, pad_id),
            length=pieces[0].length,
            tokens=batches.tokens(pieces, rows.lengths),
            places=batches.places(pieces, plan.batch_size),
        )
        if training.step in evaluation_steps:
            with training.paused():
                latest = training.evaluate(score, better if plan.keep == "best" else None)
                report(training.step, steps, latest)

    return training.ended()


def _batches_of(rows, seeds, plan) -> Iterator:
    """Yields the pieces of each step, one per seed; each epoch has an order of its own."""
    for epoch in range(plan.epochs):
        orders = [
            batches.epoch(
                rows.lengths, plan.buckets, plan.batch_size,
                seed=seed, shared_seed=plan.shared_seed, number=epoch,
            )
            for seed in seeds
        ]  # fmt: skip
        yield from batches.side_by_side(orders)


class _Training:
    """The state of some seeds, what was measured of them, and the weights that are kept."""

    def __init__(self, programs, state, keys_Z, rate_schedule, seeds: int):
        self._programs, self._state, self._keys_Z = programs, state, keys_Z
        self._rate_schedule = rate_schedule
        self.step = 0
        self._losses: list[jax.Array] = []  # [Z] each, of the steps since the last evaluation
        self._evaluations: list[list[SeedEvaluation]] = [[] for _ in range(seeds)]
        self._kept, self._chosen = None, [0] * seeds
        self._compiled: set[int] = set()  # lengths of rows
        self._clock = _Clock()

    def update(self, arrays: dict, length: int, tokens: int, places: int) -> None:
        """One step of all seeds.

        Args:
          arrays: those of the seeds' batches, stacked.
          length: of their rows.
          tokens: how many there are in them, padding not counted.
          places: the same with padding.
        """
        batch = jax.device_put(arrays, self._programs.rows)
        if length in self._compiled:
            self._update(batch)
            self._clock.tokens += tokens
            self._clock.places += places
        else:
            # A first call compiles. Both waits keep it out of the time of training.
            jax.block_until_ready(self._state)
            with self._clock.paused(compiling=True):
                self._update(batch)
                jax.block_until_ready(self._losses[-1])
            self._compiled.add(length)
        self.step += 1

    def _update(self, batch):
        self._state, loss_Z = self._programs.update(
            self._state, batch, self._rate_schedule, self._keys_Z
        )
        self._losses.append(loss_Z)

    @contextlib.contextmanager
    def paused(self):
        """What is done within is not counted as training."""
        # Steps that are still running belong to training, so the clock stops after them.
        jax.block_until_ready(self._state)
        with self._clock.paused():
            yield

    def evaluate(self, score: Score, better: Callable | None) -> list[SeedEvaluation]:
        """Scores the present weights and keeps them if they are `better`; without it always.

        Returns the new evaluation of each seed.
        """
        mean_Z, self._losses = _mean_of_finite(jax.device_get(self._losses)), []
        found = score(self._state.params)
        for one, mean, scores in zip(self._evaluations, mean_Z, found):
            one.append(SeedEvaluation(self.step, float(mean), scores))
        self._kept, self._chosen = _keep(
            self._kept, self._state.params, self._evaluations, self._chosen, better
        )
        return [one[-1] for one in self._evaluations]

    def ended(self) -> TrainedSeeds:
        """What the training came to."""
        return TrainedSeeds(
            params=self._kept,
            evaluations=self._evaluations,
            chosen=self._chosen,
            skipped=jax.device_get(self._state.skipped).tolist(),
            seconds=self._clock.seconds,
            tokens=self._clock.tokens,
            places=self._clock.places,
            compile_seconds=self._clock.compile_seconds,
        )


def _mean_of_finite(losses: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of each seed's finite losses [Z], as others were not applied; NaN without any."""
    losses_TZ = np.asarray(losses)
    finite_TZ = np.isfinite(losses_TZ)
    sums_Z, counts_Z = np.where(finite_TZ, losses_TZ, 0).sum(0), finite_TZ.sum(0)
    return np.divide(sums_Z, counts_Z, out=np.full(len(sums_Z), np.nan), where=counts_Z > 0)


def evaluated_at(steps: int, times: int) -> set[int]:
    """The steps with an evaluation: at equal distances, the last step among them."""
    times = min(times, steps)
    return {round(steps * place / times) for place in range(1, times + 1)}


def predict(
    programs: tuning_step.Programs,
    params: dict,
    rows: batches.TaskRows,
    buckets: Sequence[int],
    batch_size: int,
    pad_id: int,
) -> list[dict[str, list[np.ndarray]]]:
    """The outputs of all rows: per seed {name: one array per row}, padded tokens included.

    `rows` needs no labels except those that the head reads as input ("allowed").
    """
    size, found = batch_size * EVALUATION_ROWS, None

    for piece in batches.in_order(rows.lengths, buckets, size):
        made = batches.arrays(rows, piece, size, pad_id)
        read = {name: made[name] for name in ("ids", "marks", "allowed") if name in made}
        outputs = jax.device_get(
            programs.predict(params, jax.device_put(read, programs.shared_rows))
        )

        if found is None:
            # The names of the outputs and the number of seeds are known from the first batch.
            seeds = len(next(iter(outputs.values())))
            found = [{name: [None] * len(rows) for name in outputs} for _ in range(seeds)]

        for name, value_ZB in outputs.items():
            for seed, value_B in enumerate(value_ZB):
                for place, row in enumerate(piece.rows):
                    found[seed][name][row] = value_B[place]

    return found


@functools.partial(jax.jit, donate_argnums=0)
def _choose(kept, params, better_Z):
    """The new weights of the seeds that got better, the kept ones of the others."""

    def leaf(old, new):
        return jnp.where(better_Z.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(leaf, kept, params)


def _keep(kept, params, evaluations, chosen, better) -> tuple[Any, list[int]]:
    """The weights to keep after an evaluation, and per seed their place among its evaluations.

    Without `better` the last ones are kept.
    """
    last = len(evaluations[0]) - 1
    if better is None:
        return params, [last] * len(evaluations)
    if kept is None:
        # A copy, since the next update donates the buffers of `params`.
        return jax.tree.map(jnp.copy, params), chosen

    better_Z = [
        better(one[last].scores, one[place].scores) for one, place in zip(evaluations, chosen)
    ]
    kept = _choose(kept, params, np.array(better_Z))
    return kept, [last if yes else place for yes, place in zip(better_Z, chosen)]


class _Clock:
    """Counts the seconds of training and, apart from them, those of compilation."""

    def __init__(self):
        self._begun, self._out = time.perf_counter(), 0.0
        self.compile_seconds, self.tokens, self.places = 0.0, 0, 0

    @property
    def seconds(self):
        """Seconds since the clock was made, pauses not counted."""
        return time.perf_counter() - self._begun - self._out

    @contextlib.contextmanager
    def paused(self, compiling=False):
        """Stops the clock within the block; with `compiling` its time counts as compilation."""
        begun = time.perf_counter()
        yield
        spent = time.perf_counter() - begun
        self._out += spent
        self.compile_seconds += spent if compiling else 0.0
