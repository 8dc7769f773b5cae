# SPDX-License-Identifier: Apache-2.0
"""Compiles the training step of a configuration for chips that this machine does not have.

    configuration, topology -> described devices -> the step of a run, traced over shapes
                            -> optimised program -> memory, operations, exchanges, floor of a step

The step is the one that a run takes (`speed.synthetic`); states are shapes and nothing is
allocated. A run with stages has a step for each row length and batch size: all are compiled, and
what is found is that of the stage that needs most memory. The compilers come in the wheels `libtpu`
and `jax-cuda*-plugin`, the extra `aot`. They write to standard error and may end the process, so
`compile_in_subprocess` compiles each step in a process of its own.
"""

import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import multiprocessing
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import ml_collections
from jax import numpy as jnp
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.host import environment_variables, extras
from electra_jax.speed import chips, exchanges, hlo, synthetic

# What the CUDA compiler asks about a GPU that is not there: H100 SXM. The H200 differs from it in
# its memory.
_GPU = """
gpu_device_info {{
  name: "{name}"
  cuda_compute_capability {{ major: 9 minor: 0 }}
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
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
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
"""
# libtpu otherwise looks for a machine with TPUs, and lets one process in at a time. The compiled
# programs are never run, so jax is restricted to the CPU.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_NEEDED = re.compile(r"[Uu]sed ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?)|\(([\d.]+[KMGT])\) exceeds")
_SIGNAL = re.compile(r"Raising signal (\d+)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled step, and what is known of it without running it. Bytes are of one chip."""

    text: str  # optimised HLO
    arguments: int  # bytes of state and rows
    state: int  # bytes of parameters, optimizer and the like: what the results take over
    peak: int  # most bytes in use at a time, the state included
    seconds: float  # to compile


@dataclasses.dataclass(frozen=True)
class StepOnChips:
    """What a compiled step needs on each chip, and how fast it can be at most."""

    state: int = 0  # bytes
    peak: int = 0  # bytes; what the compiler says it would need, if it does not fit
    flops: float = 0.0  # of a step, over all chips, in the honest convention
    # {kind of collective: (how many per step, bytes of their results on a chip)}.
    exchanged: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    # The same for those between slices, with the bytes that a chip sends to other slices.
    crossing: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    # Bytes that kernels read and write; None if the length of a loop is unknown.
    moved: int | None = None
    cycles: int | None = None  # that the compiler expects; None if it names none
    seconds: float = 0.0  # to compile
    problem: str = ""  # why it did not compile; "" if it did
    stage: stages.Stage | None = None  # whose step it is; None if the run has steps of one kind

    def fits(self, chip: chips.Chip) -> bool:
        """Whether a chip has this much memory."""
        return not self.problem and self.peak <= chip.memory


def missing(platform: str) -> str:
    """Returns why this machine cannot compile for 'tpu' or 'cuda'; '' if it can."""
    if platform == "tpu":
        there: Any = importlib.util.find_spec("libtpu")
    else:
        plugins = importlib.util.find_spec("jax_plugins")
        places = plugins.submodule_search_locations if plugins else None
        there = [found for place in places or () for found in pathlib.Path(place).glob("xla_cuda*")]
    if there:
        return ""
    where = "in an environment of its own, since jax then looks for that device in every command"
    return f"no compiler for {platform} here: {extras.command('aot')}, {where}"


def compile_in_subprocess(
    tree: ml_collections.ConfigDict, topology: chips.Topology, vocab_size: int
) -> StepOnChips:
    """Compiles the step of each stage in a subprocess, whose standard error is not shown.

    Returns what was found for the stage that needs most memory.

    Raises ValueError, one line, if the configuration does not suit the topology (such as a mesh or
    a batch that cannot be split), or if there is no compiler for these chips.
    """
    if reason := missing(topology.chip.platform):
        raise ValueError(reason)

    distinct = stages.distinct(config_lib.parse(ml_collections.ConfigDict(tree.to_dict())))
    found = [_compile_stage(tree, topology, vocab_size, stage) for stage in distinct]
    if len(distinct) == 1:
        return found[0]
    return neediest([dataclasses.replace(one, stage=stage) for one, stage in zip(found, distinct)])


def neediest(found: Sequence[StepOnChips]) -> StepOnChips:
    """Returns what decides whether a run fits: the stage that needs most memory.

    A stage that did not compile counts as one that needs more: most of all if the compiler does not
    say how much.
    """

    def need(one):
        failed = bool(one.problem)
        return failed and not one.peak, failed, one.peak

    return max(found, key=need)


def _compile_stage(
    tree: ml_collections.ConfigDict, topology: chips.Topology, vocab_size: int, stage: stages.Stage
) -> StepOnChips:
    """Compiles the step of one stage in a subprocess."""
    # The environment is read when jax is imported, in the new process.
    with (
        environment_variables.set_during(ENVIRONMENT),
        tempfile.NamedTemporaryFile(mode="r") as errors,
    ):
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            future = pool.submit(
                _in_subprocess, tree.to_dict(), topology, vocab_size, stage, errors.name
            )
            try:
                return future.result()
            except concurrent.futures.BrokenExecutor:
                return StepOnChips(problem=f"the compiler ended: {_last_words(errors.read())}")


def compile_step(
    config: config_lib.Config,
    topology: chips.Topology,
    vocab_size: int,
    stage: stages.Stage | None = None,
) -> tuple[Program, synthetic.Rehearsal]:
    """Traces and compiles the step of a stage; that of the first stage if none is given.

    Raises the error of the compiler, for example that memory is too small.
    """
    if topology.chip.platform == "cuda" and not config.mesh.slices:
        # GPUs that are only described do not say to which machine they belong.
        mesh = dataclasses.replace(config.mesh, slices=topology.slices)
        config = dataclasses.replace(config, mesh=mesh)
    ready = synthetic.prepare(config, vocab_size, devices(topology))
    stage, shapes = stage or stages.of(config)[0], ready.plan.state_shapes
    ids = jnp.uint16 if vocab_size <= 2**16 else jnp.uint32
    lanes = {
        "ids": jax.ShapeDtypeStruct((stage.batch_size, stage.sequence_length), ids),
        "marks": jax.ShapeDtypeStruct((stage.batch_size, stage.sequence_length), jnp.uint8),
    }
    with _kernels_for(topology.chip):
        lowered = ready.plan.compile_update(stage.sequence_length).lower(shapes, lanes)

    # Without a GPU no kernel can be timed, so none is chosen by its time.
    cuda = topology.chip.platform == "cuda"
    options = {"xla_gpu_autotune_level": 0} if cuda else None
    begin = time.monotonic()
    with without_cache():
        compiled = lowered.compile(compiler_options=options)

    memory, seconds = compiled.memory_analysis(), time.monotonic() - begin
    program = Program(
        compiled.as_text(),
        memory.argument_size_in_bytes,
        memory.alias_size_in_bytes,
        memory.peak_memory_in_bytes,
        seconds,
    )
    return program, ready


def devices(topology: chips.Topology) -> list[jax.Device]:
    """Returns descriptions of the chips, from which a mesh can be made to compile a step for."""
    chip = topology.chip
    if chip.platform == "cuda":
        about = _GPU.format(name=chip.name, bandwidth=int(chip.bandwidth), memory=chip.memory)
        described = topologies.get_topology_desc(
            chip.name,
            "cuda",
            target_config=about,
            topology=f"{topology.slices}x1x{topology.chips_per_slice}",
        )
        return list(described.devices)

    more: dict[str, Any] = {}
    if topology.slices > 1:
        more["num_slices"] = topology.slices
    if chip.name == "v4":
        more["chip_config_name"] = "megacore"  # one device per chip
    if topology.chips_per_slice == 1:
        more["chips_per_host_bounds"] = [1] * 3
    return list(topologies.get_topology_desc(topology.slice, "tpu", **more).devices)


def _kernels_for(chip: chips.Chip) -> contextlib.AbstractContextManager:
    """Tells Pallas for which GPU its kernels are; otherwise it asks the devices of this machine."""
    if chip.platform != "cuda":
        return contextlib.nullcontext()
    described = jax.sharding.AbstractDevice(f"NVIDIA {chip.name.upper()}", None, "cuda")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=described)
    return jax.sharding.use_abstract_mesh(mesh)


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """jax writes a program for an absent chip to its cache, but cannot read it back there."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # jax decides once per process whether it uses the cache
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def _in_subprocess(
    tree: dict, topology: chips.Topology, vocab_size: int, stage: stages.Stage, errors: str
) -> StepOnChips:
    """Compiles a step and reads the program; this runs in the process of the compiler."""
    with open(errors, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)

    config = config_lib.parse(ml_collections.ConfigDict(tree))
    try:
        program, ready = compile_step(config, topology, vocab_size, stage)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            return StepOnChips(problem=str(error).splitlines()[0])
        return StepOnChips(peak=_needed(str(error)), problem="needs more memory than a chip has")

    length = stage.sequence_length
    flops = ready.plan.objectives[length].flops(length).train * stage.batch_size
    return StepOnChips(
        program.state,
        program.peak,
        flops,
        exchanges.exchanged(program.text),
        exchanges.crossing(program.text, topology.chips_per_slice),
        _moved(program.text),
        _cycles(program.text),
        program.seconds,
    )


def _last_words(said: str) -> str:
    """What a compiler wrote before it ended its process: the signal it met, or its last line."""
    met = _SIGNAL.search(said)
    if met:
        return f"it met signal {met[1]}, an error of its own"
    return said.strip().splitlines()[-1] if said.strip() else "nothing said"


def _moved(text: str) -> int | None:
    """Bytes that the kernels of a step read and write; None if the length of a loop is unknown."""
    try:
        return hlo.bytes_moved(text)
    except ValueError:
        return None


def _cycles(text: str) -> int | None:
    """Cycles that the compiler expects; None if it names none, or a loop's length is unknown."""
    try:
        return hlo.cycles_expected(text)
    except ValueError:
        return None


def _needed(error: str) -> int:
    """The bytes that the compiler says the program would need; 0 if it does not say."""
    found = _NEEDED.search(error)
    if found is None:
        return 0
    number = found[1] or found[3]
    unit = number[-1] if number[-1] in _UNITS else ""
    return int(float(number.removesuffix(unit)) * _UNITS[unit])
