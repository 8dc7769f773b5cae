# SPDX-License-Identifier: Apache-2.0
"""One training step and one prediction of fine-tuning, compiled for several seeds at once.

    batch -> encoder -> head -> loss -> gradients -> clipped Adam -> rate x factor of the layer

Peak rate, steps and warmup are arguments of the program. Tasks with the same number of classes, all
points of a grid and all seeds therefore share what is compiled for a row length.

Seeds are stacked along a first dimension Z, each with parameters, rows and dropout of its own;
several go through vmap. Over several devices the rows of a batch are split, and everything else is
replicated. The number of micro-batches changes nothing but the order of additions.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from electra_jax.core import batch as batch_lib
from electra_jax.core import placing, sharding, streams
from electra_jax.finetuning.tuning import features, rates
from electra_jax.model import networks, task_heads
from electra_jax.step import optimizer as optimizer_lib

OPTIMIZERS = {"reference_adamw": optimizer_lib.reference_adamw, "adamw": optimizer_lib.adamw}


@dataclasses.dataclass(frozen=True)
class Setup:
    """All that a compiled program depends on, apart from the shape of a batch."""

    networks: networks.NetworksConfig
    head: task_heads.HeadConfig
    kind: str  # of the task
    pad_id: int
    optimizer: str = "reference_adamw"
    optimizer_settings: optimizer_lib.Settings = optimizer_lib.Settings(weight_decay=0.0)
    layer_decay: float = 0.8
    decay_rule: str = "paper"
    loss: str = "mean"  # over the rows or tokens that count | 'sum'
    impossible_weight: float = 0.5  # of the loss for whether there is an answer
    seeds: int = 1  # Z
    accumulation: int = 1  # micro-batches per step
    placement: placing.Placement = placing.ONE_DEVICE  # `programs` sets it


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """What a step changes. Outside of the step every leaf has Z as its first dimension."""

    params: dict  # embeddings, discriminator, head
    opt_state: Any
    step: jax.Array  # int32
    skipped: jax.Array  # int32, steps not applied because loss or gradient was not finite


@dataclasses.dataclass(frozen=True)
class Programs:
    """The jitted functions; each is compiled at its first call with a shape."""

    begin: Callable  # (trunk, keys_Z) -> State; one encoder for all seeds, a head per key
    begin_fresh: Callable  # keys_Z -> State with a random encoder per key
    update: Callable  # (state, batch [Z, B, ...], rate_schedule, keys_Z) -> (state, loss_Z)
    predict: Callable  # (params, batch [B, ...]) -> outputs [Z, B, ...]
    rows: NamedSharding  # of batches [Z, B, ...] with rows of several seeds
    shared_rows: NamedSharding  # of a batch [B, ...] that all seeds read


@functools.cache
def programs(setup: Setup, mesh: Mesh) -> Programs:
    """The functions of a setup. Equal setups share them and what was compiled for them."""
    everywhere = sharding.replicated(mesh)
    rows = NamedSharding(mesh, PartitionSpec(None, *sharding.ROWS))
    shared_rows = sharding.rows(mesh)

    setup = dataclasses.replace(setup, placement=placing.placement(mesh))
    begin = functools.partial(_begin, setup)
    update = functools.partial(_update, setup)
    predict = functools.partial(_predict, setup)

    return Programs(
        begin=jax.jit(_over_seeds(setup, begin, (None, 0)), out_shardings=everywhere),
        begin_fresh=jax.jit(
            _over_seeds(setup, functools.partial(_begin_fresh, setup), (0,)),
            out_shardings=everywhere,
        ),
        update=jax.jit(
            _over_seeds(setup, update, (0, 0, None, 0)),
            in_shardings=(everywhere, rows, everywhere, everywhere),
            out_shardings=everywhere,
            donate_argnums=0,
        ),
        predict=jax.jit(
            _over_seeds(setup, predict, (0, None)),
            in_shardings=(everywhere, shared_rows),
            out_shardings=everywhere,
        ),
        rows=rows,
        shared_rows=shared_rows,
    )


def fresh_trunk(config: networks.NetworksConfig, key: jax.Array) -> dict:
    """A random encoder, the same that pre-training with this key starts from."""
    return networks.init_trunk(config, streams.stream(key, "init"))


def keys(seeds: Sequence[int]) -> jax.Array:
    """A key per seed, [Z], for everything random except the order of the rows."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def rate_schedule(peak: float, steps: int, warmup_share: float) -> dict[str, jax.Array]:
    """The learning rate schedule, as `update` takes it."""
    warmup = int(steps * warmup_share)
    return {
        name: jnp.float32(x)
        for name, x in dict(peak=peak, steps=steps, warmup_steps=warmup).items()
    }


