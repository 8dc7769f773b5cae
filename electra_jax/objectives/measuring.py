# SPDX-License-Identifier: Apache-2.0
"""What an objective says of a batch, as sums and weights under the names of `metrics.py`.

A baseline is summed over the same tokens as the metric that is held against it: `disc_majority`
over those that the discriminator is judged on, be it all tokens, the words or the chosen slots.
"""

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics
from electra_jax.objectives import corrupt, corruption


def corrupted(made: corruption.Corrupted, batch: batch_lib.Batch) -> metrics.Sums:
    """masked_rate and replaced_rate: how much of the text was touched."""
    used_BN = made.chosen.used_BN
    used_BL = corrupt.write(jnp.zeros_like(batch.ids_BL), made.chosen, jnp.ones_like(used_BN))
    return {
        "masked_rate": metrics.pair(used_BL, batch.real_BL),
        "replaced_rate": metrics.pair(made.replaced_BL, batch.real_BL),
    }


def generated(made: corruption.Corrupted, batch: batch_lib.Batch) -> metrics.Sums:
    """gen_*: the generator at the chosen slots."""
    used_BN, masked_BN = made.chosen.used_BN, made.chosen.masked_BN
    lucky_BN = made.sampled_BN == corrupt.at(batch.ids_BL, made.chosen)
    return lax.stop_gradient(
        {
            "gen_loss": metrics.pair(made.gen_losses_BN, used_BN),
            "gen_masked_loss": metrics.pair(made.gen_losses_BN, masked_BN),
            "gen_accuracy": metrics.pair(made.gen_hits_BN, used_BN),
            "gen_masked_accuracy": metrics.pair(made.gen_hits_BN, masked_BN),
            "gen_sampled_accuracy": metrics.pair(lucky_BN, used_BN),
            "gen_entropy": metrics.pair(made.gen_entropies_BN, masked_BN),
        }
    )


def detected(
    losses_BL: jax.Array, logits_BL: jax.Array, replaced_BL: jax.Array, judged_BL: jax.Array
) -> metrics.Sums:
    """disc_*: the discriminator over the tokens that it is judged on."""
    believed_BL = logits_BL > 0
    # Not `believed == replaced`: a logit that is NaN is right about nothing.
    right_BL = jnp.where(replaced_BL, logits_BL > 0, logits_BL <= 0)
    return lax.stop_gradient(
        {
            "disc_loss": metrics.pair(losses_BL, judged_BL),
            "disc_accuracy": metrics.pair(right_BL, judged_BL),
            "disc_majority": metrics.pair(~replaced_BL, judged_BL),
            "disc_precision": metrics.pair(replaced_BL, believed_BL & judged_BL),
            "disc_recall": metrics.pair(believed_BL, replaced_BL & judged_BL),
        }
    )


def predicted(
    losses_BN: jax.Array, hits_BN: jax.Array, used_BN: jax.Array, masked_BN: jax.Array
) -> metrics.Sums:
    """mlm_*: a main network that predicts tokens, over all it is trained on and where the original
    was hidden from it."""
    return lax.stop_gradient(
        {
            "mlm_loss": metrics.pair(losses_BN, used_BN),
            "mlm_accuracy": metrics.pair(hits_BN, used_BN),
            "mlm_masked_loss": metrics.pair(losses_BN, masked_BN),
            "mlm_masked_accuracy": metrics.pair(hits_BN, masked_BN),
        }
    )
