# SPDX-License-Identifier: Apache-2.0
"""Compiles the real training step for chips that this machine does not have.

    python -m tests.support.aot [LAYERS [FOLDER]]

prints figures of each variant with LAYERS layers per network (2), and writes its HLO to FOLDER.

The step is the one that a run takes (`speed.synthetic.prepare`), over the described devices of a
topology; states are shapes and nothing is allocated. Needs the extra `aot`: the compilers come in
the wheels `libtpu` and `jax-cuda*-plugin`.
"""

import collections
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import sys
import time
from typing import Any

import jax
from jax import numpy as jnp
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

from electra_jax import config as config_lib
from electra_jax.speed import synthetic

from . import hlo
from .corpus import ROOT, load_config

VOCAB = 30522
LENGTH = 128
H100 = """
gpu_device_info {
  name: "H100 SXM, 80 GB"
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 3350000000000
  device_memory_size: 85899345920
  l2_cache_size: 52428800
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 }
"""


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
    attention: str = "einsum"

    def __str__(self):
        layers = "scanned" if self.scan else "unrolled"
        mesh = f"data {self.data} x fsdp {self.fsdp} x tensor {self.tensor}"
        rows = f"{self.rows} rows of {self.length}"
        return f"{self.chip}, {mesh}, {rows}, {layers}, {self.attention}"


# 7 divides no size of a parameter, so on the TPU a dimension that it divides is one of rows.
ROWS_A_CHIP = 7
TPU = {
    "data": Variant("tpu", 4, 1, 4 * ROWS_A_CHIP, True),
    "fsdp": Variant("tpu", 1, 4, 4 * ROWS_A_CHIP, True),
    "data x fsdp": Variant("tpu", 2, 2, 4 * ROWS_A_CHIP, True),
}
LONG = {  # no attention dropout; of the discriminator's four heads a chip has two
    way: Variant("tpu", 2, 1, 2 * ROWS_A_CHIP, True, tensor=2, length=1024, attention=way)
    for way in ("einsum", "splash")
}
CUDA = {
    "scanned": Variant("cuda", 1, 1, 128, True),
    "unrolled": Variant("cuda", 1, 1, 128, False),
}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled step and what is known about it."""

    text: str  # optimised HLO
    memory: Any  # bytes on one chip
    seconds: float  # of processor time, to compile
    leaves: int  # arrays of the state


def missing(chip: str) -> str:
    """Why this machine cannot compile for a chip; '' if it can."""
    if chip == "tpu":
        there = importlib.util.find_spec("libtpu")
    else:
        plugins = importlib.util.find_spec("jax_plugins")
        folders = [pathlib.Path(p) for p in plugins.submodule_search_locations] if plugins else []
        there = [found for folder in folders for found in folder.glob("xla_cuda*")]
    return "" if there else f"no compiler for {chip} here; install the extra: pip install '.[aot]'"


def compile_step(variant: Variant, layers: int = 2) -> Compiled:
    """Traces and compiles one step. Raises the error of the compiler, e.g. too little memory."""
    tree = load_config("small")
    tree.data.update(batch_size=variant.rows, sequence_length=variant.length)
    tree.model.update(dtype="bfloat16", scan="on" if variant.scan else "off")
    if variant in LONG.values():
        tree.model.update(
            attention=variant.attention, attention_dropout=0.0, max_positions=variant.length
        )
    tree.model.discriminator.layers = tree.model.generator.layers = layers
    tree.mesh.update(data=variant.data, fsdp=variant.fsdp, tensor=variant.tensor)
    ready = synthetic.prepare(config_lib.parse(tree), VOCAB, _devices(variant))
    lanes = {
        "ids": jax.ShapeDtypeStruct((variant.rows, variant.length), jnp.uint16),
        "marks": jax.ShapeDtypeStruct((variant.rows, variant.length), jnp.uint8),
    }
    lowered = ready.update.lower(ready.plan.shapes, lanes)
    # Without a chip no kernel can be timed, so none is chosen by its time.
    options = {"xla_gpu_autotune_level": 0} if variant.chip == "cuda" else None
    begin = time.process_time()
    with _without_cache():
        compiled = lowered.compile(compiler_options=options)
    seconds = time.process_time() - begin
    leaves = len(jax.tree.leaves(ready.plan.shapes))
    return Compiled(compiled.as_text(), compiled.memory_analysis(), seconds, leaves)


def counted(compiled: Compiled) -> dict[str, int]:
    """{kind of collective: how many of them}."""
    return dict(collections.Counter(c.kind for c in hlo.collectives(compiled.text)))


def _devices(variant):
    if variant.chip == "cuda":
        return topologies.get_topology_desc(
            "h100",
            "cuda",
            target_config=H100,
            topology=f"1x1x{variant.data * variant.fsdp}",
        ).devices
    # libtpu otherwise looks for a machine with TPUs, and lets one process in at a time.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    return topologies.get_topology_desc("v5e:2x2", "tpu").devices


@contextlib.contextmanager
def _without_cache():
    """jax writes a program for an absent chip to its cache, but cannot read it back there."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # jax decides once a process whether it uses the cache
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def _main(layers: int, folder: str | None) -> None:
    print("| step | compile, CPU s | kernels | GB moved | peak MiB a chip | collectives (MB) |")
    print("| --- | --- | --- | --- | --- | --- |")
    for variant in (*TPU.values(), *LONG.values(), *CUDA.values()):
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
        for c in hlo.collectives(made.text):
            exchanged[c.kind] = exchanged.get(c.kind, 0) + c.bytes / 1e6
        listed = ", ".join(
            f"{number} {kind} ({exchanged[kind]:.1f})" for kind, number in counted(made).items()
        )
        peak = made.memory.peak_memory_in_bytes / 2**20
        print(f"| {variant} | {made.seconds:.0f} | {kernels} | {moved} | {peak:.0f} | {listed} |")


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # else jax asks the wheels for their chips
    sys.path.insert(0, str(ROOT))  # for configs/
    _main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2] if len(sys.argv) > 2 else None)
