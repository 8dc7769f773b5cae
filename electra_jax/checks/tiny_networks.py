# SPDX-License-Identifier: Apache-2.0
"""Tiny networks and rows of random ids: all that a check needs if it does not train on text.

The kind of the networks (positions, norms, head, biases) is taken from the configuration, so a
check tests the networks that a run would train; only the sizes are smaller.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams, trees
from electra_jax.speed import synthetic
from electra_jax.step import plans
from electra_jax.workdir import prepared_data

VOCABULARY = synthetic.MadeUpVocabulary(123)  # no multiple of 128, so that tables have padded rows
LENGTH = 24


def jit(function, **options):
    """jax.jit that compiles fast; on a CPU nearly all of the time goes into compiling."""
    backend = jax.default_backend()
    compiler_options = {
        "cpu": {"xla_backend_optimization_level": 0},
        "gpu": {"xla_gpu_deterministic_ops": True},
    }.get(backend)
    return jax.jit(function, compiler_options=compiler_options, **options)


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Products in float32 proper within the block; accelerators round their factors by default."""
    before = jax.config.jax_default_matmul_precision
    # Not jax's own block: it holds for one thread, and a run compiles in another.
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        yield
    finally:
        jax.config.update("jax_default_matmul_precision", before)


@contextlib.contextmanager
def compiling_fast() -> Iterator[None]:
    """Makes everything in the block compile fast: a run of a few steps is mostly compiling."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", jax.default_backend() == "cpu")
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def config(
    given: config_lib.Config, objective: str = "replaced_token_detection", **changes
) -> config_lib.Config:
    """Returns `given` with tiny networks and no dropout.

    `changes` sets further fields by path, written as section__field.
    """
    tree = config_lib.to_tree(given)
    heads = dict(heads=2)
    tree["data"].update(sequence_length=LENGTH)
    tree["model"].update(
        embedding_size=16,
        max_positions=3 * LENGTH,
        discriminator=dict(layers=1, width=32, feed_forward=64) | heads,
        generator=dict(layers=1, width=16, feed_forward=32) | heads,
        sharing="embeddings",
        shared_layers=0,
        dropout=0.0,
        attention_dropout=0.0,
        attention="einsum",
        dtype="float32",
        scan="off",
        remat="none",
    )

    tree["objective"]["name"] = objective

    for path, value in changes.items():
        *sections, field = path.split("__")
        (tree[sections[0]] if sections else tree)[field] = value
    return config_lib.parse(tree)


def objective(small: config_lib.Config) -> Any:
    """Returns the objective of a configuration, on one device."""
    return plans.make_plan(small, VOCABULARY).objective


def lanes(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Returns rows of random ids, of which every second ends in padding."""
    ids, marks = synthetic.rows(VOCABULARY, rows, LENGTH, seed)
    draw = np.random.default_rng(seed)
    for row in range(0, rows, 2):
        # A row that ends early ends in [SEP] like any other, and padding follows.
        end = int(draw.integers(LENGTH // 2 + 2, LENGTH))
        ids[row, end - 1] = VOCABULARY.special_ids[3]
        ids[row, end:], marks[row, end:] = VOCABULARY.pad_id, 0
    return {"ids": ids, "marks": marks}


def batch(of: dict[str, np.ndarray]) -> batch_lib.Batch:
    """Returns the batch that networks read, from ids and marks."""
    row_B = np.arange(len(of["ids"]), dtype=np.uint32)
    return batch_lib.from_lanes(
        *map(jnp.asarray, (of["ids"], of["marks"], row_B)), VOCABULARY.pad_id
    )


def keys(seed: int, step: int, of: batch_lib.Batch) -> streams.Keys:
    """Returns the random keys of these rows, without dropout."""
    return streams.keys(jax.random.key(seed), step, of.row_B, dropout=False)


def weights(objective, seed: int) -> dict:
    """Returns random weights, also for biases and scales, which a run starts at 0 and 1."""
    shapes = jax.eval_shape(objective.init, jax.random.key(0))
    draw = np.random.default_rng(seed)

    def leaf(path, shape):
        name = trees.path_name(path)
        spread = 0.1 if name.endswith(("bias", "scale")) else 0.3
        values = name.endswith("scale") + spread * draw.standard_normal(shape.shape)
        return jnp.asarray(values, jnp.float32)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def with_uneven_scores(params: dict) -> dict:
    """Scales the token table so that the generator prefers some tokens to others.

    A layer norm gives a vector the length sqrt(E), so the standard deviation of its scores is
    sqrt(E) times that of the table. Here it becomes 2.
    """
    token_VE = params["embeddings"]["token"]
    scale = 2 / (jnp.sqrt(token_VE.shape[1]) * token_VE.std())
    return params | {"embeddings": params["embeddings"] | {"token": token_VE * scale}}


def flat(tree) -> dict[str, np.ndarray]:
    """Returns the leaves of a tree as {path: array}."""
    return {path: np.asarray(x) for path, x in trees.flat(tree).items()}


def in_full_size(given: config_lib.Config, seed: int, **model) -> tuple[Any, dict]:
    """Returns (objective, lanes of 8 rows) in the full sizes of `given`, over random ids.

    `model` changes fields of the section of that name.
    """
    tree = config_lib.to_tree(given)
    tree["objective"]["name"] = "replaced_token_detection"
    tree["model"].update(model)

    vocabulary = dataclasses.replace(
        VOCABULARY, size=prepared_data.vocabulary_size(prepared_data.RunData.of(given, ""))
    )
    ids, marks = synthetic.rows(vocabulary, 8, given.data.sequence_length, seed)
    objective = plans.make_plan(config_lib.parse(tree), vocabulary).objective
    return objective, {"ids": ids, "marks": marks}
