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

    discriminator: float  # the main network with its head
    generator: float = 0.0
    generator_head: float = 0.0
    generator_passes: int = 3  # 1 where it is frozen

    @property
    def train(self) -> float:
        """Operations of one row in a training step."""
        generated = self.generator + self.generator_head
        return 3 * self.discriminator + self.generator_passes * generated


def detection(config: networks.NetworksConfig, length: int) -> Flops:
    """A row of `length` tokens through the discriminator alone."""
    width = config.discriminator.width
    head = length * (2 * width**2 + 2 * width)
    return Flops(_tower(config.discriminator, config.embedding_size, length) + head)


def prediction(config: networks.NetworksConfig, length: int, places: int) -> Flops:
    """A row through a main network that predicts tokens at so many places."""
    tower = _tower(config.discriminator, config.embedding_size, length)
    return Flops(tower + _head(config, config.discriminator.width, places))


def with_generator(flops: Flops, config: networks.NetworksConfig, length: int, slots: int) -> Flops:
    """The same with a generator that fills `slots` slots."""
    generator = config.generator
    return dataclasses.replace(
        flops,
        generator=_tower(generator, config.embedding_size, length),
        generator_head=_head(config, generator.width, slots),
    )


def with_towers(flops: Flops, config: networks.NetworksConfig, length: int) -> Flops:
    """The same with two towers that guess every token."""
    generator = config.generator
    return dataclasses.replace(
        flops,
        generator=2 * _tower(generator, config.embedding_size, length),
        generator_head=_head(config, 2 * generator.width, length),
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


def _head(config, width, places):
    size = config.embedding_size
    return places * (2 * width * size + 2 * size * config.padded_vocab_size)


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
