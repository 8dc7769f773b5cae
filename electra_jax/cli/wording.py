# SPDX-License-Identifier: Apache-2.0
"""Fits what the sources say to the reader of --help: their program, and pages that they have.

The sources write `python -m electra_jax.main` and `docs/weights.md`. A reader may have called
electra-jax, and a wheel has no pages. Only the standard library, as usage.py.
"""

import os
import re
import textwrap

from electra_jax.host import program

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_COMMAND = re.compile(r"python -m electra_jax\.(\w+)")
_PAGE = re.compile(r"\bdocs/([\w/]+\.md)")


def fitted(words: str, width: int) -> str:
    """Returns a description for this reader.

    Args:
      words: paragraphs with a blank line between them; examples are indented.
      width: of the lines of a paragraph in which a page has got a longer name.
    """
    paragraphs = []
    for paragraph in _COMMAND.sub(lambda match: program.command(match[1]), words).split("\n\n"):
        renamed = pages(paragraph)
        if renamed != paragraph:
            renamed = textwrap.fill(" ".join(renamed.split()), width)
        paragraphs.append(renamed)
    return "\n\n".join(paragraphs)


def pages(words: str, checkout: str = _CHECKOUT) -> str:
    """Names the pages that are not in this installation in words.

    Args:
      words: any text; `docs/weights.md` becomes 'weights.md of the documentation'.
      checkout: the folder in which the package lies, with docs/ beside it or without.
    """

    def named(match):
        there = os.path.isfile(os.path.join(checkout, match[0]))
        return match[0] if there else f"{match[1]} of the documentation"

    return _PAGE.sub(named, words)
