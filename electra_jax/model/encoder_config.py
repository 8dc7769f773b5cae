# SPDX-License-Identifier: Apache-2.0
"""The shape of a network and how its layers run, as typed values."""

import dataclasses
from collections.abc import Callable

import numpy as np

from electra_jax.model import layers, residual_norm

# Settings of training and speed with which a network runs everywhere; exports leave them out.
PORTABLE = {
    "attention": "einsum",
    "products": "default",
    "scan": False,
    "joined_gradients": False,
    "joined_projections": False,
    "norms_in_kernel": False,
    "remat": "none",
    "frozen_layers": 0,
}


def forms_on(
    platform: str, scan: str = "auto", split: bool = False, norms_in_kernel: bool = False
) -> dict[str, str | bool]:
    """Returns the fields of an `EncoderConfig` in the forms that are fast on 'cpu', 'gpu', 'tpu'.

    All forms compute the same, up to rounding. `scan` is 'on', 'off', or 'auto': as is fast.
    `split` says whether devices share the weights of a layer, which then stay as they are, and
    `norms_in_kernel` whether branches may end in the kernel of `residual_norm`, for which devices
    must run what Triton compiles (`meshes.runs_triton`).
    """
    return {
        "products": "cpu" if platform == "cpu" else "default",
        "scan": platform == "tpu" if scan == "auto" else scan == "on",
        "joined_gradients": platform == "cpu",
        "joined_projections": platform != "cpu" and not split,
        "norms_in_kernel": norms_in_kernel,
    }


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The shape of one network, and how its layers run. No setting is 'auto' here."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    dropout: float
    attention_dropout: float
    dropout_bits: int
    initial_scale: float
    positions: str
    rotary_base: float
    feed_forward_kind: str
    norm_place: str
    norm_kind: str
    biases: bool
    local_window: int
    global_every: int
    attention: str
    products: str  # 'cpu': products and rotations in the forms that are fast on CPUs
    scan: bool
    joined_gradients: bool  # of unrolled layers
    joined_projections: bool  # query, key and value as one product
    norms_in_kernel: bool  # where `residual_norm` has a kernel for them
    remat: str
    frozen_layers: int = 0  # the lowest layers, which get no gradients, nor does what is below them
    direction: str = "both"  # a tower of Electric: 'left_to_right' sees itself and those before it

    def __post_init__(self):
        if self.attention == "splash" and self.attention_dropout > 0:
            raise ValueError(
                "attention='splash' drops no probabilities, but"
                f" attention_dropout={self.attention_dropout}; set it to 0 or use 'fused'"
            )
        if self.attention == "splash" and self.direction != "both":
            raise ValueError(
                f"attention='splash' sees both sides, not direction={self.direction!r}; use"
                " 'einsum'"
            )

    @property
    def dense(self) -> Callable:
        """Multiplies by kernels: `layers.dense` or one that computes the same."""
        return layers.DENSE[self.products]

    @property
    def head_size(self) -> int:
        """K, the size of one attention head."""
        return self.width // self.heads

    def ends_in_kernel(self, length: int) -> bool:
        """Whether branches over rows of this length end in `residual_norm`'s kernel."""
        kind = self.norm_place, self.norm_kind, self.biases
        return (
            self.norms_in_kernel
            and kind == ("post", "layer", True)
            and not residual_norm.refused(length)
        )

    @property
    def global_layers(self) -> np.ndarray:
        """Which layers have global attention, bool [layers]; the first always has."""
        number = np.arange(self.layers)
        return (number % self.global_every == 0) | (self.local_window == 0)
