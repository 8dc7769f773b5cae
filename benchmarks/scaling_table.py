# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scaling.md: small, base and large on chips that are not here.

    python benchmarks/scaling_table.py --file=docs/experiments/scaling.json

runs `electra_jax.compile` for each line, one after the other, and keeps what it says in the file.
Lines that are there already are not compiled again; `--only='small on v6e-8,base on v6e-8'` names
those that are. It needs the extra `aot` and one to ten minutes a line. Then it prints the table and
a second one, which is computed (`electra_jax.speed.cost_model`): the paper's runs on up to 2,048
chips.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.speed import chips, cost_model

FILE = "docs/experiments/scaling.json"
PLACES = {  # as users know them -> what the command calls them
    "v5e-8": "v5e:2x4",
    "v5e-256": "v5e:16x16",
    "v5p-64": "v5p:2x4x4",  # named after its cores, two a chip
    "v6e-8": "v6e:2x4",
    "8 x H100": "h100:8",
    "2 x v5e-16": "2xv5e:4x4",
    "4 x v5e-16": "4xv5e:4x4",
}
LINES = tuple(
    f"{config} on {place}"
    for place in PLACES
    for config in (("small", "base") if place.endswith("v5e-16") else ("small", "base", "large"))
)
HEAD = (
    "| configuration | chips | state, GiB | most in use, GiB | of GiB | all-reduce, MiB | other"
    " exchanges, MiB | step, ms at least | limit | tokens/s at most | the compiler expects, ms |"
)


COSTS = {
    "small": ("v5e:2x4", "v6e:2x4", "v5p:2x4x4", "v5e:8x16", "h100:8"),
    "base": ("v5e:2x4", "v6e:2x4", "v5p:2x4x4", "v5e:16x16", "2xv5e:8x16", "h100:8", "4xh100:8"),
    "large": (
        "v5e:16x16", "4xv5e:16x16", "8xv5e:16x16", "v6e:16x16", "4xv6e:16x16", "v5p:8x8x16",
        "2xv5p:8x8x16", "h100:8", "32xh100:8", "256xh100:8",
    ),
}  # fmt: skip
COSTS_HEAD = (
    "| run of the paper | chips | products, ms | gradients in a slice, ms | between slices, ms |"
    " exchanges, if nothing overlaps | hours at least | chip-hours at least |"
)
VOCABULARY = 30_522


def main() -> None:
    """Compiles what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description="The table of docs/scaling.md.")
    parser.add_argument("--file", default=FILE)
    parser.add_argument("--only", default="", help="names of lines, joined by commas")
    chosen = parser.parse_args()

    found = {}
    if os.path.exists(chosen.file):
        with open(chosen.file, encoding="utf-8") as file:
            found = json.load(file)
    anew = chosen.only.split(",") if chosen.only else []
    for line in anew or LINES:
        if line in anew or line not in found:
            found[line] = compiled(line)
            ordered = {name: found[name] for name in LINES if name in found}
            with open(chosen.file, "w", encoding="utf-8") as file:
                file.write(json.dumps(ordered, indent=1) + "\n")
            print(line, "done", flush=True)

    print("\n".join([*table(found), "", *costs()]))


def compiled(line: str) -> dict:
    """Returns what the command says about one line, with the flags that it was given."""
    config, _, place = line.partition(" on ")
    flags = [f"--config={config}", f"--topology={PLACES[place]}"]
    done = subprocess.run(
        [sys.executable, "-m", "electra_jax.compile", *flags, "--json"],
        capture_output=True,
        text=True,
    )
    if not done.stdout:
        return {"flags": flags, "refused": done.stderr.strip().splitlines()[-1]}
    return {"flags": flags, **json.loads(done.stdout)}


def table(found: Mapping[str, dict]) -> list[str]:
    """Returns the table as lines of Markdown: a row for each configuration, or what would fit."""
    rows = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for line, one in found.items():
        config, _, place = line.partition(" on ")
        where = f"{place} ({one['chips']})" if "chips" in one else place
        if "refused" in one:
            rows.append(f"| {config} | {where} | {one['refused']} |" + " |" * 8)
            continue

        for trial in one["trials"]:
            changes = " ".join(f"`--config.{k}={v}`" for k, v in trial["changes"].items())
            rows.append(_row(f"{config} {changes}".strip(), where, one, trial))
    return rows


def costs() -> list[str]:
    """Returns the computed table as lines of Markdown; nothing in it is compiled or measured."""
    rows = [COSTS_HEAD, "|" + "---|" * (COSTS_HEAD.count("|") - 1)]
    for size, places in COSTS.items():
        tree = importlib.import_module(f"electra_jax.configs.{size}").get_config()
        work = cost_model.work(config_lib.parse(tree), VOCABULARY)
        budgets = [cost_model.steps(run) for run in cost_model.PAPER_RUNS[size]]
        for place in places:
            one = cost_model.floor(work, chips.topology(place))
            limits = [one.limits.get(name) for name in ("products", "exchange", "network")]
            cells = [
                f"{size}, {' or '.join(f'{steps:,.0f}' for steps in budgets)} steps"
                + (f" of {stages.describe(work.stage)}" if work.stage else ""),
                f"{place} ({one.chips:,})",
                *("" if limit is None else f"{1e3 * limit:,.2f}" for limit in limits),
                f"{one.exchanged:.0%}",
                " or ".join(f"{one.hours(steps):,.3g}" for steps in budgets),
                " or ".join(_rounded(one.chip_hours(steps)) for steps in budgets),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def _rounded(number):
    """A number with two digits at least."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _row(name, where, one, trial):
    """One compiled program as a row."""
    memory = f"{one['memory_bytes'] / 2**30:.2f}"
    if trial["problem"] or trial["peak"] > one["memory_bytes"]:
        peak = f"{trial['peak'] / 2**30:.2f}" if trial["peak"] else "?"
        why = "does not fit" if trial["peak"] else trial["problem"]
        return f"| {name} | {where} | | {peak} | {memory} | {why} |" + " |" * 5

    mib = {kind: size / 2**20 for kind, (_, size) in trial["exchanged"].items()}
    others = ", ".join(f"{kind} {size:,.1f}" for kind, size in mib.items() if kind != "all-reduce")
    across = ", ".join(
        f"{kind} across {size / 2**20:,.1f}" for kind, (_, size) in trial["crossing"].items()
    )
    cells = [
        name,
        where,
        f"{trial['state'] / 2**30:.2f}",
        f"{trial['peak'] / 2**30:.2f}",
        memory,
        f"{mib.get('all-reduce', 0):,.1f}",
        "; ".join(filter(None, (others, across))),
        f"{1e3 * max(trial['floor_seconds'].values()):,.2f}",
        max(trial["floor_seconds"], key=trial["floor_seconds"].get),
        f"{trial['tokens_per_second_at_most']:,.0f}",
        f"{1e3 * trial['expected_seconds']:,.0f}" if trial.get("expected_seconds") else "",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
