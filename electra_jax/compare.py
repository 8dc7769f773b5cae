# SPDX-License-Identifier: Apache-2.0
"""Compares several runs: their settings, their curves, their final held-out metrics.

    python -m electra_jax.compare runs/a runs/b --out=compare.html
    python -m electra_jax.compare runs/mask15-seed{0,1,2} runs/mask25-seed{0,1,2}
    python -m electra_jax.compare runs/tiny runs/wikipedia

Runs that differ only in their seed form a group, for which mean and standard error are given. Every
group is compared with that of the first workdir. Prints a table and writes a page and a picture.
The runs may still be going on: with --follow the page is drawn again until they have finished.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import os
import time
from collections.abc import Callable, Sequence

from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.host import console_table, safe_files, staging
from electra_jax.report import (
    compared_run,
    comparison,
    comparison_page,
    comparison_table,
    rendering,
)

_OUT = flags.DEFINE_string("out", "compare.html", "The page; its picture goes beside it, as .png.")
_FOLLOW = flags.DEFINE_bool(
    "follow", False, "Draw the page again every half minute until all runs have finished."
)


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

    pages = (_OUT.value, f"{stem}.png")
    found = read(workdirs)
    comparison_page.write(found, *pages, follows=_FOLLOW.value)
    table = console_table.for_reader(comparison_table.text(found), comparison_table.COLOURS)
    printing.say_each([table, f"\nwrote {pages[0]} and {pages[1]}"])

    if _FOLLOW.value and found.unfinished:
        print("drawing them again until all runs have finished; Ctrl-C ends that", flush=True)
        follow(workdirs, pages)


def read(workdirs: Sequence[str]) -> comparison.Comparison:
    """The runs as they are now."""
    here = [staging.copied(workdir, "workdir") for workdir in workdirs]
    return comparison.compare([compared_run.load(workdir) for workdir in here])


def follow(
    workdirs: Sequence[str], pages: tuple[str, str], wait: Callable[[float], None] = time.sleep
) -> None:
    """Draws page and picture again until all runs have finished, or until Ctrl-C.

    Args:
      pages: the paths of both.
      wait: waits for so many seconds.
    """
    try:
        follows = True
        while follows:
            wait(rendering.REFRESH)
            found = read(workdirs)
            follows = bool(found.unfinished)
            comparison_page.write(found, *pages, follows=follows)
    except KeyboardInterrupt:
        # An open page does not wait for news any longer, and says which runs are unfinished.
        comparison_page.write(read(workdirs), *pages)


if __name__ == "__main__":
    command.run_on_paths(main)
