# SPDX-License-Identifier: Apache-2.0
"""Shows held-out rows as text: original, masked, what the generator wrote, what was predicted.

    python -m electra_jax.show --workdir=runs/tiny
    python -m electra_jax.show --workdir=runs/tiny --order=worst
    python -m electra_jax.show --workdir=runs/tiny --rows=40 --html=rows.html

Many rows are judged, and those are shown in which replaced tokens stand out most, or least. A token
is called replaced from the probability on at which 2 % of the original tokens are false alarms.
Prints in the terminal, or with --html writes a page.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import os
import shutil
import sys
import textwrap

import jax
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.core import streams
from electra_jax.report import ranking, samples, view
from electra_jax.training import opened as opened_lib
from electra_jax.training import run_data

_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; the newest without it.", allow_override=True
)
_ROWS = flags.DEFINE_integer("rows", 4, "How many rows are shown.", lower_bound=1)
_AMONG = flags.DEFINE_integer("among", 256, "How many rows are judged.", lower_bound=1)
_ORDER = flags.DEFINE_enum(
    "order",
    "best",
    ["best", "worst", "text"],
    "By how far replaced tokens stand out from original ones; text: as in the records.",
)
_HTML = flags.DEFINE_string("html", None, "Write a page to this file instead of the terminal.")
_DRAW = flags.DEFINE_integer(
    "draw", 0, "Another number draws other slots and samples.", 0, 2**31 - 1
)
_COLOUR = flags.DEFINE_enum(
    "colour", "auto", ["auto", "always", "never"], "Colour in the terminal; auto: if it is one."
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Prints rows in the terminal, or writes them to a page."""
    folder = os.path.dirname(_HTML.value or "") or "."
    if not os.path.isdir(folder):
        raise config_lib.ConfigError(f"--html={_HTML.value}: there is no folder {folder}")

    opened = opened_lib.open_workdir(config, workdir, _STEP.value)
    examples = _judged(opened, max(_ROWS.value, _AMONG.value))
    if _ORDER.value != "text":
        examples = ranking.ranked(examples, worst_first=_ORDER.value == "worst")
    shown = examples[: _ROWS.value]

    about = ranking.sentence(examples)
    if about:
        which = {"best": "the best first", "worst": "the worst first"}
        about += f". Shown: {len(shown)} of them, {which.get(_ORDER.value, 'as in the records')}."

    title = f"{opened.config.name}, step {opened.step:,}"
    if _HTML.value:
        page = view.page([view.to_html(example) for example in shown], title, about)
        with open(_HTML.value, "w", encoding="utf-8") as file:
            file.write(page)
        print(f"wrote {_HTML.value}")
        return

    # See https://no-color.org for NO_COLOR.
    tty = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    colour = _COLOUR.value == "always" or (_COLOUR.value == "auto" and tty)
    width = shutil.get_terminal_size((100, 24)).columns
    print(title + "\n")
    if about:
        print(textwrap.fill(about, width) + "\n")
    print(view.terminal_key(colour))
    for example in shown:
        print("\n" + view.to_terminal(example, width, colour))


def _judged(opened: opened_lib.Opened, rows: int) -> list[view.Example]:
    """The first `rows` held-out rows, corrupted and judged."""
    examples: list[view.Example] = []
    key = streams.stream(jax.random.key(_DRAW.value), "show")
    for _, ids_BL, marks_BL in run_data.heldout(opened.records, rows):
        examples += samples.examples(
            opened.objective.placed(),
            opened.params,
            opened.vocabulary,
            ids_BL,
            marks_BL,
            key,
            first_row=len(examples),
        )
    return ranking.judged(examples[:rows])  # the last batch may have more rows than are asked for


if __name__ == "__main__":
    command.run(main)
