# SPDX-License-Identifier: Apache-2.0
"""The real training step, compiled for chips that are not there: pytest -m aot.

What compiles is a fact, and so are its collectives, kernels, bytes and memory; how long it takes
on a chip is not among them. Budgets hold what was measured with jax 0.10.2 and a little more;
`python -m tests.support.aot` prints the measured numbers.
"""

import functools

import pytest

from electra_jax.speed import exchanges, hlo
from support import aot

pytestmark = pytest.mark.aot

# On each mesh: the kinds of collectives there may be, how many of each at most, and MiB per chip.
EXCHANGES = {
    # One sum of the tables' gradient and nearly all else, and those in the loops, of kernels and of
    # norms.
    "data": ({"all-reduce": 8}, 185),
    # And the tables once, each layer's weights where they are used, forward and backward.
    "fsdp": ({"all-reduce": 11, "all-gather": 36}, 130),
    "data x fsdp": ({"all-reduce": 14, "all-gather": 36}, 153),
}
# Of the state, a chip holds this part at most: what `fsdp` splits, and a little that it does not.
STATE_PART = {"data": 1.0, "fsdp": 0.29, "data x fsdp": 0.52}

# For one step of 128 rows on an H100: kernels launched, GB that they read and write, MiB.
H100 = {
    "scanned": (760, 9.1, 645),
    "unrolled": (532, 7.2, 440),
}

# MiB per chip of the step with rows of 1,024 and splash; einsum takes 494.
SPLASH_MEBIBYTES = 445
# The same with rows of 384, dropout of probabilities and the fused kernel.
FUSED_MEBIBYTES = 110

TABLE_BYTES = 30592 * 128 * 4  # the token table, the largest parameter
# One program of each kind, for CI: `-m "aot and few"`.
FEW = ("data x fsdp", "two slices, four micro-batches", "scanned")


def each(argument, variants):
    """A test of each variant, some of which CI runs too."""
    marked = [
        pytest.param(name, marks=[pytest.mark.few] * (name in FEW), id=name) for name in variants
    ]
    return pytest.mark.parametrize(argument, marked)


meshes, layers = each("mesh", aot.TPU), each("layers", aot.CUDA)


@functools.cache
def step(chip, name):
    """Each step is compiled once for all tests."""
    if reason := aot.missing(chip):
        pytest.skip(reason)
    return aot.compile_step({"tpu": aot.TPU | aot.LONG | aot.SLICES, "cuda": aot.CUDA}[chip][name])


@meshes
def test_tpu_every_byte_of_the_state_is_donated(mesh):
    made = step("tpu", mesh)
    padded_rows = 8  # 7 rows per chip; a TPU lays rows out in eights
    lanes = padded_rows * aot.LENGTH * 3  # ids of two bytes, marks of one
    assert hlo.aliased(made.text) == made.leaves
    assert made.program.arguments - made.program.state == lanes


@pytest.mark.parametrize("mesh", aot.TPU)  # each is compared with another
def test_tpu_a_chip_holds_its_part_of_the_state_and_fits_the_budget(mesh):
    made, whole = step("tpu", mesh), step("tpu", "data")
    part = made.program.state / whole.program.state
    assert part <= STATE_PART[mesh]
    assert made.program.peak / 2**20 <= EXCHANGES[mesh][1]


@meshes
def test_tpu_only_the_expected_collectives_appear(mesh):
    allowed, found = EXCHANGES[mesh][0], aot.counted(step("tpu", mesh))
    assert set(found) == set(allowed)
    assert {kind: n for kind, n in found.items() if n > allowed[kind]} == {}


@meshes
def test_tpu_nothing_that_belongs_to_rows_is_gathered(mesh):
    """Neither scores [B, N, V] nor random bits nor hidden states: parameters only."""
    gathered = [c for c in exchanges.collectives(step("tpu", mesh).text) if c.kind == "all-gather"]
    of_rows = [
        f"{shape} {c.source}"
        for c in gathered
        for shape in c.shapes
        if any(n % aot.ROWS_A_CHIP == 0 for n in shape.dims)
    ]
    assert of_rows == []
    assert max([c.bytes for c in gathered], default=0) <= TABLE_BYTES


