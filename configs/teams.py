# SPDX-License-Identifier: Apache-2.0
"""TEAMS: the discriminator also finds the original among five likely tokens (arXiv:2106.00139).

    python -m electra_jax.main --config=configs/teams.py:small --workdir=runs/teams

The weights, five tokens, and a generator of six layers that shares three are those of the small
model in the TensorFlow Model Garden; other sizes are in proportion, which is not published. Rows,
steps and rates are the size's own. It has been trained at the size tiny alone.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "teams")
    config.objective.name = "multi_word_selection"
    config.objective.disc_weight = 5.0
    config.objective.selection_weight = 2.0
    config.objective.selection_size = 5
    config.model.discriminator_head = "own_layer"
    # The generator has the discriminator's width and half its depth; of this it shares a half.
    config.model.generator = config.model.discriminator.copy_and_resolve_references()
    config.model.generator.layers = max(1, config.model.discriminator.layers // 2)
    config.model.shared_layers = config.model.generator.layers // 2
    return config
