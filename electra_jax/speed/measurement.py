# SPDX-License-Identifier: Apache-2.0
"""Measures how fast a configuration trains on this machine, on made-up rows.

`measure` compiles the step of a run, times it, its parts and the data pipeline, and returns plain
numbers; `table` shows them. Of a run with stages the step is that of the first, and the table says
so.
"""

import dataclasses
import functools
import resource
import sys
import tempfile
import time
from collections.abc import Sequence

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.data import pipeline
from electra_jax.host import console_table, timing
from electra_jax.model import accounting
from electra_jax.speed import step_parts, synthetic
from electra_jax.training import feed

_FASTER = 1.1  # times as fast: less may be chance
_PIPELINE_ROWS = 65_536  # made-up rows on disk, read in the order of a run


def measure(config: config_lib.Config, vocab_size: int, steps: int, with_parts: bool) -> dict:
    """Returns all that the table shows, as plain numbers: seconds, bytes, FLOPs.

    Args:
      config: the configuration to measure.
      vocab_size: the size of the made-up vocabulary.
      steps: how many steps are timed.
      with_parts: also time the parts of the step, if there is one device and the objective is the
        paper's.
    """
    rehearsed = synthetic.prepare(config, vocab_size)
    lanes = [rehearsed.lanes(number) for number in range(4)]
    found = _settings(config, rehearsed, vocab_size) | _step(config, rehearsed, lanes, steps)
    found |= _pipeline(config, rehearsed, found["step_seconds"])

    # The parts need the memory of the state, which is gone by now. `step_parts` knows only those of
    # the paper's objective.
    published = config.objective.name == "replaced_token_detection"
    if with_parts and published and jax.device_count() == 1:
        found["parts"] = {
            name: timing.calls(_compiled(function, arguments), steps).median
            for name, (function, arguments) in step_parts.programs(rehearsed).items()
        }

    return found


def table(found: dict) -> str:
    """Returns the table of what `measure` found."""
    f = found
    fastest, slowest = f["step_seconds_fastest"], f["step_seconds_slowest"]
    lines = [
        ("device", f"{f['devices']} x {f['device']}, {f['dtype']}, jax {f['jax']}"),
        (
            "step",
            f"{f['config']}, {f['batch_size']} rows of {f['sequence_length']}, vocabulary"
            f" {f['vocab_size']:,}, layers {f['layers']}",
        ),
        *([("stage", _first_of(f["later_stages"]))] if f["later_stages"] else []),
        (
            "tokens/s",
            f"{f['tokens_per_second']:,.0f}, padding not counted ({f['padding_rate']:.1%} of the"
            " positions in these made-up rows; a row with padding takes as long as one without)",
        ),
        ("step seconds", f"{f['step_seconds']:.4f} ({fastest:.4f} to {slowest:.4f})"),
        ("FLOP/s", f"{f['flops_per_second']:.3g} (3 x forward matrix products)"),
        ("MFU", f"{f['mfu']:.1%} of the datasheet" if f["mfu"] else "no datasheet figure known"),
        (
            "of product rate",
            f"{f['share_of_product_rate']:.1%} of {f['product_flops_per_second']:.3g} FLOP/s,"
            " measured here with a large matrix product",
        ),
        *_other_dtypes(f),
        ("memory", f"{f['step_bytes'] / 2**20:,.0f} MiB per step and device, weights included"),
        ("peak memory", f"{f['peak_bytes'] / 2**20:,.0f} MiB"),
        (
            "compiling",
            f"{f['trace_seconds']:.1f} s tracing, {f['compile_seconds']:.1f} s compiling",
        ),
        ("random bits", f"{f['random_bits_per_step']:,} per step"),
        (
            "data pipeline",
            f"{f['pipeline_rows_per_second']:,.0f} rows/s alone,"
            f" {f['pipeline_headroom']:,.0f} x what the step takes",
        ),
    ]

    if "parts" in f:
        lines += _part_lines(f["parts"], f["step_seconds"])
    return "\n".join(console_table.lines(lines))


def _part_lines(parts, step_seconds):
    """A line for each part of the step that was timed alone, then one for the rest of the step."""
    for name, seconds in parts.items():
        share = seconds / step_seconds
        yield name, f"{share:6.1%} of the step, {seconds * 1e3:,.1f} ms"

    # The bits of dropout are also drawn within the networks.
    timed = sum(seconds for name, seconds in parts.items() if name != "dropout bits")
    yield "rest", f"{1 - timed / step_seconds:6.1%} (below 0: parts that overlap within the step)"


def _other_dtypes(found):
    """A line for each dtype in which the product was measured beside the configuration's own."""
    own = found["product_flops_per_second"]
    for dtype, rate in found["product_flops_per_second_in"].items():
        if dtype != found["dtype"]:
            trial = f"; try --config.model.dtype={dtype}" if rate > _FASTER * own else ""
            yield f"in {dtype}", f"{rate:.3g} FLOP/s, {rate / own:.2f} x that product{trial}"


def _first_of(later):
    """Says that only the first stage was timed; `later` has the dicts of the others."""
    others = ", then ".join(stages.describe(stages.Stage(**stage)) for stage in later)
    return f"the first of {1 + len(later)}; not timed: {others}"


