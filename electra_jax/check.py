# SPDX-License-Identifier: Apache-2.0
"""Checks that training really learns: 24 checks in a table of expected, measured and verdict.

    python -m electra_jax.check --workdir=runs/checks --only=1,3,6,7,11,12,13,17,21,22,23
    python -m electra_jax.check --workdir=runs/checks --only=2,4,5,8,15,20,24
    python -m electra_jax.check --workdir=runs/checks --seeds=3

The first command trains nothing and takes minutes. The second trains once, `configs/tiny_paper.py`
unless --config names another file. All 24 checks train nine times per seed. Measurements are kept
in WORKDIR/checks.json, so the same command computes only what is missing. The exit code is 1 if a
check fails. docs/learning_checks.md describes each check.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage
    from electra_jax.host import huge_pages

    # Before all other imports: help answers at once, and the program may be started again.
    usage.answer(__file__)
    huge_pages.use_huge_pages()

import json

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.checks import all_checks
from electra_jax.checks import result as result_lib
from electra_jax.cli import command, printing
from electra_jax.host import console_table

_ONLY = flags.DEFINE_list("only", [], "Numbers of the checks, as 1,3,6; all without it.")
_SEEDS = flags.DEFINE_integer("seeds", 1, "How many seeds to run: 0, 1, ...", lower_bound=1)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object as the last line.", allow_override=True
)

CONFIG = "tiny_paper"
FAILED = 1


def main(config: config_lib.Config, workdir: str) -> int:
    """Measures what is missing and prints the results asked for; returns the exit code."""
    command.check_alone("check")
    asked = all_checks.numbers(_ONLY.value)
    found = all_checks.measure(config, workdir, asked, _SEEDS.value, logging.info)

    lines = [console_table.for_reader(result_lib.table(found), result_lib.COLOURS)]
    if suspicions := result_lib.suspicions(found):
        lines.append(f"\n{suspicions}")
    if suggestions := result_lib.calibration(found):
        lines.append(f"\nnot calibrated, over {_SEEDS.value} seeds\n{suggestions}")
    if _JSON.value:
        lines.append(json.dumps([to_json(seed, result) for seed, result in found]))
    printing.say_each(lines)

    return FAILED if any(result.verdict == result_lib.FAILS for _, result in found) else 0


def to_json(seed: int, result: result_lib.Result) -> dict:
    """Returns a result and its verdicts as JSON data, for other programs."""
    tree = result_lib.to_tree(result) | {"seed": seed, "verdict": result.verdict}
    for measure_, entry in zip(result.measures, tree["measures"]):
        entry["verdict"] = measure_.verdict
    return tree


if __name__ == "__main__":
    command.run(main, config_file=CONFIG)
