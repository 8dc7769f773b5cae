# SPDX-License-Identifier: Apache-2.0
"""One training step as a pure function: loss -> gradients -> new state.

    state, lanes -> Batch -> for each phase: losses, gradients, verdict, update -> state, measured

`make_update` returns the function, `compile_update` jits it over a mesh and donates the state.
Losses are sums over the whole batch, divided by counts that are known before any gradient. So the
number of micro-batches, devices and processes changes nothing but the order of additions. A step
whose loss or gradient is not finite changes neither parameters nor optimizer and is counted as
skipped. A step whose gradient norm is a spike changes nothing either, if `Extras` asks for that,
but its metrics are kept.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import optax
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax.core import averages, counters, metrics, placing, sharding, streams
from electra_jax.core import batch as batch_lib
from electra_jax.objectives.objective import Objective, Phase


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything on the device that a run needs in order to continue."""

    params: dict
    optimizer: Any  # optax's state of the only phase, or {phase: state} if there are two
    step: jax.Array  # int32, steps taken, skipped ones included
    rows_seen: jax.Array  # uint32 [2], see `core/counters.py`
    tokens_seen: jax.Array  # uint32 [2], tokens that the main network has read, without padding
    skipped_steps: jax.Array  # int32
    ema: dict | None = None  # averages of the parameters, if `Extras.ema_decay` asks for them
    norms: jax.Array | None = None  # running mean of gradient norms (`core/averages.py`), or None
    seconds: jax.Array | None = None  # float32, time of training, written by `training/budget.py`

    @property
    def evaluated(self) -> dict:
        """The parameters that evaluations use: the averages, if there are any."""
        return self.params if self.ema is None else self.ema


@dataclasses.dataclass(frozen=True)
class Extras:
    """Optional parts of step and state. By default there are none."""

    ema_decay: float = 0.0  # of the averaged parameters; 0: no averages
    spike_factor: float = 0.0  # skip gradient norms above this multiple of their mean; 0: none
    timed: bool = False  # whether the state counts seconds of training
    # metric -> share of the rate; None: one rate for all
    logged_shares: Mapping[str, float] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Measured:
    """What a step reports to the loop."""

    # all zero if the step was not finite, so that no mean ever contains a NaN
    metric_sums: metrics.Sums
    checks: dict[str, jax.Array]  # name -> a scalar that must be finite
    limits: dict[str, jax.Array]  # check -> the largest value with which the step is applied
    tokens: jax.Array  # uint32, what the step added to `tokens_seen`


def init_state(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    extras: Extras = Extras(),
) -> TrainState:
    """Fresh parameters, and zeros for everything else."""
    params = objective.init(streams.stream(key, "init"))
    return state_of(objective, optimizer, params, extras)


def state_of(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    params: dict,
    extras: Extras = Extras(),
) -> TrainState:
    """The state at step 0 with the given parameters."""
    opt_states = {phase.name: optimizer.init(phase.trained(params)) for phase in objective.phases}
    counter, zero = jnp.zeros((2,), jnp.uint32), jnp.zeros((), jnp.int32)
    return TrainState(
        params=params,
        optimizer=_packed(opt_states),
        step=zero,
        rows_seen=counter,
        tokens_seen=counter,
        skipped_steps=zero,
        ema=jax.tree.map(jnp.copy, params) if extras.ema_decay else None,
        norms=averages.no_norms() if extras.spike_factor else None,
        seconds=jnp.zeros((), jnp.float32) if extras.timed else None,
    )


@dataclasses.dataclass(frozen=True)
class StepSplit:
    """How the work of a step is split: into micro-batches, and over the devices of a mesh."""

    accumulation: int = 1  # micro-batches per step
    # Replaces each embedding table by a copy per device, `placing.with_table_copies`; the other
    # parameters pass unchanged.
    with_table_copies: Callable[[dict], dict] = lambda params: params
    # The parts of the mesh that add up the gradients of micro-batches by themselves.
    groups: placing.Groups = placing.ONE_GROUP


class _StepInputs(NamedTuple):
    """What is known before any gradient, and is the same for all phases of a step."""

    batch: batch_lib.Batch
    key: jax.Array
    step: jax.Array
    knobs: dict
    denominators: dict[str, jax.Array]  # of the terms, over the whole batch
    limits: dict[str, jax.Array]  # of the checks


