# SPDX-License-Identifier: Apache-2.0
"""A generator that learns to fool the discriminator: section 3.2 and appendix F of the paper.

python -m electra_jax.main --config=configs/adversarial.py:small --workdir=runs/adversarial
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "adversarial")
    config.objective.name = "adversarial_generator"
    return config
