# SPDX-License-Identifier: Apache-2.0
"""How this program was called, for lines that say what to type next. Only the standard library."""

import os
import sys
from collections.abc import Sequence

NAME = "electra-jax"  # pyproject.toml installs it


def name(called: Sequence[str] | None = None) -> str:
    """Returns 'electra-jax' if that is how this program was called, else 'python -m electra_jax'.

    Args:
      called: the command line with the interpreter and its options; sys.orig_argv if it is None.
    """
    return NAME if _first(called) == NAME else "python -m electra_jax"


def command(asked: str, called: Sequence[str] | None = None) -> str:
    """Returns the call of the command `asked`, such as 'main', in the form used for this program.

    That is 'electra-jax main', 'python -m electra_jax main' or, also for a program of the reader's
    own, 'python -m electra_jax.main'.

    Args:
      asked: the name of a command.
      called: as in `name`.
    """
    by_name = _first(called) in (NAME, "electra_jax")
    return f"{name(called)}{' ' if by_name else '.'}{asked}"


def _first(called):
    """Returns the module or the file that the interpreter was asked to run; '' for neither of ours.

    Not from sys.argv: it is rewritten when a command is run by its name.
    """
    words = list(sys.orig_argv if called is None else called)
    for word, following in zip(words, [*words[1:], ""]):
        if word == "-m":
            return following
        if os.path.basename(word) == NAME:
            return NAME
    return ""
