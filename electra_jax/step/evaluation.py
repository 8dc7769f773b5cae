# SPDX-License-Identifier: Apache-2.0
"""Held-out metrics that can be compared across runs: fixed rows, fixed keys, no dropout.

    rows of each source -> batches -> `evaluate` on the mesh -> metric sums -> metrics

The random keys depend neither on the run's seed nor on the batch size: a row's key comes from its
number within its source. So two checkpoints are evaluated on exactly the same masked slots and the
same draws if their runs have the same prepared data, mask rate and mask unit. The samples behind
`disc_auc_unigram` are the same even if mask rate and mask unit differ.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, sharding, streams
from electra_jax.data import totals
from electra_jax.host import processes
from electra_jax.objectives import unigram_probe
from electra_jax.objectives.objective import Objective

SEED = 20_200_324  # seed of everything random in an evaluation, for all runs

BY_SOURCE = (  # metrics that are also given for each source
    "gen_masked_loss", "gen_masked_accuracy", "disc_loss", "disc_majority", "disc_auc",
    "disc_auc_unigram", "mlm_masked_loss", "mlm_masked_accuracy", "selection_loss",
    "selection_accuracy", "selection_chance",
)  # fmt: skip


def compile_evaluate(
    objective: Objective, pad_id: int, unigram_V: np.ndarray, mesh: Mesh, params_shardings: Any
) -> Callable[[dict, dict], metrics.Sums]:
    """Returns the jitted function `evaluate(params, {'ids', 'marks', 'row'}) -> sums`.

    Args:
      objective: what the networks learn, on the mesh.
      pad_id: the id of padding.
      unigram_V: how often the training text has each id; `disc_auc_unigram` draws its replacements
        by these frequencies.
      mesh: where the rows of a batch are split.
      params_shardings: how the parameters lie on the mesh.
    """
    counts_V = np.full(objective.networks.padded_vocab_size, 0, np.float32)
    counts_V[: len(unigram_V)] = unigram_V

    def evaluate(params, lanes):
        batch = batch_lib.from_lanes(lanes["ids"], lanes["marks"], lanes["row"], pad_id)
        key = jax.random.key(SEED)
        keys = streams.keys(key, 0, batch.row_B, dropout=False)
        probe = unigram_probe.of(key, batch.row_B, jnp.asarray(counts_V))
        # Always the settings of the end of a run, so that checkpoints of all ages are comparable.
        return objective.evaluate(params, batch, keys, objective.knobs(1.0), probe)

    rows = sharding.rows(mesh)
    return jax.jit(
        evaluate,
        in_shardings=(params_shardings, dict(ids=rows, marks=rows, row=rows)),
        out_shardings=sharding.replicated(mesh),
    )


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Computes the metrics of weights on rows, in batches of one size on one mesh."""

    program: Callable[[dict, dict], metrics.Sums]  # from `compile_evaluate`
    objective: Objective
    pad_id: int
    mesh: Mesh
    batch_size: int  # rows
    ema_decay: float = 0.0  # of the averaged weights that are evaluated; 0: they are not averages

    def of_sources(
        self,
        params: dict,
        sources: Sequence[tuple[str, np.ndarray, np.ndarray]],
        progress: Callable[[int], None] = lambda rows: None,
        stops: Callable[[], bool] | None = None,
    ) -> dict[str, float | None]:
        """Returns all metrics over the rows of all sources, and a few for each (`BY_SOURCE`).

        Args:
          params: the weights, or their averages.
          sources: (name, ids [n, L], marks [n, L]) of each source.
          progress: as in `sums`.
          stops: as in `sums`.

        `unigram_entropy` is computed from these rows, not from everything that was prepared: then a
        source has the same weight in it as in the losses that are compared with it.

        Raises ValueError, one line, if there is no source or one of them has no rows, and
        processes.Stopped.
        """
        _refuse_without_rows(sources)

        by_source: dict[str, float | None] = {}
        merged: Any = None
        all_counts_V: Any = 0
        for name, ids_BL, marks_BL in sources:
            counts_V = _counts(ids_BL, self.objective)
            all_counts_V = all_counts_V + counts_V
            sums = self.sums(params, ids_BL, marks_BL, progress, stops)
            stops = None  # now it is compiled
            if len(sources) > 1:
                own = metrics.compute(sums)
                by_source |= {
                    f"{metric}/{name}": own[metric] for metric in BY_SOURCE if metric in own
                }
                by_source[f"unigram_entropy/{name}"] = entropy(counts_V)
            merged = sums if merged is None else metrics.add(merged, sums)

        return self.values(merged) | {"unigram_entropy": entropy(all_counts_V)} | by_source

    def sums(
        self,
        params: dict,
        ids_BL: np.ndarray,
        marks_BL: np.ndarray,
        progress: Callable[[int], None] = lambda rows: None,
        stops: Callable[[], bool] | None = None,
    ) -> metrics.Sums:
        """Returns the metric sums over the rows of one source, in float64 on the host.

        Args:
          params: the weights, or their averages.
          ids_BL: the rows.
          marks_BL: their marks, as in the records.
          progress: called after each batch with the number of rows that are done.
          stops: whether to stop before the program is compiled, see `processes.compile_together`.

        Raises processes.Stopped.
        """
        sums: Any = None
        for lanes in _batches(ids_BL, marks_BL, self.batch_size, self.pad_id):
            rows = sharding.rows(self.mesh)
            placed = {lane: _place(array, rows) for lane, array in lanes.items()}
            if sums is None:
                processes.compile_together(self.program, params, placed, stops=stops)
            here = jax.tree.map(
                lambda x: np.asarray(x, np.float64), jax.device_get(self.program(params, placed))
            )
            sums = here if sums is None else metrics.add(sums, here)
            progress(min(int(lanes["row"][0]) + self.batch_size, len(ids_BL)))
        return sums

    def values(self, sums: metrics.Sums) -> dict[str, float | None]:
        """Returns the metrics that the sums describe, `loss` among them.

        `ema_decay` shows that averages were evaluated.
        """
        averaged = {"ema_decay": self.ema_decay} if self.ema_decay else {}
        return with_loss(metrics.compute(sums), self.objective) | averaged


