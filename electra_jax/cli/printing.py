# SPDX-License-Identifier: Apache-2.0
"""Prints long texts, which readers may cut short, and says whether colours suit the reader.

Only the standard library, as usage.py.
"""

import os
import sys
from collections.abc import Iterable


def say(words: str) -> None:
    """Prints; a reader that has seen enough, such as `head`, is no error."""
    say_each([words])


def say_each(lines: Iterable[str]) -> None:
    """Prints one after another; asks for no more when the reader has seen enough, as `head` has."""
    try:
        for line in lines:
            print(line, flush=True)
    except BrokenPipeError:  # what is left in the buffer would be written at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_colour(wish: str) -> bool:
    """Whether to print in colour: 'always', 'never', or 'auto', which is only in a terminal."""
    # See https://no-color.org for NO_COLOR.
    tty = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return wish == "always" or (wish == "auto" and tty)