class _StepCarry(NamedTuple):
    """The state carried from phase to phase, with the losses and checks so far."""

    params: dict
    opt_states: dict[str, Any]  # phase -> optax's state
    losses: tuple[jax.Array, ...] = ()  # the total of each phase
    metric_sums: metrics.Sums = {}
    checks: dict[str, jax.Array] = {}
    squares: dict[str, jax.Array] = {}  # of gradient norms, by top-level part of the parameters
    norm: Any = 0.0  # of the gradients of all phases so far; a scalar
    finite: Any = True  # whether all checks are; a scalar
    applied: Any = True  # whether the step counts; a scalar
    handover: Any = None  # what a phase hands to the next


def make_update(
    objective: Objective,
    optimizer: optax.GradientTransformationExtraArgs,
    rate: Callable[[jax.Array, jax.Array], jax.Array],
    key: jax.Array,
    pad_id: int,
    progress: Callable[[TrainState], jax.Array],
    split: StepSplit = StepSplit(),
    extras: Extras = Extras(),
) -> Callable[[TrainState, dict], tuple[TrainState, Measured]]:
    """Returns `update(state, {'ids': [B, L], 'marks': [B, L]}) -> (state, measured)`.

    Args:
      objective: what the networks learn, on the mesh if there is one.
      optimizer: from `optimizer.py`, whose `update` takes `applied`.
      rate: the learning rate, as a function of (step, progress).
      key: the run's key; see `core/streams.py`.
      pad_id: the id of padding.
      progress: the spent share of the run's budget, as a function of the state.
      split: into micro-batches, and over a mesh.
      extras: those that the state was made with.
    """

    # Micro-batches are computed on each group of devices by itself.
    placed = objective.placed(split.groups.placement) if split.accumulation > 1 else objective

    def update(state, lanes):
        # What depends only on progress and ids must be known before any gradient.
        batch = _batch(state, lanes, pad_id)
        spent = progress(state)
        knobs = objective.knobs(spent)
        denominators, limits = objective.denominators(batch, knobs), _limits(state, extras)
        given = _StepInputs(batch, key, state.step, knobs, denominators, limits)
        learning_rate = rate(state.step, spent)

        # Each phase computes the gradients of its losses and updates the parameters that it trains.
        # The second one already sees the parameters that the first has updated.
        before = _StepCarry(state.params, _unpacked(objective.phases, state.optimizer))
        after = before
        for phase in placed.phases:
            after = _run_phase(placed, phase, after, given, optimizer, learning_rate, split)

        applied, norm = after.applied, after.norm
        if len(objective.phases) > 1:  # if the last phase is not applied, neither is the first
            after = after._replace(
                params=_where(applied, after.params, before.params),
                opt_states=_where(applied, after.opt_states, before.opt_states),
            )

        checks = after.checks | ({"grad_norm": norm} if extras.spike_factor else {})

        # A skipped step counts too, with its rows and tokens: the run continues with the next rows.
        tokens = batch.real_BL.sum(dtype=jnp.uint32)
        new_state = TrainState(
            params=after.params,
            optimizer=_packed(after.opt_states),
            step=state.step + 1,
            rows_seen=counters.add(state.rows_seen, jnp.uint32(len(batch.ids_BL))),
            tokens_seen=counters.add(state.tokens_seen, tokens),
            skipped_steps=state.skipped_steps + (~applied).astype(jnp.int32),
            ema=_averaged(state, after.params, applied, extras),
            norms=_with_norm(state.norms, norm, after.finite, limits),
            seconds=state.seconds,
        )
        metric_sums = _metric_sums(after, batch, learning_rate, extras)
        return new_state, Measured(metric_sums, checks, limits, tokens)

    return update


