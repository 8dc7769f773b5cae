# SPDX-License-Identifier: Apache-2.0
"""Every command line of the documentation that starts a program beside the package.

These are `benchmarks/*.py`, `python -m tests.torture` and pytest; `documented.py` has the commands
of the package.
"""

import ast
import dataclasses
import re
import shlex

from .corpus import ROOT

# What a page writes where a reader puts a name of their own -> what the tests put there.
PLACEHOLDERS = {"CHECKOUT": str(ROOT), "FOLDER": "here", "WORKDIR": "here", "TEXT": "text.txt"}

_PROGRAM = re.compile(
    r"^(?:python3? (?P<file>benchmarks/\w+\.py)|(?:python3? -m )?(?P<module>tests\.torture|pytest))"
    r"(?P<rest>(?: [^#|>]*)?)$"
)
_CODE = re.compile(r"`([^`\n]+)`|^ {4}(\S.*)$|^(python3? .*)$", re.MULTILINE)
_GOES_ON = re.compile(r" \\\n *")  # a command on several lines


@dataclasses.dataclass(frozen=True)
class Program:
    """One command line."""

    page: str  # relative to the repository
    what: str  # 'benchmarks/table_5.py', 'tests.torture' or 'pytest'
    words: tuple[str, ...]  # its arguments, with PLACEHOLDERS filled in

    @property
    def name(self) -> str:
        """Page and command, for messages."""
        return f"{self.page} {self.what} {shlex.join(self.words)}".strip()


def programs() -> list[Program]:
    """All of them, each once, in their order on the pages."""
    found = {}
    for path in _pages():
        page = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text = ast.get_docstring(ast.parse(text), clean=False)
        for match in _CODE.finditer(_GOES_ON.sub(" ", text)):
            code = match[1] or match[2] or match[3]
            program = _PROGRAM.search(code.strip())
            if program:
                rest = program["rest"]
                for there, here in PLACEHOLDERS.items():
                    rest = re.sub(rf"\b{there}\b", here, rest)
                what = program["file"] or program["module"]
                one = Program(page, what, tuple(shlex.split(rest)))
                found.setdefault((one.what, one.words), one)
    return list(found.values())


def _pages():
    docs = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "LOG.md")
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *docs,
        *sorted((ROOT / "benchmarks").glob("*.py")),
        ROOT / "tests" / "torture" / "__init__.py",
    ]
