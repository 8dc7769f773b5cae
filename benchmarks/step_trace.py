# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of a training step go on the device: its kernels, and the gaps between them.

    python benchmarks/step_trace.py --config=small --batch_size=128 --length=128 --dtype=bfloat16

    configuration -> compiled step -> a trace of some steps -> kernels by kind, busy and idle time

A device is busy while at least one kernel runs on it; what is left of a step is time in which it
waits, mostly for the next launch. Kinds are names without their numbers: input_reduce_fusion.575
and input_reduce_fusion.97 are one. Prints a table, or with --json one object, and leaves the trace
in --out, for XProf or Perfetto.

While a trace runs, XLA may launch the kernels of a GPU one by one, and not in graphs as otherwise
(its option xla_enable_command_buffers_during_profiling; an H200 kept its graphs with jax 0.11.2).
The seconds of the kernels are those of a run, the gaps between them need not be, so the step is
timed without a trace, too. On a CPU, whose kernels run on several threads, XLA's operations are
counted, which shows that the script works.
"""

import argparse
import collections
import dataclasses
import importlib
import json
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence

import jax

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from electra_jax import config as config_lib  # noqa: E402 - runs from a checkout
from electra_jax.speed import synthetic  # noqa: E402 - as above

KINDS = 25  # of kernels that a table shows
_NUMBER = re.compile(r"([._]\d+)+$|\.\d+(?=\.)")  # of an instruction: add_12, fusion.3.clone.1


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One launch: seconds on the clock of the trace."""

    name: str
    begin: float
    end: float

    @property
    def kind(self) -> str:
        """Its name without numbers."""
        return _NUMBER.sub("", self.name)


def traced(config: config_lib.Config, vocab_size: int, steps: int, folder: pathlib.Path) -> float:
    """Writes a trace of some steps into a folder; returns the seconds of a step without a trace."""
    rehearsed = synthetic.prepare(config, vocab_size)
    state, lanes = rehearsed.state(), rehearsed.lanes()

    def train(state, steps):
        for _ in range(steps):
            state, _ = rehearsed.update(state, lanes)
        return jax.block_until_ready(state)

    state = train(state, 2)
    begun = time.perf_counter()
    state = train(state, steps)
    seconds = (time.perf_counter() - begun) / steps
    with jax.profiler.trace(str(folder)):
        train(state, steps)
    return seconds


def kernels(folder: pathlib.Path) -> list[Kernel]:
    """All launches of the first device in the newest trace of a folder, in their order.

    Raises ValueError if there are none.
    """
    newest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    planes = sorted(
        jax.profiler.ProfileData.from_file(str(newest)).planes, key=lambda plane: plane.name
    )
    devices = [
        [
            event
            for line in plane.lines
            if line.name.startswith("Stream") or line.name == "XLA Ops"  # a GPU's | a TPU's
            for event in line.events
        ]
        for plane in planes
        if plane.name.startswith("/device:")
    ]
    events = next(filter(None, devices), [])
    if not devices:
        events = [
            event
            for plane in planes
            for line in plane.lines
            for event in line.events
            if "hlo_op" in dict(event.stats)
        ]
    if not events:
        raise ValueError(f"{newest} has no kernels: {', '.join(plane.name for plane in planes)}")
    found = [
        Kernel(event.name, event.start_ns / 1e9, (event.start_ns + event.duration_ns) / 1e9)
        for event in events
    ]
    return sorted(found, key=lambda kernel: kernel.begin)


def busy(found: Iterable[Kernel]) -> float:
    """Seconds in which at least one of the kernels runs; they are in the order of their begin."""
    total, until = 0.0, float("-inf")
    for kernel in found:
        total += max(0.0, kernel.end - max(until, kernel.begin))
        until = max(until, kernel.end)
    return total


def summary(found: Sequence[Kernel], steps: int) -> dict:
    """What a step takes, in seconds and launches, of kernels that ran in so many steps.

    `kinds` has [name, launches, seconds] of a step, the longest first. They add up to more than
    `busy_seconds` where kernels run side by side.
    """
    span = max(kernel.end for kernel in found) - found[0].begin
    launches, seconds = collections.Counter(), collections.Counter()
    for kernel in found:
        launches[kernel.kind] += 1
        seconds[kernel.kind] += kernel.end - kernel.begin
    return {
        "span_seconds": span / steps,
        "busy_seconds": busy(found) / steps,
        "launches": len(found) / steps,
        "kinds": [
            [kind, launches[kind] / steps, spent / steps] for kind, spent in seconds.most_common()
        ],
    }


def table(made: Mapping) -> str:
    """The lines that are printed."""
    lines = [
        f"a step takes {1e3 * made['span_seconds']:.3f} ms, in {1e3 * made['busy_seconds']:.3f} of"
        f" which a kernel runs; {made['launches']:,.0f} launches; without a trace it takes"
        f" {1e3 * made['step_seconds']:.3f} ms",
        f"{'ms':>8} {'launches':>9} {'us each':>8}  kind",
    ]
    for kind, launches, seconds in made["kinds"][:KINDS]:
        lines.append(
            f"{1e3 * seconds:8.3f} {launches:9,.1f} {1e6 * seconds / launches:8.1f}  {kind}"
        )
    return "\n".join(lines)


def main() -> None:
    """Traces the step of a configuration, and prints where its time goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="small", help="of electra_jax.configs")
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--steps", type=int, default=5, help="in the trace")
    parser.add_argument("--out", type=pathlib.Path, help="for the trace; it is not kept without")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    tree = importlib.import_module(f"electra_jax.configs.{given.config}").get_config()
    tree.data.update(batch_size=given.batch_size, sequence_length=given.length)
    tree.model.dtype = given.dtype
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or pathlib.Path(scratch)
        seconds = traced(config_lib.parse(tree), given.vocab_size, given.steps, folder)
        made = {"step_seconds": seconds} | summary(kernels(folder), given.steps)
    device = jax.devices()[0].device_kind
    print(json.dumps({"device": device, "trace": made}) if given.json else table(made))


if __name__ == "__main__":
    main()
