# SPDX-License-Identifier: Apache-2.0
"""Whether a configuration fits a topology, and how fast it can be.

    compiled step -> memory that it needs, memory that a chip has -> verdict
    what `remedies` tried -> a line each

The floor of a step is what the datasheet allows: the longest of computing all products at the peak
rate, exchanging all bytes over all links, and sending those for other slices over the network of
the data centre. A real step takes longer. Operations are in the honest convention
(`model/accounting.py`): what is recomputed under `model.remat` is not counted. Of a run with stages
all figures are of the step that needs most memory, and its stage is named.
"""

import dataclasses

import ml_collections

from electra_jax.config import stages
from electra_jax.host import console_table
from electra_jax.speed import ahead_of_time, chips, remedies

AROUND_A_RING = {"all-reduce": 2}  # how often its bytes pass a link; of all other kinds once


def floor(found: ahead_of_time.StepOnChips, topology: chips.Topology) -> dict[str, float]:
    """Returns the least seconds of a step under each limit alone, by the name of the limit."""
    chip = topology.chip
    exchanged = sum(
        AROUND_A_RING.get(kind, 1) * size for kind, (_, size) in found.exchanged.items()
    )
    limits = {
        "products": found.flops / topology.chips / chip.peak,
        "exchange": exchanged / chip.links,
    }
    if topology.slices > 1 and chip.network is not None:
        limits["network"] = (
            sum(
                to_other_slices(kind, topology.slices) * size
                for kind, (_, size) in found.crossing.items()
            )
            / chip.network
        )
    return limits


def to_other_slices(kind: str, slices: int) -> float:
    """Returns how often its bytes leave a chip for other slices.

    Those of an all-reduce do so twice, except the part that the slice itself adds up.
    """
    return 2 * (slices - 1) / slices if kind == "all-reduce" else 1


def table(
    tree: ml_collections.ConfigDict, topology: chips.Topology, made: list[remedies.Trial]
) -> list[str]:
    """Returns what was found as aligned lines, the verdict last."""
    chip, found = topology.chip, made[0].found
    described = f"{topology}, {topology.chips} chips of {_gib(chip.memory)} GiB"
    if topology.slices > 1:
        described += f" in {topology.slices} slices"
    rows = [("topology", described)]
    if not found.problem:
        rows += _of_program(tree, topology, found)

    lines = console_table.lines(rows)
    lines.append(verdict(made[0], topology))
    lines += [f"  {trial}: {_tried(trial, topology)}" for trial in made[1:]]
    return lines


def verdict(trial: remedies.Trial, topology: chips.Topology) -> str:
    """Returns one line: whether it fits, by how much, and of several stages which one decides."""
    found, has = trial.found, topology.chip.memory
    most = f"{_in_stage(found)}, which needs most" if found.stage else ""
    if found.fits(topology.chip):
        return f"fits: {_gib(has - found.peak)} GiB of {_gib(has)} GiB per chip are left{most}"
    if found.peak > has:
        return f"does not fit: {_gib(found.peak - has)} GiB per chip too much{most}"
    return f"does not compile{_in_stage(found)}: {found.problem}"


def as_json(
    tree: ml_collections.ConfigDict, topology: chips.Topology, made: list[remedies.Trial]
) -> dict[str, object]:
    """Returns everything as plain numbers; bytes and seconds."""
    first = made[0].found

    def derived(found):
        if found.problem:
            return {
                "peak_less_state": None,
                "floor_seconds": {},
                "expected_seconds": None,
                "tokens_per_second_at_most": None,
            }
        return {
            "peak_less_state": found.peak - found.state,
            "floor_seconds": floor(found, topology),
            "expected_seconds": _expected(found, topology),
            "tokens_per_second_at_most": _speed(tree, found, topology),
        }

    return {
        "topology": str(topology),
        "chips": topology.chips,
        "slices": topology.slices,
        "memory_bytes": topology.chip.memory,
        "fits": first.fits(topology.chip),
        "stage": first.stage and dataclasses.asdict(first.stage),
        **derived(first),
        "trials": [
            {"changes": trial.changes, **dataclasses.asdict(trial.found), **derived(trial.found)}
            for trial in made
        ],
    }


def _of_program(tree, topology, found):
    """The rows about a step that compiled."""
    (step_rows, length), limits = _size(tree, found), floor(found, topology)
    most = ", the stage that needs most memory" if found.stage else ""
    slowest = max(limits, key=lambda name: limits[name])
    rows = [
        ("rows per step", f"{step_rows:,} of {length} tokens{most}"),
        ("state per chip", f"{_gib(found.state)} GiB"),
        ("peak memory per chip", f"{_gib(found.peak)} GiB"),
        ("peak minus state", f"{_gib(found.peak - found.state)} GiB"),
        ("FLOPs per step", f"{found.flops:.3g} (3 x forward matrix products)"),
    ]
    for kind, (count, moved) in sorted(found.exchanged.items()):
        rows.append((kind, f"{count} per step, {moved / 2**20:,.1f} MiB per chip"))
    for kind, (count, moved) in sorted(found.crossing.items()):
        rows.append((f"{kind} across", f"{count} per step, {moved / 2**20:,.1f} MiB per chip"))
    if found.moved is not None:
        rows.append(("read and written", f"{found.moved / 1e9:,.2f} GB per chip, on chip or off"))
    if expected := _expected(found, topology):
        words = f"{1e3 * expected:,.0f} ms per step, by its own cost model; no chip has measured it"
        rows.append(("the compiler expects", words))
    rows += [
        (
            "a step takes at least",
            f"{1e3 * limits[slowest]:,.2f} ms ({slowest}; "
            + ", ".join(f"{name} {1e3 * limits[name]:,.2f}" for name in limits)
            + ")",
        ),
        ("so at most", f"{_speed(tree, found, topology):,.0f} tokens/s"),
        ("compiled in", f"{found.seconds:,.0f} s"),
    ]
    return rows


def _expected(found, topology):
    """Seconds of a step by the cycles that the compiler expects; None if it names none."""
    clock = topology.chip.clock
    return found.cycles / clock if found.cycles is not None and clock else None


def _speed(tree, found, topology):
    """The most tokens per second that the datasheet allows, padding counted."""
    rows, length = _size(tree, found)
    return rows * length / max(floor(found, topology).values())


def _size(tree, found):
    """(rows, tokens per row) of the step that was compiled."""
    stage = found.stage or tree.data
    return stage.batch_size, stage.sequence_length


def _in_stage(found):
    """Words that name the stage; '' if there is only one."""
    return f" in the stage of {stages.describe(found.stage)}" if found.stage else ""


def _tried(trial, topology):
    found = trial.found
    if found.fits(topology.chip):
        return f"fits, {_gib(found.peak)} GiB per chip{_in_stage(found)}"
    if found.peak:
        return f"does not fit, {_gib(found.peak)} GiB per chip{_in_stage(found)}"
    return found.problem


def _gib(size):
    return f"{size / 2**30:,.2f}"
