# SPDX-License-Identifier: Apache-2.0
"""ELECTRA 15%, table 5 of the paper: the discriminator is heard at the chosen slots alone.

python -m electra_jax.main --config=configs/electra_15.py:small --workdir=runs/electra_15
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "electra_15")
    config.objective.name = "masked_token_detection"
    return config