def compile_update(
    update: Callable,
    abstract_state: TrainState,
    mesh: Mesh,
    compiler_options: Mapping[str, bool | int | str] | None = None,
) -> Callable:
    """Jits `update` over the mesh: parameters as `sharding.TABLE` says, rows split over devices.

    The state is donated, so the caller must not use the old one again. `compiler_options` are those
    of XLA, by name.
    """
    state = sharding.shardings(abstract_state, mesh)
    lanes = {"ids": sharding.rows(mesh), "marks": sharding.rows(mesh)}
    return jax.jit(
        update,
        in_shardings=(state, lanes),
        out_shardings=(state, sharding.replicated(mesh)),
        donate_argnums=0,
        compiler_options=dict(compiler_options or {}) or None,
    )


def _batch(state, lanes, pad_id):
    """The rows of the step, with their numbers."""
    row_B = state.rows_seen[0] + jnp.arange(len(lanes["ids"]), dtype=jnp.uint32)
    return batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, pad_id)


def _run_phase(
    objective: Objective,
    phase: Phase,
    before: _StepCarry,
    given: _StepInputs,
    optimizer: optax.GradientTransformationExtraArgs,
    learning_rate: jax.Array,
    split: StepSplit,
) -> _StepCarry:
    """Runs one phase and returns the updated carry.

    Checks of earlier phases are kept, so the last verdict covers the whole step.
    """
    loss_sums, gradients, metric_sums, handover = _gradients(
        objective, phase, before.params, given, before.handover, split
    )
    means = _means(loss_sums, given.denominators)

    squares = _with_squares(before.squares, gradients)
    by_part = _norms(squares)
    norm = optax.tree.norm(by_part)
    checks = before.checks | {f"{term}_loss": mean for term, mean in means.items()} | by_part
    finite, applied = _verdict(checks, norm, given.limits)

    params, opt_state = _updated(
        optimizer,
        phase,
        gradients,
        before.params,
        before.opt_states[phase.name],
        learning_rate,
        applied,
    )
    return _StepCarry(
        params=params,
        opt_states=before.opt_states | {phase.name: opt_state},
        losses=(*before.losses, objective.total(means)),
        metric_sums=before.metric_sums | metric_sums,
        checks=checks,
        squares=squares,
        norm=norm,
        finite=finite,
        applied=applied,
        handover=handover,
    )


def _gradients(
    objective: Objective,
    phase: Phase,
    params: dict,
    given: _StepInputs,
    handover: Any,
    split: StepSplit,
) -> tuple[dict[str, jax.Array], dict, metrics.Sums, Any]:
    """({term: sum of losses}, gradients of the total, metrics, what is handed on) of one phase."""
    trained = phase.trained(params)
    rest = {part: params[part] for part in params if part not in trained}

    def loss(trained, rest, batch, handover):
        keys = streams.keys(given.key, given.step, batch.row_B, dropout=True)
        loss_sums, metric_sums, handover = phase.loss(
            rest | trained, batch, keys, given.knobs, handover
        )
        total = objective.total(_means(loss_sums, given.denominators))
        return total, (loss_sums, metric_sums, handover)

    of_batch = _of_whole_batch if split.accumulation == 1 else _of_micro_batches
    return of_batch(loss, trained, rest, given.batch, handover, split)


def _of_whole_batch(loss, trained, rest, batch, handover, split):
    """`_gradients` of the whole batch at once."""

    def of(trained):
        return loss(
            split.with_table_copies(trained), split.with_table_copies(rest), batch, handover
        )

    gradients, (loss_sums, metric_sums, handover) = jax.grad(of, has_aux=True)(trained)
    return loss_sums, gradients, metric_sums, handover


def _of_micro_batches(loss, trained, rest, batch, handover, split):
    """`_gradients`, added up over micro-batches.

    What each of them hands on is stacked instead, because the second phase takes the same
    micro-batches again.
    """
    groups = split.groups
    copies, sum_over_groups = jax.vjp(groups.copies, trained)
    shared, differentiate = groups.shared(rest), jax.grad(groups.each(loss), has_aux=True)

    def add(added, inputs):
        gradients, (*both_sums, handover) = differentiate(copies, shared, *inputs)
        return jax.tree.map(jnp.add, added, (gradients, *both_sums)), handover

    parts = groups.rows(batch_lib.split(batch, split.accumulation)), handover
    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(lambda inputs: differentiate(copies, shared, *inputs), first)
    gradients, (*both_sums, _) = shapes
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (gradients, *both_sums))

    (added, loss_sums, metric_sums), handover = lax.scan(add, zeros, parts)
    (gradients,) = sum_over_groups(added)
    return groups.summed(loss_sums), gradients, groups.summed(metric_sums), handover


