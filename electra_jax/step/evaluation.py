# SPDX-License-Identifier: Apache-2.0
"""Held-out metrics that can be compared across runs: fixed rows, fixed keys, no dropout.

The keys do not depend on the run's seed and a row's number counts from the start of its source,
so two checkpoints of any runs over the same records are asked exactly the same questions.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, sharding, streams
from electra_jax.data import totals
from electra_jax.objectives import unigram_probe
from electra_jax.objectives.objective import Objective

KEY = 20_200_324  # of all evaluation draws, whatever the run's seed

BY_SOURCE = (
    "gen_masked_loss", "gen_masked_accuracy", "disc_loss", "disc_majority", "disc_auc",
    "disc_auc_unigram", "mlm_masked_loss", "mlm_masked_accuracy",
)  # fmt: skip


def compile_evaluate(
    objective: Objective, pad_id: int, unigram_V: np.ndarray, mesh: Mesh, params_shardings: Any
) -> Callable[[dict, dict], metrics.Sums]:
    """Returns jitted `evaluate(params, {'ids', 'marks', 'row'}) -> sums` over the mesh."""
    counts_V = np.full(objective.networks.padded_vocab_size, 0, np.float32)
    counts_V[: len(unigram_V)] = unigram_V

    def evaluate(params, lanes):
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], lanes["row"], pad_id)
        key = jax.random.key(KEY)
        keys = streams.keys(key, 0, batch.row_B, dropout=False)
        probe = unigram_probe.of(key, batch.row_B, jnp.asarray(counts_V))
        # As at the end of a run: every checkpoint is asked the same questions.
        return objective.evaluate(params, batch, keys, objective.knobs(1.0), probe)

    rows = sharding.rows(mesh)
    return jax.jit(
        evaluate,
        in_shardings=(params_shardings, dict(ids=rows, marks=rows, row=rows)),
        out_shardings=sharding.replicated(mesh),
    )


def run(
    evaluate: Callable,
    objective: Objective,
    params: dict,
    sources: Sequence[tuple[str, np.ndarray, np.ndarray]],
    batch_size: int,
    pad_id: int,
    mesh: Mesh,
) -> dict[str, float | None]:
    """All metrics over (name, ids [n, L], marks [n, L]) of each source, and a few by source.

    `unigram_entropy` is of the rows given here, so that each source has in it the weight that it
    has in the losses: as many tokens as are evaluated of it, not as many as were prepared.
    """
    values: dict[str, float | None] = {}
    merged: Any = None
    all_counts_V: Any = 0
    for name, ids_BL, marks_BL in sources:
        counts_V = _counts(ids_BL, objective)
        all_counts_V = all_counts_V + counts_V
        sums = sums_of(evaluate, params, ids_BL, marks_BL, batch_size, pad_id, mesh)
        if len(sources) > 1:
            computed = metrics.compute(sums)
            values |= {
                f"{metric}/{name}": computed[metric] for metric in BY_SOURCE if metric in computed
            }
            values[f"unigram_entropy/{name}"] = entropy(counts_V)
        merged = sums if merged is None else metrics.add(merged, sums)
    whole = with_loss(metrics.compute(merged), objective)
    return whole | {"unigram_entropy": entropy(all_counts_V)} | values


def entropy(counts_V: np.ndarray) -> float | None:
    """Of the distribution that the counts are, in nats: the loss of the best guess that is the same
    at every place. None without any count."""
    return totals.unigram_entropy(counts_V) if counts_V.any() else None


def sums_of(
    evaluate: Callable,
    params: dict,
    ids_BL: np.ndarray,
    marks_BL: np.ndarray,
    batch_size: int,
    pad_id: int,
    mesh: Mesh,
    progress: Callable[[int], None] = lambda rows: None,
) -> dict[str, np.ndarray]:
    """What `evaluate` counts in the rows of one source; `progress` hears how many are done."""
    sums: Any = None
    for lanes in _batches(ids_BL, marks_BL, batch_size, pad_id):
        placed = {lane: _place(array, sharding.rows(mesh)) for lane, array in lanes.items()}
        here = jax.tree.map(
            lambda x: np.asarray(x, np.float64), jax.device_get(evaluate(params, placed))
        )
        sums = here if sums is None else metrics.add(sums, here)
        progress(min(int(lanes["row"][0]) + batch_size, len(ids_BL)))
    return sums


def with_loss(values: dict, objective: Objective) -> dict:
    """Adds `loss`, the objective's total of its terms."""
    known = {term: values.get(f"{term}_loss") for term in objective.terms}
    loss = None if None in known.values() else float(objective.total(known))
    return {"loss": None} | values | ({} if loss is None else {"loss": loss})


def _counts(ids_BL, objective):
    """[V] how often each id stands where a token may be chosen: neither padding nor special."""
    size = objective.networks.padded_vocab_size
    counts_V = np.bincount(np.asarray(ids_BL).reshape(-1).astype(np.int64), minlength=size)
    counts_V[list(objective.special_ids)] = 0
    return counts_V


def _batches(
    ids_BL: np.ndarray, marks_BL: np.ndarray, size: int, pad_id: int
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of one size; the last is filled with padding, which no metric counts."""
    for first in range(0, len(ids_BL), size):
        ids, marks = ids_BL[first : first + size], marks_BL[first : first + size]
        missing = size - len(ids)
        yield {
            "ids": np.pad(ids, ((0, missing), (0, 0)), constant_values=pad_id),
            "marks": np.pad(marks, ((0, missing), (0, 0))),
            "row": np.arange(first, first + size, dtype=np.uint32),
        }


def _place(array, where):
    return jax.make_array_from_callback(array.shape, where, lambda index: array[index])
