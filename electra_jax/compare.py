# SPDX-License-Identifier: Apache-2.0
"""Compares several runs: their settings, their curves, their final held-out metrics.

    python -m electra_jax.compare runs/a runs/b --out=compare.html
    python -m electra_jax.compare runs/mask15-seed{0,1,2} runs/mask25-seed{0,1,2}
    python -m electra_jax.compare runs/tiny runs/wikipedia

Runs that differ only in their seed form a group, for which mean and standard error are given. Every
group is compared with that of the first workdir. Prints a table and writes a page and a picture.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import os
from collections.abc import Sequence

from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.host import console_table, safe_files, staging
from electra_jax.report import comparison, comparison_page, comparison_table

_OUT = flags.DEFINE_string("out", "compare.html", "The page; its picture goes beside it, as .png.")


def main(workdirs: Sequence[str]) -> None:
    """Reads the runs, prints a table, and writes the page with its picture."""
    if len(workdirs) < 2:
        raise config_lib.ConfigError(
            f"{len(workdirs)} workdirs given; name at least two: runs/a runs/b --out=compare.html"
        )

    stem, ending = os.path.splitext(_OUT.value)
    if ending != ".html":
        raise config_lib.ConfigError(f"--out={_OUT.value} does not end in .html")

    safe_files.check_no_address(_OUT.value, "--out", config_lib.ConfigError)
    folder = os.path.dirname(stem) or "."
    if not os.path.isdir(folder):
        raise config_lib.ConfigError(f"--out={_OUT.value}: there is no folder {folder}")

    here = [staging.copied(workdir, "workdir") for workdir in workdirs]
    found = comparison.compare([comparison.load(workdir) for workdir in here])
    console_table.print_coloured(comparison_table.text(found), comparison_table.COLOURS)
    comparison_page.write(found, _OUT.value, f"{stem}.png")
    print(f"\nwrote {_OUT.value} and {stem}.png")


if __name__ == "__main__":
    command.run_on_paths(main)
