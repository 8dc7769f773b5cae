# SPDX-License-Identifier: Apache-2.0
"""How much memory a step needs, from its traced program, before anything is compiled.

plan, stage -> activations, scores    bytes per device
a tree of shapes -> of_tree           bytes per device, as it is sharded
a device -> of_device                 bytes that it has
"""

import math
import os
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.config import stages
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.objectives import vocabulary_softmax
from electra_jax.step import plans


def scores(plan: plans.Plan, stage: stages.Stage) -> float:
    """Bytes of float32 scores over one piece of the vocabulary, per device and micro-batch."""
    objective = plan.objectives[stage.sequence_length]
    rows = stage.batch_size / plan.accumulation
    rows /= _parts(plan)
    shape = objective.networks
    piece = min(vocabulary_softmax.PIECES[shape.discriminator.products], shape.padded_vocab_size)
    places = objective.scored_places(stage.sequence_length)
    return math.ceil(rows) * places * piece * 4


def activations(plan: plans.Plan, stage: stages.Stage) -> float:
    """Bytes that a forward pass keeps for the backward pass, per device.

    The number is for one micro-batch and comes from the traced program, without compiling it: it is
    the size of everything that the phases pass to their backward passes, except weights. The
    compiled program keeps less where the compiler recomputes values, and needs more for
    intermediate results.
    """
    rows, length = stage.batch_size // plan.accumulation, stage.sequence_length
    objective = plan.objectives[length]
    lanes = {
        "ids": jax.ShapeDtypeStruct((rows, length), np.int32),
        "marks": jax.ShapeDtypeStruct((rows, length), np.uint8),
    }
    shapes = jax.eval_shape(objective.init, plan.key)
    kept = []  # bytes of each phase, filled while tracing

    def trace(params, lanes):
        row_B = jnp.arange(rows, dtype=jnp.uint32)
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], row_B, plan.pad_id)
        keys = streams.keys(plan.key, 0, row_B, dropout=True)
        knobs, handover = objective.knobs(0.0), None

        for phase in objective.phases:
            trained = phase.trained(params)
            rest = {part: params[part] for part in params if part not in trained}

            def loss(trained, rest=rest, phase=phase, handover=handover):
                sums, _, handover = phase.loss(rest | trained, batch, keys, knobs, handover)
                return objective.total(sums), handover

            # The backward function is a pytree whose leaves are what it keeps. Leaves that are
            # inputs exist anyway, and a leaf may occur several times.
            _, pull_back, handover = jax.vjp(loss, trained, has_aux=True)
            given = {id(leaf) for leaf in jax.tree.leaves((params, batch))}
            leaves = {id(leaf): leaf for leaf in jax.tree.leaves(pull_back)}
            sizes = [x.size * x.dtype.itemsize for at, x in leaves.items() if at not in given]
            kept.append(sum(sizes))

        return 0

    jax.eval_shape(trace, shapes, lanes)
    return max(kept) / _parts(plan)


def of_tree(shapes: Any, where: Any) -> int:
    """Bytes of a tree of arrays on one device; an array that no axis splits is whole on each."""
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(where), strict=True)
    return sum(math.prod(at.shard_shape(array.shape)) * array.dtype.itemsize for array, at in pairs)


def of_device(device: jax.Device) -> int | None:
    """Bytes that a device has, on a CPU its share of the machine's; None if it does not say."""
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages // jax.local_device_count()
    return (device.memory_stats() or {}).get("bytes_limit")


def _parts(plan):
    """The number of parts into which the devices divide the rows of a batch."""
    return plan.mesh.shape["data"] * plan.mesh.shape["fsdp"]
