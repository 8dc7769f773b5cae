# SPDX-License-Identifier: Apache-2.0
"""Compiles the real training step for chips that this machine does not have.

    python -m tests.support.aot [LAYERS [FOLDER]]

prints figures of each variant with LAYERS layers per network (2), and writes its HLO to FOLDER.

`electra_jax.speed.ahead_of_time` compiles, as for the command `electra_jax.compile`. Needs the
extra `aot`: the compilers come in the wheels `libtpu` and `jax-cuda*-plugin`.
"""

import collections
import dataclasses
import os
import pathlib
import sys

import jax

from electra_jax import config as config_lib
from electra_jax.speed import ahead_of_time, chips, exchanges, hlo

from .corpus import ROOT, load_config

VOCAB = 30522
LENGTH = 128


@dataclasses.dataclass(frozen=True)
class Variant:
    """ELECTRA-Small's widths in bfloat16, on `data x fsdp x tensor` chips of one kind."""

    chip: str  # 'tpu': v5e, 'cuda': H100
    data: int
    fsdp: int
    rows: int  # of a batch, over all chips
    scan: bool
    tensor: int = 1
    length: int = LENGTH
    attention: str = "auto"
    slices: int = 1
    accumulation: int = 1

    def __str__(self):
        layers = "scanned" if self.scan else "unrolled"
        mesh = f"data {self.data} x fsdp {self.fsdp} x tensor {self.tensor}"
        rows = f"{self.rows} rows of {self.length}"
        slices = f", {self.slices} slices" if self.slices > 1 else ""
        parts = f", {self.accumulation} micro-batches" if self.accumulation > 1 else ""
        return f"{self.chip}, {mesh}, {rows}, {layers}, {self.attention}{slices}{parts}"


# 7 divides no size of a parameter, so on the TPU a dimension that it divides is one of rows.
ROWS_A_CHIP = 7
TPU = {
    "data": Variant("tpu", 4, 1, 4 * ROWS_A_CHIP, True),
    "fsdp": Variant("tpu", 1, 4, 4 * ROWS_A_CHIP, True),
    "data x fsdp": Variant("tpu", 2, 2, 4 * ROWS_A_CHIP, True),
}
# Of the discriminator's four heads a chip has two. Only `fused` has attention dropout here.
LONG = {
    way: Variant("tpu", 2, 1, 2 * ROWS_A_CHIP, True, tensor=2, length=length, attention=way)
    for way, length in (("einsum", 1024), ("splash", 1024), ("fused", 384))
}
# Of 2 x 2 chips each; a copy of the model is split over two chips of a slice, or over all four.
SLICES = {
    "two slices": Variant("tpu", 4, 2, 8 * ROWS_A_CHIP, True, slices=2),
    "four slices": Variant("tpu", 4, 2, 8 * ROWS_A_CHIP, True, tensor=2, slices=4),
    "two slices, four micro-batches": Variant(
        "tpu", 4, 2, 4 * 8 * ROWS_A_CHIP, True, slices=2, accumulation=4
    ),
}
CUDA = {
    "scanned": Variant("cuda", 1, 1, 128, True),
    "unrolled": Variant("cuda", 1, 1, 128, False),
}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled step, the number of arrays of its state, and the bytes of all its parameters."""

    program: ahead_of_time.Program
    leaves: int
    parameters: int

    @property
    def text(self) -> str:
        """Optimised HLO."""
        return self.program.text


def missing(chip: str) -> str:
    """Why this machine cannot compile for a chip; '' if it can."""
    return ahead_of_time.missing(chip)


def compile_step(variant: Variant, layers: int = 2) -> Compiled:
    """Traces and compiles one step. Raises the error of the compiler, e.g. too little memory."""
    tree = load_config("small")
    tree.data.update(batch_size=variant.rows, sequence_length=variant.length)
    tree.model.update(dtype="bfloat16", scan="on" if variant.scan else "off")
    tree.model.update(attention=variant.attention, max_positions=max(512, variant.length))
    if variant.attention in ("einsum", "splash"):
        tree.model.attention_dropout = 0.0
    tree.model.discriminator.layers = tree.model.generator.layers = layers
    tree.mesh.update(data=variant.data, fsdp=variant.fsdp, tensor=variant.tensor)
    tree.schedule.accumulation = variant.accumulation

    # libtpu otherwise looks for a machine with TPUs, and lets one process in at a time.
    for name, value in ahead_of_time.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    name = "h100:1" if variant.chip == "cuda" else "v5e:2x2"
    topology = chips.topology(f"{variant.slices}x{name}")
    program, ready = ahead_of_time.compile_step(config_lib.parse(tree), topology, VOCAB)
    shapes = ready.plan.state_shapes
    parameters = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes.params))
    return Compiled(program, len(jax.tree.leaves(shapes)), parameters)


def counted(compiled: Compiled) -> dict[str, int]:
    """{kind of collective: how many of them}."""
    return dict(collections.Counter(c.kind for c in exchanges.collectives(compiled.text)))


def _main(layers: int, folder: str | None) -> None:
    print("| step | compile, s | kernels | GB moved | peak MiB per chip | collectives (MB) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for variant in (*TPU.values(), *LONG.values(), *SLICES.values(), *CUDA.values()):
        if missing(variant.chip):
            print(f"| {variant} | {missing(variant.chip)} |")
            continue
        made = compile_step(variant, layers)
        if folder:
            (pathlib.Path(folder) / f"{variant}.hlo").write_text(made.text, encoding="utf-8")
        kernels = moved = "-"
        if variant.chip == "cuda":
            kernels, moved = hlo.launches(made.text), f"{hlo.bytes_moved(made.text) / 1e9:.2f}"
        exchanged = {}
        for c in exchanges.collectives(made.text):
            exchanged[c.kind] = exchanged.get(c.kind, 0) + c.bytes / 1e6
        listed = ", ".join(
            f"{number} {kind} ({exchanged[kind]:.1f})" for kind, number in counted(made).items()
        )
        seconds, peak = made.program.seconds, made.program.peak / 2**20
        print(f"| {variant} | {seconds:.0f} | {kernels} | {moved} | {peak:.0f} | {listed} |")


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # else jax asks the wheels for their chips
    sys.path.insert(0, str(ROOT))  # for configs/
    _main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2] if len(sys.argv) > 2 else None)
