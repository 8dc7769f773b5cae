# SPDX-License-Identifier: Apache-2.0
"""COCO-LM's corrective language modelling: the discriminator also corrects (arXiv:2102.08473).

    python -m electra_jax.main --config=configs/corrective_lm.py:small --workdir=runs/corrective

At each chosen slot a second head of the discriminator predicts the original; what stands there is
kept with the probability that detection gives it. The generator is wide and shallow, as COCO-LM's
is; that it has the discriminator's width and a third of its layers was chosen here. COCO-LM's
contrastive loss of whole rows is not here. Rows, steps and rates are the size's own. It has been
trained at the size tiny alone, with the generator of that size (docs/experiments/crossing.md).
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "corrective_lm")
    config.objective.name = "corrective_lm"
    config.model.generator = config.model.discriminator.copy_and_resolve_references()
    config.model.generator.layers = max(1, config.model.discriminator.layers // 3)
    return config
