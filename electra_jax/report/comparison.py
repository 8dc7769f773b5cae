# SPDX-License-Identifier: Apache-2.0
"""Several runs side by side: their settings, their results, and whether a difference is just luck.

    ComparedRuns  ->  groups of runs that differ in nothing but their seed
                  ->  mean +- standard error of each final metric, and its distance from that of
                      the first group

The standard error is that of the mean over seeds, s / sqrt(n). A distance is called resolved if it
is at least two standard errors, those of both groups together. One seed gives no standard error.
Nothing is shown here: `comparison_table.py` is for the console, `comparison_page.py` for a browser.
"""

import collections
import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.report import (
    baselines,
    compared_run,
    comparison_notes,
    means,
    metric_values,
    style,
)

# Settings that do not change what is learnt. Runs that differ in them stay in one group.
NEUTRAL = ("name", "data.dir", "data.workers", "checkpoint.", "logging.")

# The final metrics in the order in which they are shown, and whether a higher value is better.
_HIGHER, _LOWER, _NEITHER = True, False, None
METRICS = {
    "gen_masked_loss": _LOWER,
    "gen_masked_accuracy": _HIGHER,
    "mlm_masked_loss": _LOWER,
    "mlm_masked_accuracy": _HIGHER,
    "disc_auc_unigram": _HIGHER,
    "disc_auc": _HIGHER,
    "disc_recall_at_2": _HIGHER,
    "disc_loss": _LOWER,
    "disc_accuracy": _HIGHER,
    "disc_f1": _HIGHER,
    "disc_precision": _HIGHER,
    "disc_recall": _HIGHER,
    "selection_loss": _LOWER,
    "selection_accuracy": _HIGHER,
    "replaced_rate": _NEITHER,
    "loss": _NEITHER,  # its weights are settings
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one configuration."""

    letter: str
    label: str  # the settings that are its own
    runs: Sequence[compared_run.ComparedRun]

    @property
    def counted(self) -> list[compared_run.ComparedRun]:
        """The runs without copies, which have the seed and the metrics of a run before them."""
        found: dict[str, compared_run.ComparedRun] = {}
        for run in self.runs:
            found.setdefault(repr((run.seed, run.result)), run)
        return list(found.values())

    @property
    def title(self) -> str:
        """`B  disc_weight 50, 3 seeds`."""
        counted, all_runs = len(self.counted), len(self.runs)
        seeds = len({run.seed for run in self.runs})

        words = [self.label]
        if counted > 1:
            kinds = "one seed" if seeds == 1 else f"{seeds} seeds"
            words.append(kinds if seeds == counted else f"{counted} runs of {kinds}")
        again = all_runs - counted
        if again:
            whole = "the same run twice" if (all_runs, counted) == (2, 1) else ""
            words.append(whole or ("one of them twice" if again == 1 else f"{again} of them again"))
        return f"{self.letter}  {', '.join(words)}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that the page and the console show."""

    groups: Sequence[Group]
    differing: Mapping[str, Sequence[Any]]  # path of a setting -> its value in each group
    metrics: Sequence[str]  # final ones that at least one run has
    notes: Sequence[str]  # what a reader must know before believing a number

    @property
    def runs(self) -> list[compared_run.ComparedRun]:
        return [run for group in self.groups for run in group.runs]

    @property
    def unfinished(self) -> list[str]:
        """`runs/a (step 20 of 1,500)` for each run that has not spent its budget."""
        return [f"{run.workdir} ({run.unfinished})" for run in self.runs if run.unfinished]

    @property
    def device_seconds(self) -> float | None:
        """Of all runs together, copies once; None if those of one are not known."""
        each = [run.cost.device_seconds for group in self.groups for run in group.counted]
        return None if None in each else math.fsum(second for second in each if second)


def compare(runs: Sequence[compared_run.ComparedRun]) -> Comparison:
    """Groups the runs in the order they are given; others are compared with the first group.

    Raises ValueError if there are fewer than two runs or one is given twice.
    """
    if len(runs) < 2:
        raise ValueError(f"nothing to compare in {len(runs)} run; give at least two workdirs")
    places = collections.Counter(os.path.realpath(run.workdir) for run in runs)
    twice = [run.workdir for run in runs if places[os.path.realpath(run.workdir)] > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice; a run says nothing beside itself")

    alike: dict[tuple, list[compared_run.ComparedRun]] = {}
    for run in runs:
        alike.setdefault(_identity(run), []).append(run)
    members = list(alike.values())
    differing = {
        path: [run.settings[path] for run, *_ in members]
        for path in runs[0].settings
        if _parts_groups(path) and len({repr(run.settings[path]) for run in runs}) > 1
    }

    labels = _labels(members, differing)
    groups = [
        Group(letter(place), label, tuple(group))
        for place, (group, label) in enumerate(zip(members, labels))
    ]

    evaluated = [run.last("eval") for run in runs]
    present = {
        name for row in evaluated for name in row if metric_values.value(row, name) is not None
    }
    by_source = sorted(name for name in present if name.partition("/")[0] in METRICS)
    order = [name for name in METRICS if name in present]
    order += [name for name in by_source if "/" in name]
    return Comparison(groups, differing, order, comparison_notes.of(groups, differing))


def difference(name: str, group: means.Mean, first: means.Mean) -> means.Difference:
    """`group` minus `first`, of a metric or of a source of it (`disc_auc/wiki`)."""
    return means.difference(group, first, METRICS.get(name.partition("/")[0]))


def environments(
    comparison: Comparison,
) -> tuple[dict[str, Any], dict[str, list[tuple[Any, list[compared_run.ComparedRun]]]]]:
    """Versions, commit and devices of all runs, parted into what they share and what they do not.

    Returns ({name: value} of what is the same in all runs, {name: (value, the runs that have it)}
    of the others). A run that has not noted a fact has the value None. Command lines name their
    workdir, so they are left out.
    """
    runs = comparison.runs
    shared: dict[str, Any] = {}
    apart: dict[str, list[tuple[Any, list[compared_run.ComparedRun]]]] = {}
    for name in dict.fromkeys(name for run in runs for name in run.environment):
        values = list(dict.fromkeys(run.environment.get(name) for run in runs))
        if len(values) == 1:
            shared[name] = values[0]
        elif name != "command":
            apart[name] = [
                (value, [run for run in runs if run.environment.get(name) == value])
                for value in values
            ]
    return shared, apart


def final(group: Group, name: str) -> means.Mean | None:
    """The mean of a metric over the runs' last evaluations. Returns None if no run has it."""
    values = finals(group, name)
    return means.mean(values) if values else None


def finals(group: Group, name: str) -> list[float]:
    """The value of a metric in the last evaluation of each run that has it; copies count once."""
    values = [metric_values.value(run.last("eval"), name) for run in group.counted]
    return [value for value in values if value is not None]


def baseline(group: Group, name: str) -> baselines.Baseline | None:
    """What a guesser gets, as a mean over the group's last evaluations; copies count once.

    Returns None if it is not known.
    """
    found = [baselines.of(name, run.last("eval")) for run in group.counted]
    found = [one for one in found if one is not None]
    if not found:
        return None
    return dataclasses.replace(found[0], value=means.mean([one.value for one in found]).value)


def progress(group: Group, name: str) -> float | None:
    """How far the group's runs have got: the mean of `step` or `tokens_seen` in their last rows.

    Of the runs that have an evaluation, whose numbers are compared; of all if none has. Copies
    count once.
    """
    evaluated = [run.last("eval") for run in group.counted if run.last("eval")]
    rows = evaluated or [run.last("train") for run in group.counted]
    values = [metric_values.value(row, name) for row in rows]
    known = [value for value in values if value is not None]
    return means.mean(known).value if known else None


def tokens_say_more(comparison: Comparison) -> bool:
    """Whether the runs see different numbers of tokens per step, so that the two axes disagree."""
    rates = []
    # Padding of the first rows says little, so runs that have hardly begun do not count.
    evaluated = [run for run in comparison.runs if run.last("eval")]
    for run in evaluated or comparison.runs:
        row = run.last("train") or run.last("eval")
        tokens = metric_values.value(row, "tokens_seen")
        if tokens and row["step"]:
            rates.append(tokens / row["step"])
    return bool(rates) and max(rates) > 1.02 * min(rates)


def letter(place: int) -> str:
    """The name of a group: A, B, ... Z, AA."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return alphabet[place] if place < 26 else letter(place // 26 - 1) + alphabet[place % 26]


def with_error(name: str, found: means.Mean) -> str:
    """`5.912 ± 0.021`, or `0.712` for a single run."""
    text = style.metric(name, found.value)
    return text if found.error is None else f"{text} ± {_unsigned(name, found.error)}"


def signed(name: str, found: means.Difference) -> str:
    """`-0.041 ± 0.039`; shares are in percentage points."""
    sign = "-" if found.amount < 0 else "+" if found.amount > 0 else ""
    text = sign + _unsigned(name, abs(found.amount))
    error = "" if found.error is None else f" ± {_unsigned(name, found.error)}"
    return text + error + (" points" if style.is_share(name) else "")


def short(path: str) -> str:
    """A setting's name without its sections; of one network's shape with the network."""
    section, _, name = path.rpartition(".")
    network = section.rpartition(".")[2]
    return f"{network}.{name}" if network in ("discriminator", "generator") else name


def setting(value: Any) -> str:
    """A setting as it is written in a table: `0.15`, `on`, or `-` if it is empty."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(setting, value)) or "-" if isinstance(value, tuple) else str(value) or "-"


def _parts_groups(path: str) -> bool:
    """Whether runs that differ in this setting belong to different groups."""
    section = path[: path.rfind(".") + 1]
    return path != "seed" and path not in NEUTRAL and section not in NEUTRAL


def _identity(run: compared_run.ComparedRun) -> tuple:
    """Equal for all runs of one group."""
    return tuple((path, repr(value)) for path, value in run.settings.items() if _parts_groups(path))


def _labels(
    members: Sequence[Sequence[compared_run.ComparedRun]], differing: Mapping[str, Sequence]
) -> list[str]:
    """A short label per group: at most two settings, otherwise the names of its workdirs."""
    if len(members) == 1:
        return [members[0][0].settings["name"]]
    if len(differing) > 2:
        names = [_shared_name(group) for group in members]
        return names if len(set(names)) == len(names) else [g[0].workdir for g in members]

    return [
        ", ".join(f"{short(path)} {setting(values[place])}" for path, values in differing.items())
        for place in range(len(members))
    ]


def _shared_name(runs: Sequence[compared_run.ComparedRun]) -> str:
    """What the names of the workdirs share: `mask25` for mask25-seed0 and mask25-seed1."""
    names = [os.path.basename(os.path.normpath(run.workdir)) for run in runs]
    shared = os.path.commonprefix(names)
    if len(names) > 1:
        # Seeds 10 and 11 share a digit, and an s without a sign before it belongs to a word.
        shared = re.sub(r"([-_. ]*seed[-_. ]*\d*|[-_. ]+s\d*)?[-_. ]*$", "", shared)
    return shared or names[0]


def _unsigned(name: str, amount: float) -> str:
    if style.is_share(name):
        return f"{100 * amount:.2f}"
    if 0 < amount < 0.0005:
        return f"{amount:.4f}" if amount >= 0.00005 else f"{amount:.0e}"
    return f"{amount:.3f}"
