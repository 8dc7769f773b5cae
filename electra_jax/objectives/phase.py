# SPDX-License-Identifier: Apache-2.0
"""A phase: one backward pass of a step, with an optimizer of its own."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Phase:
    """`loss(params, batch, keys, knobs, carry) -> ({term: sum}, metrics, carry)`.

    `trains` names the subtrees of the parameters that learn; None is all of them.
    """

    name: str
    loss: Callable
    trains: tuple[str, ...] | None = None

    def trained(self, params: dict) -> dict:
        """The part of the parameters that this phase moves."""
        return params if self.trains is None else {part: params[part] for part in self.trains}
