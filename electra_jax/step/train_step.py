# SPDX-License-Identifier: Apache-2.0
"""One step: loss -> gradients -> new state, as one pure function of (state, lanes).

`make_update` returns that function; `compile_update` jits it over a mesh, state donated. Sums are
global and divided by global weights known before any gradient, so micro-batches, devices and
processes change nothing but the order of additions. A step whose loss or gradient is not finite
leaves parameters and optimizer as they were and is counted, and so does one whose gradient is a
spike, where `Extras` asks for that.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax.core import averages, metrics, sharding, streams
from electra_jax.core import batch as batch_lib
from electra_jax.step import optimizer as optimizer_lib


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a run needs to go on. Long counters are two uint32 words, low first."""

    params: dict
    optimizer: Any  # optax's, over the parameters that a phase trains; several by phase name
    step: jax.Array  # int32, steps taken, skipped ones too
    rows_seen: jax.Array  # uint32 [2]
    tokens_seen: jax.Array  # uint32 [2], discriminator inputs without padding
    skipped_steps: jax.Array  # int32
    ema: dict | None = None  # averages of the parameters, where `Extras.ema_decay` keeps them
    norms: jax.Array | None = None  # of gradients, see `averages`; where spikes are skipped
    seconds: jax.Array | None = None  # float32, spent on training; the loop writes it

    @property
    def evaluated(self) -> dict:
        """The parameters that evaluation looks at: the averages where there are some."""
        return self.params if self.ema is None else self.ema


@dataclasses.dataclass(frozen=True)
class Extras:
    """What a run asks of its steps beside learning; without it neither state nor step has it."""

    ema_decay: float = 0.0  # of the average that is evaluated; 0: none
    spike_factor: float = 0.0  # a gradient norm this far above its mean is not applied; 0: it is
    timed: bool = False  # the state counts seconds
    rates: Mapping[str, float] | None = None  # metric -> share of the rate, where it is not one


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Measured:
    """What a step says of itself."""

    sums: metrics.Sums  # zeros where the step was skipped, so that no mean ever holds a NaN
    checks: dict[str, jax.Array]  # scalars that must be finite, by name
    limits: dict[str, jax.Array]  # the most that a check may be for the step to be applied
    tokens: jax.Array  # uint32, what the step added to `tokens_seen`


def init_state(
    objective,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    extras: Extras = Extras(),
) -> TrainState:
    """Fresh parameters and zeros."""
    params = objective.init(streams.stream(key, "init"))
    return state_of(objective, optimizer, params, extras)


def state_of(
    objective,
    optimizer: optax.GradientTransformation,
    params: dict,
    extras: Extras = Extras(),
) -> TrainState:
    """A state at step 0 around given parameters."""
    words = jnp.zeros((2,), jnp.uint32)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        params,
        _packed({phase.name: optimizer.init(phase.trained(params)) for phase in objective.phases}),
        zero,
        words,
        words,
        zero,
        ema=jax.tree.map(jnp.copy, params) if extras.ema_decay else None,
        norms=averages.no_norms() if extras.spike_factor else None,
        seconds=jnp.zeros((), jnp.float32) if extras.timed else None,
    )


def make_update(
    objective,
    optimizer: optax.GradientTransformation,
    rate: Callable[..., jax.Array],
    key: jax.Array,
    pad_id: int,
    accumulation: int = 1,
    while_used: Callable[[dict], dict] = lambda params: params,
    progress: Callable[[TrainState], jax.Array | None] = lambda state: None,
    extras: Extras = Extras(),
    steps: int = 1,
) -> Callable[[TrainState, dict], tuple[TrainState, Measured]]:
    """Returns `update(state, {'ids': [B, L], 'marks': [B, L]}) -> (state, measured)`.

    Args:
      optimizer: one of `optimizer`'s, whose `update` takes `applied`; a plain one of optax is made
        to.
      rate: the learning rate of (step, progress).
      key: the run's key; see `streams`.
      accumulation: micro-batches a step.
      while_used: says how parameters lie on the mesh while they are used (`sharding.while_used`).
      progress: the share of the run's budget that is spent; None where steps alone tell it.
      extras: those that the state was made with.
      steps: of the run; their share is the progress where `progress` is None. What the objective
        lets move goes by progress.
    """

    if not isinstance(optimizer, optax.GradientTransformationExtraArgs):
        optimizer = optimizer_lib.held_where_not_applied(optimizer)

    def update(state, lanes):
        size = lanes["ids"].shape[0]
        row_B = state.rows_seen[0] + jnp.arange(size, dtype=jnp.uint32)
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, pad_id)
        spent = progress(state)
        knobs = objective.knobs(state.step / steps if spent is None else spent)
        weights = objective.weights(batch, knobs)
        params, carry = state.params, None
        moments = _unpacked(objective.phases, state.optimizer)
        measured, checks, limits, losses, squares = {}, {}, {}, [], {}
        if extras.spike_factor:
            limits["grad_norm"] = averages.limit(state.norms, extras.spike_factor)
        step_size = rate(state.step, spent)
        for phase in objective.phases:
            sums, gradients, measured_here, carry = _gradients(
                phase, objective.total, params, batch, key, state.step, knobs, weights,
                carry, accumulation, while_used,
            )  # fmt: skip
            means = {term: sums[term] / jnp.maximum(weights[term], 1) for term in sums}
            losses.append(objective.total(means))
            for part, tree in gradients.items():
                squares[part] = squares.get(part, 0) + optax.tree.norm(tree, squared=True)
            measured |= measured_here
            parts = {f"grad_norm_{part}": jnp.sqrt(square) for part, square in squares.items()}
            checks |= {f"{term}_loss": mean for term, mean in means.items()} | parts
            norm = optax.tree.norm(parts)
            applied = finite = jnp.all(jnp.isfinite(jnp.stack(list(checks.values()))))
            if extras.spike_factor:
                applied = finite & (norm <= limits["grad_norm"])
            trained = phase.trained(params)
            updates, moments[phase.name] = optimizer.update(
                gradients, moments[phase.name], trained, applied=applied
            )
            moved = jax.tree.map(lambda p, u: p - step_size * u, trained, updates)
            params = params | _where(applied, moved, trained)
        if len(objective.phases) > 1:  # a later phase takes back what an earlier one did
            params = _where(applied, params, state.params)
            moments = _where(applied, moments, _unpacked(objective.phases, state.optimizer))
        measured |= {
            "loss": _once(sum(losses)),
            "grad_norm": _once(norm),
            "learning_rate": _once(step_size),
            "padding_rate": metrics.pair(~batch.real_BL, jnp.ones_like(batch.real_BL)),
        }
        measured |= {name: _once(x) for name, x in parts.items()}
        norms = state.norms
        if extras.spike_factor:
            checks["grad_norm"] = norm
            norms = _where(finite, averages.with_norm(norms, norm, limits["grad_norm"]), norms)
        ema = state.ema
        if extras.ema_decay:
            updates = state.step - state.skipped_steps
            ema = averages.weights(ema, params, extras.ema_decay, updates)
        if extras.rates is not None:
            measured |= _rates(measured.pop("learning_rate"), extras.rates)
        tokens = batch.real_BL.sum(dtype=jnp.uint32)
        new_state = TrainState(
            params=params,
            optimizer=_packed(moments),
            step=state.step + 1,
            rows_seen=_add_words(state.rows_seen, jnp.uint32(size)),
            tokens_seen=_add_words(state.tokens_seen, tokens),
            skipped_steps=state.skipped_steps + (~applied).astype(jnp.int32),
            ema=_where(applied, ema, state.ema),
            norms=norms,
            seconds=state.seconds,
        )
        sums = jax.tree.map(lambda x: jnp.where(finite, x, jnp.zeros_like(x)), measured)
        return new_state, Measured(sums, checks, limits, tokens)

    return update


