# SPDX-License-Identifier: Apache-2.0
"""What every array of weights that another program wrote must be."""

import numpy as np


def finite(name: str, values: np.ndarray) -> np.ndarray:
    """Returns a tensor; raises ValueError, one line, if NaN or infinity makes all answers NaN."""
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise ValueError(
            f"tensor {name} has {bad:,} values that are not finite, of {values.size:,}; take"
            " another copy, or a checkpoint from before its training failed"
        )
    return values
