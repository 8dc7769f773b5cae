# SPDX-License-Identifier: Apache-2.0
"""One step: loss -> gradients -> new state, as one pure function of (state, lanes).

`make_update` returns that function; `compile_update` jits it over a mesh, state donated. Sums are
global and divided by global weights known before any gradient, so micro-batches, devices and
processes change nothing but the order of additions. A step whose loss or gradient is not finite
leaves parameters and optimizer as they were and is counted.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax import batch as batch_lib
from electra_jax import metrics, sharding, streams


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a run needs to go on. Long counters are two uint32 words, low first."""

    params: dict
    optimizer: dict[str, Any]  # one optax state a phase, over the parameters that it trains
    step: jax.Array  # int32, steps taken, skipped ones too
    rows_seen: jax.Array  # uint32 [2]
    tokens_seen: jax.Array  # uint32 [2], discriminator inputs without padding
    skipped_steps: jax.Array  # int32


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Measured:
    """What a step says of itself."""

    sums: metrics.Sums  # zeros where the step was skipped, so that no mean ever holds a NaN
    checks: dict[str, jax.Array]  # scalars that must be finite, by name


def init_state(objective, optimizer: optax.GradientTransformation, key: jax.Array) -> TrainState:
    """Fresh parameters and zeros."""
    params = objective.init(streams.stream(key, "init"))
    return state_of(objective, optimizer, params)


def state_of(objective, optimizer: optax.GradientTransformation, params: dict) -> TrainState:
    """A state at step 0 around given parameters."""
    words = jnp.zeros((2,), jnp.uint32)
    zero = jnp.zeros((), jnp.int32)
    moments = {phase.name: optimizer.init(phase.trained(params)) for phase in objective.phases}
    return TrainState(params, moments, zero, words, words, zero)


def make_update(
    objective,
    optimizer: optax.GradientTransformation,
    rate: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    pad_id: int,
    accumulation: int = 1,
    while_used: Callable[[dict], dict] = lambda params: params,
    steps: int = 1,
) -> Callable[[TrainState, dict], tuple[TrainState, Measured]]:
    """Returns `update(state, {'ids': [B, L], 'marks': [B, L]}) -> (state, measured)`.

    Args:
      rate: the learning rate of a step.
      key: the run's key; see `streams`.
      accumulation: micro-batches a step.
      while_used: says how parameters lie on the mesh while they are used (`sharding.while_used`).
      steps: of the run; what the objective lets move goes by the share of them that is done.
    """

    def update(state, lanes):
        size = lanes["ids"].shape[0]
        row_B = state.rows_seen[0] + jnp.arange(size, dtype=jnp.uint32)
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, pad_id)
        knobs = objective.knobs(state.step / steps)
        weights = objective.weights(batch, knobs)
        params, moments, carry = state.params, dict(state.optimizer), None
        measured, checks, losses, squares = {}, {}, [], {}
        step_size = rate(state.step)
        for phase in objective.phases:
            sums, gradients, measured_here, carry = _gradients(
                phase, objective.total, params, batch, key, state.step, knobs, weights,
                carry, accumulation, while_used,
            )  # fmt: skip
            means = {term: sums[term] / jnp.maximum(weights[term], 1) for term in sums}
            losses.append(objective.total(means))
            for part, tree in gradients.items():
                squares[part] = squares.get(part, 0) + optax.tree.norm(tree, squared=True)
            trained = phase.trained(params)
            updates, moments[phase.name] = optimizer.update(gradients, moments[phase.name], trained)
            params = params | jax.tree.map(lambda p, u: p - step_size * u, trained, updates)
            checks |= {f"{term}_loss": mean for term, mean in means.items()}
            measured |= measured_here
        norms = {part: jnp.sqrt(square) for part, square in squares.items()}
        checks |= {f"grad_norm_{part}": norm for part, norm in norms.items()}
        measured |= {
            "loss": _once(sum(losses)),
            "grad_norm": _once(optax.tree.norm(norms)),
            "learning_rate": _once(step_size),
        }
        measured |= {f"grad_norm_{part}": _once(norm) for part, norm in norms.items()}
        finite = jnp.all(jnp.isfinite(jnp.stack(list(checks.values()))))
        tokens = batch.real_BL.sum(dtype=jnp.uint32)
        new_state = TrainState(
            params=_where(finite, params, state.params),
            optimizer=_where(finite, moments, state.optimizer),
            step=state.step + 1,
            rows_seen=_add_words(state.rows_seen, jnp.uint32(size)),
            tokens_seen=_add_words(state.tokens_seen, tokens),
            skipped_steps=state.skipped_steps + (~finite).astype(jnp.int32),
        )
        sums = jax.tree.map(lambda x: jnp.where(finite, x, jnp.zeros_like(x)), measured)
        return new_state, Measured(sums, checks)

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


def words_to_int(words) -> int:
    """Two uint32 words as one Python integer."""
    low, high = (int(word) for word in words)
    return low + (high << 32)


def _once(value):
    """A number measured once a step, as a pair."""
    return jnp.stack([value.astype(jnp.float32), jnp.float32(1)])


def _add_words(words, amount):
    low = words[0] + amount
    return jnp.stack([low, words[1] + (low < amount).astype(jnp.uint32)])


def _where(condition, new, old):
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
