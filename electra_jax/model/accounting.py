# SPDX-License-Identifier: Apache-2.0
"""Parameters and floating-point operations of a configuration, computed without running it.

Only matrix products count, with two operations per multiply-add. A training step costs three
forward passes; look-ups and recomputation count as nothing. Local attention counts only the pairs
inside its window, although `einsum` computes the others too and hides them. (The paper's own script
counts two passes, and look-ups as dense products with one-hot vectors.)
"""

import dataclasses
import math
import re

import jax

from electra_jax.model import networks
from electra_jax.model.encoder_config import EncoderConfig

PEAKS = (
    # FLOP/s of what jax calls a device: dense bf16 products that are summed in float32, from the
    # datasheet in the comment; half the figure where only one "with sparsity" is printed there.
    # (name, the whole of jax's device_kind behind the maker's name, FLOP/s)
    ("h200", r"h200", 989e12),  # NVIDIA H200: SXM, 1,979 with sparsity
    ("h100", r"h100( sxm5?| \d+gb hbm\w+)?", 989e12),  # NVIDIA H100: SXM, 1,979 with sparsity
    ("h100 pcie", r"h100 pcie", 756e12),  # NVIDIA H100: PCIe, 1,513 with sparsity
    ("h100 nvl", r"h100 nvl", 835e12),  # NVIDIA H100: NVL, 1,671 with sparsity
    ("h200 nvl", r"h200 nvl", 835e12),  # NVIDIA H200: NVL, 1,671 with sparsity
    ("gh200", r"gh200( \d+gb?( hbm\w+)?)?", 989e12),  # NVIDIA GH200: 1,979 with sparsity
    ("b200", r"b200", 2250e12),  # NVIDIA HGX B200: 36,000 with sparsity for eight
    ("gb200", r"gb200", 2500e12),  # NVIDIA GB200 NVL72: 360,000 with sparsity for 72
    ("a100", r"a100([- ](sxm4?|pcie|pg509))?([- ]\d+(gb)?)?( pcie)?", 312e12),  # NVIDIA A100
    ("a10", r"a10", 125e12),  # NVIDIA A10
    ("a10g", r"a10g", 70e12),  # NVIDIA A10G, of AWS: 140 with sparsity
    ("l4", r"l4", 121e12),  # NVIDIA L4: 242 with sparsity
    ("l40", r"l40", 181e12),  # NVIDIA L40
    ("l40s", r"l40s", 362e12),  # NVIDIA L40S
    # NVIDIA Ada architecture white paper, BF16 with FP32 accumulate; the laptop's and the D are
    # other chips.
    ("rtx 4090", r"rtx 4090", 165e12),
    # Without bf16 in the tensor cores: the fp16 figure, summed in float32, which no bf16 product
    # reaches there. NVIDIA T4, NVIDIA V100.
    ("t4", r"t4", 65e12),
    ("v100", r"v100(-sxm\d)?(-\d+gb)?", 125e12),
    ("v100 pcie", r"v100[- ]pcie(-\d+gb)?", 112e12),
    ("v100s", r"v100s([- ]pcie)?(-\d+gb)?", 130e12),
    # Google Cloud TPU, one page a version. Chips of v2 and v3 (45 and 123) and 7x (2,307) have two
    # cores, and jax shows each as a device of its own; from v4 to v6e a device is a chip.
    ("tpu v2", r"tpu v2", 22.5e12),
    ("tpu v3", r"tpu v3", 61.5e12),
    ("tpu v4", r"tpu v4", 275e12),
    ("tpu v5e", r"tpu v5( lite|e)", 197e12),
    ("tpu v5p", r"tpu v5p?", 459e12),
    ("tpu v6e", r"tpu v6( lite|e)?", 918e12),
    ("tpu7x", r"tpu ?v?7x", 1153.5e12),
)
_MAKERS = re.compile(r"((nvidia|tesla|geforce) )+")