def entropy(counts_V: np.ndarray) -> float | None:
    """The entropy, in nats, of the distribution that the counts describe.

    This is the lowest possible loss of a prediction that is the same at every position. Returns
    None if all counts are 0.
    """
    return totals.unigram_entropy(counts_V) if counts_V.any() else None


def with_loss(values: dict, objective: Objective) -> dict:
    """Adds `loss`, the objective's total of its terms; None if a term has no value."""
    known = {term: values.get(f"{term}_loss") for term in objective.terms}
    loss = None if None in known.values() else float(objective.total(known))
    return {"loss": None} | values | ({} if loss is None else {"loss": loss})


def _refuse_without_rows(sources):
    """Raises ValueError if there is nothing to evaluate, before anything is compiled."""
    empty = [name for name, ids_BL, _ in sources if not len(ids_BL)]
    if empty or not sources:
        raise ValueError(
            f"{', '.join(empty) or 'no source'} has {'no' if empty else 'any'} rows to evaluate;"
            " give it more text, or raise data.heldout_fraction"
        )


def _counts(ids_BL, objective):
    """[V] how often each id occurs in the rows; special ids and padding count 0."""
    size = objective.networks.padded_vocab_size
    counts_V = np.bincount(np.asarray(ids_BL).reshape(-1).astype(np.int64), minlength=size)
    counts_V[list(objective.special_ids)] = 0
    return counts_V


def _batches(
    ids_BL: np.ndarray, marks_BL: np.ndarray, size: int, pad_id: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches of one size; the last is filled with padding, which no metric counts."""
    for first in range(0, len(ids_BL), size):
        ids, marks = ids_BL[first : first + size], marks_BL[first : first + size]
        missing = size - len(ids)
        yield {
            "ids": np.pad(ids, ((0, missing), (0, 0)), constant_values=pad_id),
            "marks": np.pad(marks, ((0, missing), (0, 0))),
            "row": np.arange(first, first + size, dtype=np.uint32),
        }


def _place(array, where):
    """The array on the mesh. Every process has all of it and places the part of its devices."""
    return jax.make_array_from_callback(array.shape, where, lambda index: array[index])
