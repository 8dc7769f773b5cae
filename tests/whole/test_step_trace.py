# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes: a made-up timeline, checked by eye, and a real trace."""

import jax
import pytest
from jax import numpy as jnp

from benchmarks import gpu_findings, step_trace

#      seconds  0   1   2   3   4   5   6   7
# one stream    add.1===        add.12==  mul
# another           gemm.3==
TIMELINE = [
    step_trace.Kernel("add.1", 0.0, 2.0),
    step_trace.Kernel("gemm.3", 1.0, 3.0),
    step_trace.Kernel("add.12", 4.0, 6.0),
    step_trace.Kernel("mul", 6.0, 7.0),
]


def test_a_device_is_busy_while_any_kernel_runs():
    assert step_trace.busy(TIMELINE) == 6
    long, within = step_trace.Kernel("long", 0.0, 5.0), step_trace.Kernel("within", 1.0, 2.0)
    assert step_trace.busy([long, within]) == 5
    assert step_trace.busy([long, within, step_trace.Kernel("after", 3.0, 6.0)]) == 6


@pytest.mark.parametrize(
    "name, kind",
    [
        ("add.12", "add"),
        ("input_reduce_fusion_575", "input_reduce_fusion"),
        ("gemm_fusion_dot_17_0", "gemm_fusion_dot"),
        ("fusion.3.clone.1", "fusion.clone"),
        ("sm90_gemm_128x64", "sm90_gemm_128x64"),
    ],
)
def test_a_kind_is_a_name_without_numbers(name, kind):
    assert step_trace.Kernel(name, 0, 0).kind == kind


def test_figures_are_those_of_a_step():
    assert step_trace.summary(TIMELINE, steps=2) == {
        "span_seconds": 3.5, "busy_seconds": 3.0, "launches": 2.0,
        "kinds": [["add", 1.0, 2.0], ["gemm", 0.5, 1.0], ["mul", 0.5, 0.5]],
    }  # fmt: skip


def test_the_kind_that_takes_longest_is_the_first():
    short, long = step_trace.Kernel("short", 0.0, 1.0), step_trace.Kernel("long", 1.0, 4.0)
    found = step_trace.summary([short, long], steps=1)
    assert found["kinds"] == [["long", 1.0, 3.0], ["short", 1.0, 1.0]]


def test_the_table_begins_with_what_takes_longest():
    made = {"step_seconds": 2.5} | step_trace.summary(TIMELINE, steps=2)
    lines = step_trace.table(made).splitlines()
    assert lines[0] == (
        "a step takes 3500.000 ms, in 3000.000 of which a kernel runs; 2 launches; without a trace"
        " it takes 2500.000 ms"
    )
    assert [line.split() for line in lines[2:]] == [
        ["2000.000", "1.0", "2000000.0", "add"],
        ["1000.000", "0.5", "2000000.0", "gemm"],
        ["500.000", "0.5", "1000000.0", "mul"],
    ]


def test_a_real_trace_has_the_operations_that_ran(tmp_path):
    @jax.jit
    def sines(x):
        return jnp.sort(jnp.sin(x) @ x)

    x = jnp.ones((256, 256))
    sines(x).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        sines(x).block_until_ready()

    found = step_trace.kernels(tmp_path)
    assert [kernel.begin for kernel in found] == sorted(kernel.begin for kernel in found)
    assert any("sort" in kernel.name for kernel in found)
    assert all(0 < kernel.end - kernel.begin < 60 for kernel in found)


def test_a_trace_without_kernels_is_an_error(tmp_path):
    with jax.profiler.trace(str(tmp_path)):
        pass
    with pytest.raises(ValueError, match="has no kernels"):
        step_trace.kernels(tmp_path)


def test_a_line_of_the_checks_says_how_busy_the_device_is():
    made = {"step_seconds": 2.5} | step_trace.summary(TIMELINE, steps=2)
    record = {"exit_code": 0, "seconds": 60, "trace": made}
    assert gpu_findings.line("small_128_trace", record).endswith(
        "ok, 2500.00 ms per step, with a trace 3500.00, in 3000.00 of which a kernel runs, 2"
        " launches, add 2000.00 ms, gemm 1000.00 ms, mul 500.00 ms"
    )
