# SPDX-License-Identifier: Apache-2.0
"""Tables for the console: cells in columns as plain text, which a terminal may show in colour."""

import io
import sys
from collections.abc import Container, Sequence

from rich import console, table, text


def lines(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Returns a line per row, with two blanks between the columns and none at the end.

    Columns in `right`, counted from 0, are aligned to the right, others to the left. Lines are as
    long as they need to be; nothing is wrapped.
    """
    grid = table.Table.grid(padding=(0, 2))
    for place in range(len(rows[0])):
        grid.add_column(justify="right" if place in right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(text.Text, row))  # in a plain str, rich reads "[red]" as markup

    found = console.Console(width=sys.maxsize).render_lines(grid, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in found]


def for_reader(plain: str, pattern: str) -> str:
    """Returns a text as `for_terminal` does if it is printed to a terminal, else as it is."""
    return for_terminal(plain, pattern) if sys.stdout.isatty() else plain


def for_terminal(plain: str, pattern: str) -> str:
    """Returns the text with codes for colours; plain if NO_COLOR is set.

    What a group of the regular expression `pattern` matches has the colour that the group is named
    after, as in `(?P<red>FAILS)$`.
    """
    terminal = console.Console(file=io.StringIO(), force_terminal=True)
    terminal.print(_coloured(plain, pattern), soft_wrap=True, end="")
    return terminal.file.getvalue()


def _coloured(plain, pattern):
    coloured = text.Text(plain)
    coloured.highlight_regex(pattern)
    return coloured