def _over_seeds(setup, function, axes):
    """`function` over Z seeds.

    A single seed is computed without vmap: a batched product with a batch of one is slower.
    """
    if setup.seeds > 1:
        return jax.vmap(function, in_axes=axes)

    def alone(*arguments):
        firsts = [
            x if axis is None else jax.tree.map(lambda leaf: leaf[0], x)
            for x, axis in zip(arguments, axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: leaf[None], function(*firsts))

    return alone


def _begin(setup, trunk, key):
    """The initial state of one seed: the encoder as given, a random head."""
    head = task_heads.init(setup.head, streams.stream(key, "head"))
    params = trunk | {"head": head}
    zero = jnp.zeros((), jnp.int32)
    return State(params, _optimizer(setup).init(params), zero, zero)


def _begin_fresh(setup, key):
    return _begin(setup, fresh_trunk(setup.networks, key), key)


def _update(setup, state, batch, rate_schedule, key):
    """One step of one seed. A loss or gradient that is not finite changes only the counts."""
    gradients, mean = _gradients(setup, state, batch, key)
    good = jnp.isfinite(mean) & jnp.isfinite(optax.tree.norm(gradients))
    updates, opt_state = _optimizer(setup).update(
        gradients, state.opt_state, state.params, applied=good
    )

    rate = rates.rate(state.step, **rate_schedule)
    frozen = setup.networks.discriminator.frozen_layers
    factors = rates.factors(state.params, setup.layer_decay, setup.decay_rule, frozen)
    params = jax.tree.map(
        lambda p, u, f: jnp.where(good, p - rate * f * u, p), state.params, updates, factors
    )

    skipped = state.skipped + (~good).astype(jnp.int32)
    return State(params, opt_state, state.step + 1, skipped), mean


def _gradients(setup, state, batch, key):
    """(gradients, mean loss) of the whole batch, added up over its micro-batches."""
    rows = batch_lib.from_lanes(
        batch["ids"], batch["marks"], jnp.arange(len(batch["ids"])), setup.pad_id
    )
    # Of the whole batch: rows may have weight 0, and micro-batches different numbers of tags.
    number = jnp.maximum(_weights(setup, batch).sum(), 1)

    def objective(params, rows, batch):
        total = _loss(setup, params, rows, batch, key, state.step)
        mean = total / number
        return (mean if setup.loss == "mean" else total), mean

    differentiate = jax.grad(objective, has_aux=True)
    if setup.accumulation == 1:
        return differentiate(state.params, rows, batch)

    def add(added, part):
        return jax.tree.map(jnp.add, added, differentiate(state.params, *part)), None

    zeros = jax.tree.map(jnp.zeros_like, state.params), jnp.zeros(())
    return lax.scan(add, zeros, batch_lib.split((rows, batch), setup.accumulation))[0]


def _loss(setup, params, rows, batch, key, step):
    """The sum of the losses that count, with dropout."""
    # Dropout depends on the key, the step and the row, and not on the devices.
    keys_B = streams.row_keys(streams.stream(key, "tuning_dropout"), step, rows.row_B)
    network_keys_B = streams.part(keys_B, "tuning", "network")
    hidden_BLD = networks.hidden(setup.networks, params, rows, network_keys_B, setup.placement)
    head_keys_B = streams.part(keys_B, "tuning", "head")

    if setup.kind == "span":
        return _span_loss(setup, params["head"], hidden_BLD, batch)

    scores = task_heads.SCORES[setup.head.kind](
        setup.head, params["head"], hidden_BLD, rows, head_keys_B
    )
    return (LOSSES[setup.kind](scores, batch) * _weights(setup, batch)).sum()


def _weights(setup, batch):
    """1 for each loss that counts, 0 for the others: of each token in tagging, else of each row."""
    if setup.kind != "tagging":
        return batch["weight"]
    return batch["weight"][:, None] * (batch["tags"] != features.NO_LABEL)


def _class_loss(scores_BC, batch):
    return optax.softmax_cross_entropy_with_integer_labels(scores_BC, batch["label"])


def _value_loss(scores_BC, batch):
    return (scores_BC[:, 0] - batch["label"]) ** 2


def _labels_loss(scores_BC, batch):
    return optax.sigmoid_binary_cross_entropy(scores_BC, batch["label"]).mean(-1)


def _tags_loss(scores_BLC, batch):
    tags_BL = jnp.where(batch["tags"] != features.NO_LABEL, batch["tags"], 0)
    return optax.softmax_cross_entropy_with_integer_labels(scores_BLC, tags_BL)


LOSSES = {  # kind -> (scores, batch) -> losses of rows [B], or of tokens [B, L]
    "classification": _class_loss,
    "regression": _value_loss,
    "multi_label": _labels_loss,
    "tagging": _tags_loss,
}


def _span_loss(setup, head, hidden_BLD, batch):
    """The mean of the losses of start and end; plus, for the joint head, that of 'no answer'."""
    if setup.head.kind == "span_plain":
        start_BL, end_BL = task_heads.span_plain(head, hidden_BLD, batch["allowed"])
        impossible_B = None
    else:
        start_BL, end_BL, impossible_B = task_heads.span_joint(
            head, hidden_BLD, batch["allowed"], batch["start"]
        )

    losses_B = 0.5 * sum(
        optax.softmax_cross_entropy_with_integer_labels(scores_BL, batch[side])
        for scores_BL, side in ((start_BL, "start"), (end_BL, "end"))
    )

    if impossible_B is not None:
        judged_B = optax.sigmoid_binary_cross_entropy(impossible_B, batch["impossible"])
        losses_B += setup.impossible_weight * judged_B

    return (losses_B * _weights(setup, batch)).sum()


def _predict(setup, params, batch):
    """Outputs by name, without dropout: scores of classes, the best tag per token, or beams."""
    rows = batch_lib.from_lanes(
        batch["ids"], batch["marks"], jnp.arange(len(batch["ids"])), setup.pad_id
    )
    hidden_BLD = networks.hidden(setup.networks, params, rows, placement=setup.placement)
    head = params["head"]

    if setup.head.kind == "span_joint":
        beam = task_heads.span_beam(setup.head, head, hidden_BLD, batch["allowed"])
        fields = {field.name: getattr(beam, field.name) for field in dataclasses.fields(beam)}
        return {name: value for name, value in fields.items() if value is not None}
    if setup.head.kind == "span_plain":
        start_BL, end_BL = task_heads.span_plain(head, hidden_BLD, batch["allowed"])
        return {"start_BL": start_BL, "end_BL": end_BL}

    scores = task_heads.SCORES[setup.head.kind](setup.head, head, hidden_BLD, rows, None)
    if setup.kind == "tagging":
        return {"tags_BL": scores.argmax(-1).astype(jnp.int32)}
    return {"scores_BC": scores}


def _optimizer(setup):
    return OPTIMIZERS[setup.optimizer](setup.optimizer_settings)
