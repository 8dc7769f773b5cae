# SPDX-License-Identifier: Apache-2.0
"""What every array of weights that another program wrote must be."""

import numpy as np


def check_finite(name: str, values: np.ndarray) -> None:
    """Raises ValueError, one line, if a tensor holds NaN or infinity: all answers would be NaN."""
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(
            f"tensor {name} has {bad:,} values that are not finite, of {values.size:,}; take"
            " another copy, or a checkpoint from before its training failed"
        )