@dataclasses.dataclass(frozen=True)
class Flops:
    """Operations of the forward pass of one row, by part."""

    discriminator: float  # the main network with its head
    generator: float = 0.0
    generator_head: float = 0.0
    generator_passes: int = 3  # 1 if it is frozen

    @property
    def train(self) -> float:
        """Operations of one row in a training step."""
        generated = self.generator + self.generator_head
        return 3 * self.discriminator + self.generator_passes * generated


def detection(config: networks.NetworksConfig, length: int) -> Flops:
    """Returns the operations of a row of `length` tokens in the discriminator alone."""
    width = config.discriminator.width
    head = length * (2 * width**2 + 2 * width)
    if config.discriminator_head == "own_layer":
        head += _tower(dataclasses.replace(config.discriminator, layers=1), width, length)
    return Flops(_tower(config.discriminator, config.embedding_size, length) + head)


def prediction(config: networks.NetworksConfig, length: int, places: int) -> Flops:
    """Returns the operations of a row in a main network that predicts tokens at `places` slots."""
    tower = _tower(config.discriminator, config.embedding_size, length)
    return Flops(tower + _head(config, config.discriminator.width, places))


def selection(config: networks.NetworksConfig, slots: int, offered: int) -> float:
    """Returns the operations of finding the original among `offered` tokens at each slot."""
    size = config.embedding_size
    return slots * (2 * config.discriminator.width * size + 2 * offered * size)


def correction(config: networks.NetworksConfig, slots: int) -> float:
    """Returns the operations of a discriminator that predicts the originals at its slots too."""
    return _head(config, config.discriminator.width, slots)


def with_generator(flops: Flops, config: networks.NetworksConfig, length: int, slots: int) -> Flops:
    """Returns `flops` with those of a generator that fills `slots` slots per row."""
    generator = config.generator
    return dataclasses.replace(
        flops,
        generator=_tower(generator, config.embedding_size, length),
        generator_head=_head(config, generator.width, slots),
    )


def with_towers(flops: Flops, config: networks.NetworksConfig, length: int) -> Flops:
    """Returns `flops` with those of two towers that predict every token."""
    generator = config.generator
    return dataclasses.replace(
        flops,
        generator=2 * _tower(generator, config.embedding_size, length),
        generator_head=_head(config, 2 * generator.width, length),
    )


def peak(device_kind: str) -> float | None:
    """Returns the device's FLOP/s in dense bf16 from its datasheet; None if unknown, as for CPUs.

    The whole name must match: a slice of an A100 (`... MIG 1g.5gb`), the PCIe card or the laptop
    version of a chip have other figures than the chip whose name they contain.
    """
    kind = device_kind.lower().strip()
    if found := _MAKERS.match(kind):
        kind = kind[found.end() :]
    return next((peak for _, pattern, peak in PEAKS if re.fullmatch(pattern, kind)), None)


def parameters(params) -> dict[str, int]:
    """Returns the number of parameters in each top-level subtree; `params` may be shapes."""
    return {
        part: sum(math.prod(x.shape) for x in jax.tree.leaves(tree))
        for part, tree in params.items()
    }


def random_bits(program) -> int:
    """Returns how many random bits a traced program (`jax.make_jaxpr`) draws, in loops too.

    The derivation of keys from others is not counted: some tens of bits per row and layer.
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


def _tower(c: EncoderConfig, embedding_size: int, length: int) -> float:
    kernels = {"gelu": 2, "geglu": 3}[c.feed_forward_kind]
    layer = 8 * c.width**2 + 2 * kernels * c.width * c.feed_forward
    projection = 2 * embedding_size * c.width if embedding_size != c.width else 0
    pairs = sum(_pairs(length, 0 if whole else c.local_window) for whole in c.global_layers)
    return length * (c.layers * layer + projection) + 4 * c.width * pairs


def _pairs(length, window):
    """Returns how many (query, seen key) pairs a row of one document has; window 0 is no limit."""
    reach = min(window or length, length - 1)
    return length * (2 * reach + 1) - reach * (reach + 1)
