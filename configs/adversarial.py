# SPDX-License-Identifier: Apache-2.0
"""The generator is trained to fool the discriminator: section 3.2 and appendix F of the paper.

    python -m electra_jax.main --config=configs/adversarial.py:small --workdir=runs/adversarial

The generator learns by reinforcement (REINFORCE) instead of maximum likelihood. In the paper this
is worse than ELECTRA.
"""

from electra_jax.configs import base


def get_config(size="small"):
    """Returns the size with this objective: tiny (tiny_paper.py), small, base or large."""
    config = base.of(size, "adversarial")
    config.objective.name = "adversarial_generator"
    return config