def compile_update(update: Callable, abstract_state: TrainState, mesh: Mesh) -> Callable:
    """Jits `update` over the mesh: state where the table puts it, rows split, state donated."""
    state = sharding.shardings(abstract_state, mesh)
    lanes = {"ids": sharding.rows(mesh), "marks": sharding.rows(mesh)}
    return jax.jit(
        update,
        in_shardings=(state, lanes),
        out_shardings=(state, sharding.replicated(mesh)),
        donate_argnums=0,
    )


def born_sharded(init: Callable[[], TrainState], mesh: Mesh, report=lambda line: None):
    """Runs `init` so that every array is created where it lives; nothing is ever whole anywhere.

    Returns (state, its shapes with their shardings).
    """
    shapes = jax.eval_shape(init)
    where = sharding.shardings(shapes, mesh, report)
    abstract = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, where
    )
    return jax.jit(init, out_shardings=where)(), abstract


def _gradients(
    phase, total, params, batch, key, step, knobs, weights, carry, accumulation, while_used
):
    """Sums, gradients of the total, metrics and carry, over one or several micro-batches."""

    def loss(trained, rest, batch, carry):
        keys = streams.keys(key, step, batch.row_B, dropout=True)
        used = while_used(rest | trained)
        sums, measured, carry = phase.loss(used, batch, keys, knobs, carry)
        means = {term: sums[term] / jnp.maximum(weights[term], 1) for term in sums}
        return total(means), (sums, measured, carry)

    trained = phase.trained(params)
    rest = {part: params[part] for part in params if part not in trained}
    differentiate = jax.grad(loss, has_aux=True)
    if accumulation == 1:
        gradients, (sums, measured, carry) = differentiate(trained, rest, batch, carry)
        return sums, gradients, measured, carry

    def one(added, inputs):
        gradients, (sums, measured, carry) = differentiate(trained, rest, *inputs)
        return jax.tree.map(jnp.add, added, (gradients, sums, measured)), carry

    parts = batch_lib.split(batch, accumulation), carry
    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(lambda inputs: differentiate(trained, rest, *inputs), first)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes[0], *shapes[1][:2]))
    (gradients, sums, measured), carry = lax.scan(one, zeros, parts)
    return sums, gradients, measured, carry


def _packed(moments):
    """One phase's optimizer stands alone in a checkpoint, several by the names of their phases."""
    return moments if len(moments) > 1 else next(iter(moments.values()))


def _unpacked(phases, moments):
    return dict(moments) if len(phases) > 1 else {phases[0].name: moments}


def words_to_int(words) -> int:
    """Two uint32 words as one Python integer."""
    low, high = (int(word) for word in words)
    return low + (high << 32)


def int_to_words(number: int) -> np.ndarray:
    """The reverse: uint32 [2], low first."""
    return np.array([number & 0xFFFFFFFF, number >> 32], np.uint32)


def _once(value):
    """A number measured once a step, as a pair."""
    return jnp.stack([value.astype(jnp.float32), jnp.float32(1)])


def _rates(pair, shares):
    """The rates of a step by metric, each a share of the one that `pair` holds."""
    return {name: pair * jnp.array([share, 1], jnp.float32) for name, share in shares.items()}


def _add_words(words, amount):
    low = words[0] + amount
    return jnp.stack([low, words[1] + (low < amount).astype(jnp.uint32)])


def _where(condition, new, old):
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
