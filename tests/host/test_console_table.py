# SPDX-License-Identifier: Apache-2.0
"""Tables for the console: aligned plain text everywhere, colours in a terminal alone."""

import io
import sys

import pytest

from electra_jax.host import console_table

VERDICTS = r"(?m)  (?:(?P<green>passes)|(?P<red>FAILS))$"
LONG = "x" * 200  # longer than a line of a terminal
TEXT = f"passes  passes\n[red]    FAILS\n{LONG}"


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """What rich reads. Files are to be plain although FORCE_COLOR is set."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def _printed(monkeypatch, stdout):
    monkeypatch.setattr(sys, "stdout", stdout)
    print(console_table.for_reader(TEXT, VERDICTS))
    return stdout.getvalue()


def test_columns_are_aligned_and_no_cell_is_read_as_markup_wrapped_or_filled_up():
    rows = [("", "count", "note"), ("  [MASK]", "7", LONG), ("  [red]日本", "1,234", ""), [""] * 3]
    assert console_table.lines(rows, right=[1]) == [
        "             count  note",
        f"  [MASK]         7  {LONG}",
        "  [red]日本  1,234",
        "",
    ]


def test_what_a_group_matches_has_its_colour_in_a_terminal(monkeypatch):
    assert _printed(monkeypatch, _Terminal()) == (
        f"passes  \x1b[32mpasses\x1b[0m\n[red]    \x1b[31mFAILS\x1b[0m\n{LONG}\n"
    )


def test_a_file_and_a_terminal_without_colour_get_the_plain_text(monkeypatch):
    assert _printed(monkeypatch, io.StringIO()) == TEXT + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert _printed(monkeypatch, _Terminal()) == TEXT + "\n"
