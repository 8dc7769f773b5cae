# SPDX-License-Identifier: Apache-2.0
"""DeBERTaV3's way of replaced-token detection (arXiv:2111.09543), on ELECTRA's encoder.

    python -m electra_jax.main --config=configs/deberta_v3.py:small --workdir=runs/deberta_v3

Embeddings shared without the tug of war, two optimizers, a generator of the same width and half
the depth, [MASK] at every chosen slot, and a head that hears [CLS]. Its disentangled attention is
not here.
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "deberta_v3")
    config.objective.name = "decoupled_detection"
    config.objective.mask_token_rate = 1.0
    config.model.sharing = "gdes"
    config.model.discriminator_head = "cls_context"
    config.model.generator = config.model.discriminator.copy_and_resolve_references()
    config.model.generator.layers = max(1, config.model.discriminator.layers // 2)
    return config
