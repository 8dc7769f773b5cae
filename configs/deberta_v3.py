# SPDX-License-Identifier: Apache-2.0
"""DeBERTaV3's form of replaced-token detection (arXiv:2111.09543), with ELECTRA's encoder.

    python -m electra_jax.main --config=configs/deberta_v3.py:small --workdir=runs/deberta_v3

It differs from ELECTRA in how embeddings are shared, in having two optimizers, in the generator's
shape, in [MASK] at every slot, and in a head that also reads [CLS]. DeBERTa's disentangled
attention is not included.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "deberta_v3")
    config.objective.name = "decoupled_detection"  # one optimizer per network
    config.objective.mask_token_rate = 1.0  # no slot keeps its token
    config.model.sharing = "gdes"  # the discriminator's loss does not move the shared tables
    config.model.discriminator_head = "cls_context"
    # The generator has the discriminator's width and half its depth.
    config.model.generator = config.model.discriminator.copy_and_resolve_references()
    config.model.generator.layers = max(1, config.model.discriminator.layers // 2)
    return config
