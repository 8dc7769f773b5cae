# SPDX-License-Identifier: Apache-2.0
"""Prints long texts, which readers may cut short. Only the standard library, as usage.py."""

import os
import sys


def say(words: str) -> None:
    """Prints; a reader that has seen enough, such as `head`, is no error."""
    try:
        print(words, flush=True)
    except BrokenPipeError:  # what is left in the buffer would be written at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
