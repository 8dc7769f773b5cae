# SPDX-License-Identifier: Apache-2.0
"""Shows held-out rows as text: original, masked, what the generator wrote, how it was judged.

    python -m electra_jax.show --workdir=runs/tiny
    python -m electra_jax.show --workdir=runs/tiny --order=worst
    python -m electra_jax.show --workdir=runs/tiny --rows=40 --html=rows.html

Many rows are judged, and those are shown in which replaced tokens stand out most, or least. A token
is called replaced if its probability is above the threshold at which 2 % of the original tokens are
false alarms. Prints in the terminal, or with --html writes a page.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import os
import shutil
import textwrap

from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.host import processes, safe_files
from electra_jax.report import view_html, view_terminal
from electra_jax.training import shown_rows, trained_run

_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; the newest without it.", allow_override=True
)
_ROWS = flags.DEFINE_integer("rows", 4, "How many rows to show.", lower_bound=1)
_AMONG = flags.DEFINE_integer(
    "among",
    shown_rows.JUDGED,
    "How many rows are judged; without it 256, those of the report.",
    lower_bound=1,
)
_ORDER = flags.DEFINE_enum(
    "order",
    "best",
    list(shown_rows.ORDERS),
    "best, worst: by how far replaced tokens stand out from original ones; text: as in the"
    " records.",
)
_HTML = flags.DEFINE_string("html", None, "Write a page to this file instead of the terminal.")
_DRAW = flags.DEFINE_integer(
    "draw", 0, "The seed of the masked slots and of the samples.", 0, 2**31 - 1
)
_COLOUR = flags.DEFINE_enum(
    "colour",
    "auto",
    ["auto", "always", "never"],
    "Colour; auto: only in a terminal.",
    allow_override=True,
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Prints rows in the terminal, or writes them to a page."""
    safe_files.check_no_address(_HTML.value or "", "--html", config_lib.ConfigError)
    folder = os.path.dirname(_HTML.value or "") or "."
    if not os.path.isdir(folder):
        raise config_lib.ConfigError(f"--html={_HTML.value}: there is no folder {folder}")

    run = trained_run.open(config, workdir, _STEP.value)
    if not processes.is_first():  # on a pod, for example: one process prints for all
        return
    shown, about = shown_rows.of(run, _ROWS.value, _ORDER.value, _AMONG.value, _DRAW.value)

    title = shown_rows.title(run)
    if _HTML.value:
        page = view_html.page(shown, title, about)
        with open(_HTML.value, "w", encoding="utf-8") as file:
            file.write(page)
        print(f"wrote {_HTML.value}")
        return

    colour = printing.in_colour(_COLOUR.value)
    width = shutil.get_terminal_size((100, 24)).columns
    lines = [title + "\n"]
    if about:
        lines.append(textwrap.fill(about, width) + "\n")
    if key := view_terminal.terminal_key(shown, colour):
        lines.append(key)
    rows = ("\n" + view_terminal.to_terminal(example, width, colour) for example in shown)
    printing.say_each([*lines, *rows])


if __name__ == "__main__":
    command.run(main)