def _means(loss_sums, denominators):
    """{term: mean loss}, from sums over the whole batch or a part of it."""
    return {term: x / jnp.maximum(denominators[term], 1) for term, x in loss_sums.items()}


def _updated(optimizer, phase, gradients, params, opt_state, learning_rate, applied):
    """(parameters, optimizer state of the phase) after the update; as before if not applied."""
    trained = phase.trained(params)
    updates, opt_state = optimizer.update(gradients, opt_state, trained, applied=applied)
    moved = jax.tree.map(lambda p, u: p - learning_rate * u, trained, updates)
    return params | _where(applied, moved, trained), opt_state


def _with_squares(squares, gradients):
    """The squared gradient norm of each top-level part of the tree, added up over phases."""
    here = {part: optax.tree.norm(tree, squared=True) for part, tree in gradients.items()}
    return squares | {part: squares.get(part, 0) + square for part, square in here.items()}


def _norms(squares):
    """The gradient norms of the parts, as metrics name them."""
    return {f"grad_norm_{part}": jnp.sqrt(square) for part, square in squares.items()}


def _limits(state, extras):
    """The limits of the checks: of the gradient norm if spikes are skipped, otherwise none."""
    if not extras.spike_factor:
        return {}
    return {"grad_norm": averages.limit(state.norms, extras.spike_factor)}


def _verdict(checks, norm, limits):
    """(whether all checks are finite, whether they are also within the limits)."""
    finite = jnp.all(jnp.isfinite(jnp.stack(list(checks.values()))))
    within = norm <= limits["grad_norm"] if limits else True
    return finite, finite & within


def _averaged(state, params, applied, extras):
    """The averaged parameters after the step; None if the run keeps none."""
    if not extras.ema_decay:
        return None
    updates = state.step - state.skipped_steps
    return _where(
        applied, averages.weights(state.ema, params, extras.ema_decay, updates), state.ema
    )


def _with_norm(norms, norm, finite, limits):
    """The running mean of gradient norms after the step; a spike enters it only up to the limit."""
    if not limits:
        return norms
    return _where(finite, averages.with_norm(norms, norm, limits["grad_norm"]), norms)


def _metric_sums(after, batch, learning_rate, extras):
    """All metrics of the step as sums. A skipped spike is finite, so it reports its values."""
    once = {"loss": sum(after.losses), "grad_norm": after.norm} | _norms(after.squares)
    metric_sums = after.metric_sums | {name: _once(x) for name, x in once.items()}
    metric_sums |= _logged_rates(learning_rate, extras)
    metric_sums["padding_rate"] = metrics.pair(~batch.real_BL, jnp.ones_like(batch.real_BL))
    return _zero_unless(after.finite, metric_sums)


def _zero_unless(finite, metric_sums):
    """The sums; zeros if the step was not finite, since a NaN would spoil the means."""
    return jax.tree.map(lambda x: jnp.where(finite, x, jnp.zeros_like(x)), metric_sums)


def _logged_rates(learning_rate, extras):
    """The learning rate of the step as a metric, or several of them under their names."""
    pair = _once(learning_rate)
    if extras.logged_shares is None:
        return {"learning_rate": pair}
    return {
        name: pair * jnp.array([share, 1], jnp.float32)
        for name, share in extras.logged_shares.items()
    }


def _once(value):
    """A number that a step measures once, as a (sum, weight) pair of weight 1."""
    return jnp.stack([value.astype(jnp.float32), jnp.float32(1)])


def _packed(opt_states):
    """The optimizer state in the form of checkpoints: the only one itself, two as a dict."""
    return opt_states if len(opt_states) > 1 else next(iter(opt_states.values()))


def _unpacked(phases, opt_states):
    """{name of the phase: optimizer state}, the inverse of `_packed`."""
    return dict(opt_states) if len(phases) > 1 else {phases[0].name: opt_states}


def _where(condition, new, old):
    """A tree with all arrays of `new` if the condition holds, otherwise with all of `old`."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
