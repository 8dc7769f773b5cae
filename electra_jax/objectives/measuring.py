# SPDX-License-Identifier: Apache-2.0
"""The metrics of a batch as sums with weights, under the names of `core/metrics.py`.

A baseline is summed over the same tokens as the metric that it is compared with: `disc_majority`
over the tokens of the discriminator's loss, which are all tokens, the words or the chosen slots.
"""

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics
from electra_jax.objectives import masking
from electra_jax.objectives.objective import Corrupted


def corruption_sums(corrupted: Corrupted, batch: batch_lib.Batch) -> metrics.Sums:
    """masked_rate and replaced_rate: the shares of tokens that were chosen, and replaced."""
    used_BN = corrupted.chosen.used_BN
    used_BL = masking.write(jnp.zeros_like(batch.ids_BL), corrupted.chosen, jnp.ones_like(used_BN))
    return {
        "masked_rate": metrics.pair(used_BL, batch.real_BL),
        "replaced_rate": metrics.pair(corrupted.replaced_BL, batch.real_BL),
    }


def generator_sums(corrupted: Corrupted, batch: batch_lib.Batch) -> metrics.Sums:
    """gen_*: the generator at the chosen slots."""
    used_BN, masked_BN = corrupted.chosen.used_BN, corrupted.chosen.masked_BN
    correct_BN = corrupted.sampled_BN == masking.at(batch.ids_BL, corrupted.chosen)
    return lax.stop_gradient(
        {
            "gen_loss": metrics.pair(corrupted.gen_losses_BN, used_BN),
            "gen_masked_loss": metrics.pair(corrupted.gen_losses_BN, masked_BN),
            "gen_accuracy": metrics.pair(corrupted.gen_hits_BN, used_BN),
            "gen_masked_accuracy": metrics.pair(corrupted.gen_hits_BN, masked_BN),
            "gen_sampled_accuracy": metrics.pair(correct_BN, used_BN),
            "gen_entropy": metrics.pair(corrupted.gen_entropies_BN, masked_BN),
        }
    )


def discriminator_sums(
    losses_BL: jax.Array, logits_BL: jax.Array, replaced_BL: jax.Array, loss_mask_BL: jax.Array
) -> metrics.Sums:
    """disc_*: the discriminator over the tokens of its loss."""
    believed_BL = logits_BL > 0
    # Not `believed == replaced`: with a logit of NaN that would count original tokens as right.
    right_BL = jnp.where(replaced_BL, logits_BL > 0, logits_BL <= 0)
    return lax.stop_gradient(
        {
            "disc_loss": metrics.pair(losses_BL, loss_mask_BL),
            "disc_accuracy": metrics.pair(right_BL, loss_mask_BL),
            "disc_majority": metrics.pair(~replaced_BL, loss_mask_BL),
            "disc_precision": metrics.pair(replaced_BL, believed_BL & loss_mask_BL),
            "disc_recall": metrics.pair(believed_BL, replaced_BL & loss_mask_BL),
        }
    )


def selection_sums(losses_BN: jax.Array, scores_BNO: jax.Array, used_BN: jax.Array) -> metrics.Sums:
    """selection_*: a discriminator that finds the original, the first of O tokens, at its slots."""
    hits_BN = scores_BNO[..., 0] > scores_BNO[..., 1:].max(-1)  # a tie is no hit
    chance = 1 / scores_BNO.shape[-1]
    return lax.stop_gradient(
        {
            "selection_loss": metrics.pair(losses_BN, used_BN),
            "selection_accuracy": metrics.pair(hits_BN, used_BN),
            "selection_chance": metrics.pair(jnp.full_like(losses_BN, chance), used_BN),
        }
    )


def predictor_sums(
    losses_BN: jax.Array, hits_BN: jax.Array, used_BN: jax.Array, masked_BN: jax.Array
) -> metrics.Sums:
    """mlm_*: a main network that predicts tokens.

    Args:
      used_BN: the tokens of its loss.
      masked_BN: those of them whose original it does not see.
    """
    return lax.stop_gradient(
        {
            "mlm_loss": metrics.pair(losses_BN, used_BN),
            "mlm_accuracy": metrics.pair(hits_BN, used_BN),
            "mlm_masked_loss": metrics.pair(losses_BN, masked_BN),
            "mlm_masked_accuracy": metrics.pair(hits_BN, masked_BN),
        }
    )
