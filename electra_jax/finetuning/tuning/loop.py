# SPDX-License-Identifier: Apache-2.0
"""The fine-tuning of one task: epochs of batches, now and then a look at dev, for some seeds.

    state of Z seeds -> update, update, ... -> predict -> score -> ... -> what is kept of each seed

Each seed has a head, an order of rows and dropout of its own, all from its number; what it becomes
does not depend on the seeds beside it. Nothing is read or written here.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.finetuning.tuning import batches, tuning_step

EVALUATION_ROWS = 2  # times the rows of a training batch: no gradients are kept


@dataclasses.dataclass(frozen=True)
class Plan:
    """One way to train: a point of the grid."""

    peak: float
    epochs: int
    batch_size: int
    warmup_share: float
    buckets: tuple[int, ...]
    shared_seed: int  # of the order of the shapes
    evaluate_times: int = 1
    keep: str = "last"  # or 'best', by dev

    def steps(self, rows: int) -> int:
        """How many updates."""
        return batches.steps(rows, self.batch_size, self.epochs)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What one seed was at one step."""

    step: int
    loss: float  # the mean since the point before
    scores: Mapping[str, Mapping[str, float]]  # split -> metric -> value


@dataclasses.dataclass(frozen=True)
class TrainedSeeds:
    """Some seeds, trained."""

    params: dict  # chosen ones, leaves [Z, ...]
    evaluations: list[list[Evaluation]]  # of each seed
    chosen: list[int]  # place among its evaluations
    skipped: list[int]  # steps that were not finite
    seconds: float  # of training, without compiling and without looking at dev
    tokens: int  # real ones that these seconds saw, over all seeds
    compile_seconds: float


Score = Callable[[dict], list[dict[str, dict[str, float]]]]  # params -> scores of each seed


def train(
    programs: tuning_step.Programs,
    state: tuning_step.State,
    keys_Z: jax.Array,
    seeds: Sequence[int],
    rows: batches.Rows,
    plan: Plan,
    pad_id: int,
    score: Score,
    better: Callable[[Mapping, Mapping], bool],
    report: Callable[[int, int, list[Evaluation]], None] = lambda step, steps, evaluations: None,
) -> TrainedSeeds:
    """Trains to the end of the plan.

    Args:
      state: of a first step, for these seeds.
      keys_Z: one a seed.
      score: looks at all dev sets.
      better: whether the first scores are better than the second, where the best are kept.
      report: hears of each evaluation.
    """
    lengths, steps = rows.lengths, plan.steps(len(rows))
    looks = evaluated_at(steps, plan.evaluate_times)
    course = tuning_step.course(plan.peak, steps, plan.warmup_share)
    evaluations: list[list[Evaluation]] = [[] for _ in seeds]
    chosen, kept, losses = [0] * len(seeds), None, []
    clock, number, compiled = _Clock(), 0, set()
    for epoch in range(plan.epochs):
        orders = [
            batches.epoch(
                lengths, plan.buckets, plan.batch_size,
                seed=seed, shared_seed=plan.shared_seed, number=epoch,
            )
            for seed in seeds
        ]  # fmt: skip
        for pieces in batches.side_by_side(orders):
            made = batches.stacked(rows, pieces, plan.batch_size, pad_id)
            batch = jax.device_put(made, programs.rows)
            if pieces[0].length in compiled:
                state, loss_Z = programs.update(state, batch, course, keys_Z)
                clock.tokens += batches.tokens(pieces, lengths)
            else:  # a first call compiles: it is waited for and left out of the speed
                jax.block_until_ready(state)
                with clock.paused(compiling=True):
                    state, loss_Z = programs.update(state, batch, course, keys_Z)
                    jax.block_until_ready(loss_Z)
                compiled.add(pieces[0].length)
            losses.append(loss_Z)
            number += 1
            if number not in looks:
                continue
            jax.block_until_ready(state)
            with clock.paused():
                mean_Z = np.mean(jax.device_get(losses), axis=0)
                losses = []
                found = score(state.params)
                for one, mean, scores in zip(evaluations, mean_Z, found):
                    one.append(Evaluation(number, float(mean), scores))
                kept, chosen = _keep(plan, kept, state.params, evaluations, chosen, better)
                report(number, steps, [one[-1] for one in evaluations])
    return TrainedSeeds(
        params=kept,
        evaluations=evaluations,
        chosen=chosen,
        skipped=jax.device_get(state.skipped).tolist(),
        seconds=clock.seconds,
        tokens=clock.tokens,
        compile_seconds=clock.compile_seconds,
    )


def evaluated_at(steps: int, times: int) -> set[int]:
    """Steps at equal distances, the last one among them."""
    times = min(times, steps)
    return {round(steps * place / times) for place in range(1, times + 1)}


def predict(
    programs: tuning_step.Programs,
    params: dict,
    rows: batches.Rows,
    buckets: Sequence[int],
    batch_size: int,
    pad_id: int,
) -> list[dict[str, list[np.ndarray]]]:
    """Of each seed the outputs by name, a list over rows; padded tokens are not cut off.

    Labels of `rows` may be left out, but for what a head reads.
    """
    size, found = batch_size * EVALUATION_ROWS, None
    for piece in batches.in_order(rows.lengths, buckets, size):
        made = batches.arrays(rows, piece, size, pad_id)
        read = {name: made[name] for name in ("ids", "marks", "allowed") if name in made}
        outputs = jax.device_get(
            programs.predict(params, jax.device_put(read, programs.shared_rows))
        )
        if found is None:
            seeds = len(next(iter(outputs.values())))
            found = [{name: [None] * len(rows) for name in outputs} for _ in range(seeds)]
        for name, value_ZB in outputs.items():
            for seed, value_B in enumerate(value_ZB):
                for place, row in enumerate(piece.rows):
                    found[seed][name][row] = value_B[place]
    return found


@functools.partial(jax.jit, donate_argnums=0)
def _choose(kept, params, better_Z):
    def leaf(old, new):
        return jnp.where(better_Z.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(leaf, kept, params)


def _keep(plan, kept, params, evaluations, chosen, better) -> tuple[Any, list[int]]:
    """Weights that count so far, and the place of each seed's among its evaluations."""
    last = len(evaluations[0]) - 1
    if plan.keep == "last":
        return params, [last] * len(evaluations)
    if kept is None:
        return jax.tree.map(jnp.copy, params), chosen
    better_Z = [
        better(one[last].scores, one[place].scores) for one, place in zip(evaluations, chosen)
    ]
    kept = _choose(kept, params, np.array(better_Z))
    return kept, [last if yes else place for yes, place in zip(better_Z, chosen)]


class _Clock:
    """Seconds of training, and of compiling apart from them."""

    def __init__(self):
        self._begun, self._out = time.perf_counter(), 0.0
        self.compile_seconds, self.tokens = 0.0, 0

    @property
    def seconds(self):
        return time.perf_counter() - self._begun - self._out

    @contextlib.contextmanager
    def paused(self, compiling=False):
        begun = time.perf_counter()
        yield
        spent = time.perf_counter() - begun
        self._out += spent
        self.compile_seconds += spent if compiling else 0.0
