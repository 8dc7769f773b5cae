# SPDX-License-Identifier: Apache-2.0
"""The corruption behind `disc_auc_unigram`, equal for all runs on the same rows and vocabulary.

    15 % of the tokens of a row, chosen one by one  ->  samples from the unigram distribution

A discriminator's other metrics depend on its generator, mask rate and mask unit, so they cannot be
compared between runs. Here rate and unit are fixed, and the keys are streams of their own, so that
no setting of a run changes what is chosen or sampled.
"""

import dataclasses

import jax

from electra_jax.core import batch as batch_lib
from electra_jax.core import placing, streams
from electra_jax.objectives import masking, sampling

MASK_RATE = 0.15  # of all tokens, as published; the unit is a token


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Probe:
    """What the probe draws with."""

    unigram_V: jax.Array  # how often each id occurs in the training text
    mask_B: jax.Array  # one key per row, for the slots
    sample_B: jax.Array  # one key per row, for the samples


def of(key: jax.Array, row_B: jax.Array, unigram_V: jax.Array) -> Probe:
    """The probe for these rows; `key` is the key of all evaluations."""

    def rows(name):
        return streams.row_keys(streams.stream(key, name), 0, row_B)

    return Probe(unigram_V, rows("unigram_probe_mask"), rows("unigram_probe_sample"))


def corrupted(
    probe: Probe,
    batch: batch_lib.Batch,
    special_ids: tuple[int, ...],
    placement: placing.Placement = placing.ONE_DEVICE,
) -> jax.Array:
    """The ids of the batch with samples at the probe's slots, [B, L]; a sample may be correct."""
    length = batch.ids_BL.shape[1]
    n = min(masking.max_slots(MASK_RATE, length), length)
    candidates_BL = masking.candidates(batch.ids_BL, special_ids)
    count_B = masking.count(candidates_BL, batch.real_BL, MASK_RATE, n)

    chosen = placement.rowwise(
        masking.choose, (probe.mask_B, candidates_BL, count_B), n=n, mask_token_rate=1.0
    )
    sampled_BN = placement.rowwise(
        sampling.from_weights,
        (probe.sample_B,),
        shared=(probe.unigram_V,),
        n=n,
        forbidden_ids=special_ids,
    )
    return masking.write(batch.ids_BL, chosen, sampled_BN)