@each("slices", aot.SLICES)
def test_tpu_between_slices_go_the_gradients_and_nothing_else(slices):
    """No weights that fsdp or tensor split, no rows: sums, a chip's share of the parameters once.

    A slice first sums what its four chips have, so that each of them sends a quarter. The gradients
    of tables and norms are float32, all others bfloat16; those of micro-batches are added up in
    float32 on each chip, and leave the slice once.
    """
    made = step("tpu", slices)
    crossing = exchanges.crossing(made.text, 4)
    assert set(crossing) == {"all-reduce"}
    assert 0.7 < crossing["all-reduce"][1] / (made.parameters / 4) < 1.1


def test_tpu_splash_runs_on_the_heads_of_a_chip_and_holds_no_scores():
    """Forward, and backward for queries and for keys with values, in each of two scanned towers."""
    made, variant = step("tpu", "splash"), aot.LONG["splash"]
    kernels = [line for line in made.text.splitlines() if "tpu_custom_call" in line]
    assert len(kernels) == 6
    mine = f"[{aot.ROWS_A_CHIP},2,{variant.length},64]"  # of four heads; the generator has one
    assert sum(mine in line for line in kernels) == 3
    assert f"{variant.length},{variant.length}]" not in made.text
    assert hlo.aliased(made.text) == made.leaves
    assert set(aot.counted(made)) == {"all-gather", "all-reduce"}
    assert made.program.peak / 2**20 <= SPLASH_MEBIBYTES


def test_tpu_a_kernel_with_dropout_holds_no_scores_and_copies_no_queries():
    """Forward and backward, in each of two scanned towers; words of 8 bits a probability."""
    made, variant = step("tpu", "fused"), aot.LONG["fused"]
    kernels = [line for line in made.text.splitlines() if "tpu_custom_call" in line]
    assert len(kernels) == 4
    mine = f"bf16[{aot.ROWS_A_CHIP},{variant.length},128]"  # two heads of 64; the generator has one
    assert sum(mine in line for line in kernels) == 2
    words = f"u32[{aot.ROWS_A_CHIP},2,{variant.length // 4},{variant.length}]"
    assert sum(words in line for line in kernels) == 2
    assert f"{variant.length},{variant.length}]" not in made.text
    assert hlo.aliased(made.text) == made.leaves
    assert made.program.peak / 2**20 <= FUSED_MEBIBYTES


@layers
def test_h100_every_byte_of_the_state_is_donated(layers):
    made = step("cuda", layers)
    lanes = aot.CUDA[layers].rows * aot.LENGTH * 3
    assert hlo.aliased(made.text) == made.leaves
    assert made.program.arguments - made.program.state == lanes


@layers
def test_h100_kernels_bytes_and_memory_of_a_step_stay_under_their_budgets(layers):
    made, (kernels, gigabytes, mebibytes) = step("cuda", layers), H100[layers]
    assert hlo.launches(made.text) <= kernels
    assert hlo.bytes_moved(made.text) <= gigabytes * 1e9
    assert made.program.peak <= mebibytes * 2**20


@layers
def test_h100_attention_and_norms_are_kernels_and_scores_are_not_held(layers):
    """Forward and backward: one kernel of attention and two that end a branch."""
    made, variant = step("cuda", layers), aot.CUDA[layers]
    kernels = [line for line in made.text.splitlines() if "xla.gpu.triton" in line]
    assert len(kernels) == 2 * 2 * (1 + 2) * (1 if variant.scan else 2)
    pairs = f"[{variant.rows},4,{aot.LENGTH},{aot.LENGTH}]"
    assert "u8" + pairs in made.text  # the random numbers of the discriminator's four heads
    assert not any(dtype + pairs in made.text for dtype in ("f32", "bf16", "pred", "u32"))
