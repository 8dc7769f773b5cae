# SPDX-License-Identifier: Apache-2.0
"""Parameters and floating-point operations of a configuration, by arithmetic alone.

Operations are those of matrix products, two a multiply-add; a training step costs three forward
passes, look-ups are free and nothing recomputed counts: the honest convention. Local attention
counts the pairs inside its window, though `einsum` computes and hides the others. (The paper's own
script counts two passes and dense one-hot look-ups.)
"""

import dataclasses
import math

import jax

from electra_jax.model import encoder, networks

PEAKS = (  # dense bf16 FLOP/s of one device, from its datasheet; by a part of jax's device_kind
    ("h200", 989e12),
    ("h100", 989e12),
    ("a100", 312e12),
    ("v100", 125e12),
    ("tpu v6", 918e12),
    ("tpu v5p", 459e12),
    ("tpu v5e", 197e12),
    ("tpu v5 lite", 197e12),
    ("tpu v5", 459e12),
    ("tpu v4", 275e12),
    ("tpu v3", 123e12),
    ("tpu v2", 45e12),
)


@dataclasses.dataclass(frozen=True)
class Flops:
    """Forward operations of one row, by part."""

    discriminator: float
    generator: float
    generator_head: float

    @property
    def train(self) -> float:
        """Operations of one row in a training step."""
        return 3 * (self.discriminator + self.generator + self.generator_head)


def flops(config: networks.NetworksConfig, length: int, slots: int) -> Flops:
    """Counts a row of `length` tokens with `slots` slots for the generator's head."""
    generator, discriminator = config.generator, config.discriminator
    size = config.embedding_size
    head = slots * (2 * generator.width * size + 2 * size * config.padded_vocab_size)
    detection = length * (2 * discriminator.width**2 + 2 * discriminator.width)
    return Flops(
        discriminator=_tower(discriminator, size, length) + detection,
        generator=_tower(generator, size, length),
        generator_head=head,
    )


def peak(device_kind: str) -> float | None:
    """The device's datasheet FLOP/s in dense bf16; None where unknown, CPUs included."""
    return next((peak for name, peak in PEAKS if name in device_kind.lower()), None)


def parameters(params) -> dict[str, int]:
    """How many parameters each top-level subtree has; works on shapes too."""
    return {
        part: sum(math.prod(x.shape) for x in jax.tree.leaves(tree))
        for part, tree in params.items()
    }


def random_bits(program) -> int:
    """Random bits that a traced program (`jax.make_jaxpr`) draws, its loops counted through.

    Keys that are derived from others are not counted: some tens of bits a row and layer.
    """
    drawn = 0
    for equation in getattr(program, "jaxpr", program).eqns:
        if equation.primitive.name == "random_bits":
            drawn += equation.params["bit_width"] * math.prod(equation.outvars[0].aval.shape)
            continue
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    drawn += times * random_bits(inner)
    return drawn


def _tower(c: encoder.EncoderConfig, embedding_size: int, length: int) -> float:
    kernels = {"gelu": 2, "geglu": 3}[c.feed_forward_kind]
    layer = 8 * c.width**2 + 2 * kernels * c.width * c.feed_forward
    projection = 2 * embedding_size * c.width if embedding_size != c.width else 0
    pairs = sum(_pairs(length, 0 if whole else c.local_window) for whole in c.global_layers)
    return length * (c.layers * layer + projection) + 4 * c.width * pairs


def _pairs(length, window):
    """Pairs of a query and a key that it sees in a row of one document; window 0 is all."""
    reach = min(window or length, length - 1)
    return length * (2 * reach + 1) - reach * (reach + 1)