def _settings(config, rehearsed, vocab_size):
    """Returns what was measured, and on what."""
    shape = rehearsed.plan.objective.networks
    return {
        "config": config.name,
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "jax": jax.__version__,
        "dtype": shape.dtype,
        "layers": "scanned" if shape.discriminator.scan else "unrolled",
        "batch_size": config.data.batch_size,
        "sequence_length": config.data.sequence_length,
        "later_stages": [dataclasses.asdict(stage) for stage in stages.of(config)[1:]],
        "vocab_size": vocab_size,
    }


def _step(config, rehearsed, lanes, steps):
    """Returns speed, memory and compilation of the step; the state is freed when it returns."""
    data, objective, device = config.data, rehearsed.plan.objective, jax.local_devices()[0]
    state = rehearsed.state()

    # Tracing and compiling are called one by one, so that each can be timed.
    begun = time.perf_counter()
    lowered = rehearsed.update.lower(state, lanes[0])
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    seconds = _timed_steps(compiled, state, lanes, steps)

    # Padding is not counted as tokens.
    pad_id = rehearsed.vocabulary.pad_id
    padding = float(np.mean([np.mean(lane["ids"] == pad_id) for lane in lanes]))
    flops = objective.flops(data.sequence_length).train * data.batch_size
    rate, peak = flops / seconds.median, accounting.peak(device.device_kind)
    product_rates = {name: _product_rate(name) for name in _dtypes(objective.networks.dtype)}
    product_rate = product_rates[objective.networks.dtype]
    memory = compiled.memory_analysis()
    program = jax.make_jaxpr(rehearsed.update)(rehearsed.plan.state_shapes, lanes[0])

    places = data.batch_size * data.sequence_length
    return {
        "tokens_per_second": places * (1 - padding) / seconds.median,
        "padding_rate": padding,
        "step_seconds": seconds.median,
        "step_seconds_fastest": seconds.spread[0],
        "step_seconds_slowest": seconds.spread[1],
        "flops_per_step": flops,
        "flops_per_second": rate,
        "mfu": rate / (peak * jax.device_count()) if peak else None,
        "product_flops_per_second": product_rate,
        "product_flops_per_second_in": product_rates,
        "share_of_product_rate": rate / (product_rate * jax.device_count()),
        "step_bytes": memory.temp_size_in_bytes + memory.argument_size_in_bytes,
        "peak_bytes": _peak_bytes(device),
        "trace_seconds": traced - begun,
        "compile_seconds": done - traced,
        "random_bits_per_step": accounting.random_bits(program),
    }


def _timed_steps(compiled, state, lanes, steps):
    """Returns the times of so many steps, over the batches in turn."""
    # The state is donated: each call needs the state that the call before it returned.
    held = [state, 0]

    def step():
        held[0], measured = compiled(held[0], lanes[held[1] % len(lanes)])
        held[1] += 1
        return held[0], measured

    return timing.calls(step, steps, warm_up=2)


def _compiled(function, arguments):
    """Returns a function without arguments that runs the compiled `function` on its arguments."""
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: program(*arguments)


def _dtypes(own: str) -> Sequence[str]:
    """Returns the dtypes to measure the product in: which is faster depends on the CPU."""
    return ("bfloat16", "float32") if jax.default_backend() == "cpu" else (own,)


def _product_rate(dtype: str) -> float:
    """Returns the FLOP/s of one device in a product of large random matrices of this dtype."""
    size = 2048 if jax.default_backend() == "cpu" else 8192
    x = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
    # Float32 results: with others, CPUs do not use their units for bfloat16 (docs/LOG.md).
    product = jax.jit(functools.partial(jnp.dot, preferred_element_type=jnp.float32))
    return 2 * size**3 / timing.calls(lambda: product(x, x), 5, warm_up=2).spread[0]


def _peak_bytes(device: jax.Device) -> int:
    """Returns the most bytes ever in use: as the device counts them, or of the process on a CPU."""
    stats = device.memory_stats() or {}
    # macOS counts in bytes, Linux in KiB.
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024
    process_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * bytes_per_unit
    return stats.get("peak_bytes_in_use", process_bytes)


def _pipeline(config, rehearsed, step_seconds):
    """Returns how many rows per second go from the disk to the devices without any training."""
    data = config.data
    with tempfile.TemporaryDirectory() as folder:
        prepared = synthetic.write_records(
            rehearsed.vocabulary, _PIPELINE_ROWS, data.sequence_length, folder
        )
        order = pipeline.Order(prepared, config.seed)
        fed = feed.Feed(order, rehearsed.mesh, 0, data.batch_size, data.sequence_length)
        with fed:
            batches = max(4, _PIPELINE_ROWS // 2 // data.batch_size)
            seconds = timing.calls(lambda: next(fed), batches, warm_up=4)

    rows = data.batch_size / float(np.mean(seconds.each))
    return {
        "pipeline_rows_per_second": rows,
        "pipeline_headroom": rows * step_seconds / data.batch_size,
    }
