# SPDX-License-Identifier: Apache-2.0
"""Replace MLM, table 5 of the paper: no [MASK] in what the main network sees, loss at the slots.

python -m electra_jax.main --config=configs/replace_mlm.py:small --workdir=runs/replace_mlm
"""

from configs import base


def get_config(size="small"):
    """Returns configs/SIZE.py with this objective."""
    config = base.of(size, "replace_mlm")
    config.objective.name = "replace_mlm"
    return config
