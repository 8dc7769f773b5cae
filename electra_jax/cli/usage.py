# SPDX-License-Identifier: Apache-2.0
"""Answers --help: what a command does, its flags, or the settings of a configuration.

It comes before all other imports of a command and imports little but the standard library, because
jax alone takes longer to import than a reader wants to wait. So the flags are read from the source
files that define them; `tests/cli/test_usage.py` compares them with the flags that absl knows.
"""

import ast
import dataclasses
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from electra_jax.cli import printing, wording

_HERE = os.path.dirname(os.path.abspath(__file__))
_OF_ALL_COMMANDS = ("command.py", "distributed.py")  # files here that define flags

_CONFIG = (
    "--config=NAME",
    "A configuration of the package, such as tiny, small or base, or a file of your own; a run that"
    " was begun needs only --workdir.",
)
_FIELD = (
    "--config.SECTION.FIELD=VALUE",
    "Changes one setting. --help=SECTION and --help=SECTION.FIELD describe settings.",
)


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag as its definition in the source says; `default` is '' if it is None or computed."""

    name: str
    kind: str  # 'string', 'bool', 'integer', 'float', 'enum', 'list', ...
    default: str
    choices: tuple[str, ...]
    help: str


def answer(file: str, settings: str = "base", argv: Sequence[str] | None = None) -> None:
    """Prints help and exits if the command line asks for it; otherwise returns.

    Args:
      file: the source of the command.
      settings: the configuration whose file explains the settings of this command.
      argv: the command line; sys.argv if it is None.
    """
    for arg in (sys.argv if argv is None else argv)[1:]:
        if arg in ("-h", "-help", "--help"):
            printing.say(text(file, min(100, shutil.get_terminal_size().columns)))
            sys.exit(0)
        if arg.startswith("--help="):
            from electra_jax.cli import settings_help  # noqa: PLC0415 - imports more than this file

            sys.exit(settings_help.show(arg.removeprefix("--help="), settings))


def text(file: str, width: int = 100) -> str:
    """Returns what --help prints: the command's description with its examples, then its flags."""
    tree = _parsed(file)
    on_paths = "run_on_paths" in _source(file)

    own = [_entry(flag) for flag in flags_of(file)]
    shared = [_entry(f) for name in _OF_ALL_COMMANDS for f in flags_of(os.path.join(_HERE, name))]
    if on_paths:
        groups = {"Flags": own}
    else:
        # Both kinds of flags that nearly every call needs come first.
        workdir = [entry for entry in shared if entry[0].startswith("--workdir")]
        others = [entry for entry in shared if entry not in workdir]
        groups = {
            "Flags": [_CONFIG, *workdir, _FIELD, *own],
            "Flags of all commands": others,
        }

    lines = [wording.fitted(ast.get_docstring(tree) or "", width)]
    for title, entries in groups.items():
        lines += ["", f"{title}:", *_columns(entries, width)]
    return "\n".join([*lines, "", "--helpfull lists the flags of all libraries as well."])


def flags_of(file: str) -> list[Flag]:
    """Returns the flags that a source file defines by `flags.DEFINE_...`, in its order."""
    return list(_flags(_parsed(file)))


def summary(file: str) -> str:
    """Returns the first sentence of the description of a command."""
    return (ast.get_docstring(_parsed(file)) or "").partition("\n\n")[0]


def _flags(tree: ast.Module) -> Iterator[Flag]:
    for node in ast.walk(tree):
        defines = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if not defines or not node.func.attr.startswith("DEFINE_"):
            continue

        kind = node.func.attr.removeprefix("DEFINE_")
        name, default, *rest = node.args
        choices = ast.literal_eval(rest.pop(0)) if kind == "enum" and _plain(rest[0]) else ()
        words = [ast.literal_eval(arg) for arg in rest if _plain(arg)]
        yield Flag(
            name=ast.literal_eval(name),
            kind=kind,
            default=_default(ast.literal_eval(default)) if _plain(default) else "",
            choices=tuple(choices),
            help=next((word for word in words if isinstance(word, str)), ""),
        )


def _plain(node):
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _default(value):
    if value is None or value == []:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry(flag):
    """Returns (how the flag is written, what it means)."""
    if flag.kind == "bool" and flag.default == "true":
        return f"--[no]{flag.name}", f"{flag.help} Default: on."
    if flag.kind == "bool":
        return f"--{flag.name}", flag.help
    stand_in = {"integer": "N", "float": "X", "list": "A,B,..."}.get(flag.kind, "...")
    value = "|".join(flag.choices) or stand_in
    about = f"{flag.help} Default: {flag.default}." if flag.default else flag.help
    return f"--{flag.name}={value}", about


def _columns(entries, width, first=28):
    """Two columns; a flag that is too wide for the first has a line of its own."""
    lines = []
    for name, about in entries:
        wrapped = textwrap.wrap(about, max(30, width - first))
        begin = f"  {name}"
        if len(begin) + 2 > first:
            lines.append(begin)
            begin = ""
        for line in wrapped:
            lines.append(begin.ljust(first) + line)
            begin = ""
    return lines


def _source(file):
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _parsed(file):
    return ast.parse(_source(file))
