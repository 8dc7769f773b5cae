# SPDX-License-Identifier: Apache-2.0
"""A phase: one backward pass of a step, and the subtrees of the parameters that it trains."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Phase:
    """`loss(params, batch, keys, knobs, carry) -> ({term: sum}, metrics, carry)`."""

    loss: Callable
    trains: tuple[str, ...]
