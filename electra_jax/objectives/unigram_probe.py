# SPDX-License-Identifier: Apache-2.0
"""The corruption behind `disc_auc_unigram`, the same for every run over the same rows and words.

    15 % of the tokens of a row, chosen one by one  ->  draws from the unigram distribution

A discriminator's own figures follow its generator, mask rate and mask unit, so they do not compare
between runs. Nothing here comes from a run's settings: the rate and the unit are fixed, and the
keys are streams of their own, so whatever an objective draws for itself moves no slot of this.
"""

import dataclasses
from collections.abc import Callable

import jax

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.objectives import corrupt

MASK_RATE = 0.15  # of all tokens, as published; the unit is a token


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Probe:
    """What it draws with."""

    unigram_V: jax.Array  # how often the training text has each id
    mask_B: jax.Array  # keys, one a row: which slots
    sample_B: jax.Array  # what is written there


def of(key: jax.Array, row_B: jax.Array, unigram_V: jax.Array) -> Probe:
    """The probe of these rows; `key` is that of all evaluations."""

    def rows(name):
        return streams.row_keys(streams.stream(key, name), 0, row_B)

    return Probe(unigram_V, rows("unigram_probe_mask"), rows("unigram_probe_sample"))


def corrupted(
    probe: Probe,
    batch: batch_lib.Batch,
    special_ids: tuple[int, ...],
    rowwise: Callable[[Callable], Callable],
) -> jax.Array:
    """Ids [B, L] of the batch with draws at the probe's slots; a draw may equal the original."""
    length = batch.ids_BL.shape[1]
    n = min(corrupt.slots(MASK_RATE, length), length)

    def choose(_, keys_B, candidates_BL, count_B):
        return corrupt.choose(keys_B, candidates_BL, count_B, n, mask_token_rate=1.0)

    def draw(unigram_V, keys_B):
        return corrupt.sample_from(keys_B, n, unigram_V, special_ids)

    candidates_BL = corrupt.candidates(batch.ids_BL, special_ids)
    count_B = corrupt.count(candidates_BL, batch.real_BL, MASK_RATE, n)
    chosen = rowwise(choose)((), probe.mask_B, candidates_BL, count_B)
    drawn_BN = rowwise(draw)(probe.unigram_V, probe.sample_B)

    return corrupt.write(batch.ids_BL, chosen, drawn_BN)
