# SPDX-License-Identifier: Apache-2.0
"""Answers --help=SECTION: the settings of a configuration with default, choices and reason.

    electra_jax.config, finetuning.config    declare each setting with its type and its bounds
    configs/base.py, configs/finetune.py     give its default, and in a comment its unit or reason

A comment belongs to a setting if it ends the setting's line or stands in the lines directly above.
"""

import ast
import dataclasses
import importlib
import math
import os
import sys
import textwrap
import tokenize
from collections.abc import Mapping

from electra_jax import config as config_lib
from electra_jax import configs
from electra_jax.cli import printing, wording

# The name of a configuration's file -> the module whose `Config` declares its settings.
_DECLARED_IN = {"base": "electra_jax.config", "finetune": "electra_jax.finetuning.config"}
FILES = tuple(_DECLARED_IN)
_WIDTH = 96
_KINDS = {
    str: "text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    tuple: "a tuple",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting as it is declared, with what its configuration's file says about it."""

    default: object
    takes: str  # 'one of ...', or a type with its bounds
    reason: str  # unit or reason; '' if the file has no comment on it


def show(asked: str, *files: str) -> int:
    """Prints the settings that match and returns 0, or says what is known and returns 2.

    Args:
      asked: `data`, `data.rows`, or 'all'.
      files: which of `FILES` are searched. What several of them have, such as `data`, is shown once
        for each, under its name.
    """
    known = {file: settings(file) for file in files}
    wanted = {file: _matching(asked, known[file]) for file in files}
    found = {file: paths for file, paths in wanted.items() if paths}
    if not found:
        known = list(dict.fromkeys(path for file in files for path in known[file]))
        sections = dict.fromkeys(path.partition(".")[0] for path in known if "." in path)
        near = config_lib.nearest(asked, [*known, *sections]) if "." in asked else ""
        hint = near or f"sections: {', '.join(sections)}; all of them: --help=all"
        print(f"error: --help={asked} is no section and no setting; {hint}", file=sys.stderr)
        return 2

    blocks = []
    for file, paths in found.items():
        lines = [f"configs/{file}.py:"] if len(found) > 1 else []
        lines += [known[file][path] for path in paths]
        if len(found) == 1 and len(paths) > 1:
            lines += [
                f"\nDefaults are those of configs/{file}.py; other configurations change some."
            ]
        blocks.append("\n".join(lines))
    printing.say("\n\n".join(blocks))
    return 0


def _matching(asked, paths):
    """Returns the paths that are asked for: a setting, the settings of a section, or all."""
    return [path for path in paths if asked in (path, "all") or path.startswith(f"{asked}.")]


def settings(file: str) -> dict[str, str]:
    """Returns a description of every setting by its path, such as `data.rows`, for a console."""
    return {path: _in_lines(path, setting) for path, setting in described(file).items()}


def described(file: str) -> dict[str, Setting]:
    """Returns every setting that one of `FILES` has, by its path."""
    values = importlib.import_module(f"electra_jax.configs.{file}").get_config()
    reasons = comments(os.path.join(configs.FOLDER, f"{file}.py"))

    found = {}
    for path, field in config_lib.declared(_declaring(file)).items():
        value = values
        for name in path.split("."):
            value = value[name]
        reason = reasons.get(path) or reasons.get(path.rpartition(".")[0], "")
        found[path] = Setting(value, _allowed(field), reason)
    return found


def sections(file: str) -> dict[str, str]:
    """Returns what each section of one of `FILES` is about, by its name."""
    fields = dataclasses.fields(_declaring(file))
    return {
        field.name: field.type.__doc__ for field in fields if dataclasses.is_dataclass(field.type)
    }


def comments(file: str) -> dict[str, str]:
    """Returns the comments on the settings in the source of a configuration, by their paths.

    The functions `data()`, `model()` and so on make the sections; `get_config()` sets the rest.
    """
    with open(file, "rb") as opened:
        by_line = {
            token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
            for token in tokenize.tokenize(opened.readline)
            if token.type == tokenize.COMMENT
        }
    with open(file, encoding="utf-8") as opened:
        tree = ast.parse(opened.read())

    found = {}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        section = "" if function.name == "get_config" else f"{function.name}."
        for node in function.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            name = _name(target)
            if name:
                found[section + name] = _around(node, by_line)
    return found


def _declaring(file):
    """Returns the class that declares the settings of one of `FILES`."""
    return importlib.import_module(_DECLARED_IN[file]).Config


def _in_lines(path, setting):
    lines = [f"{path} = {setting.default!r}   {setting.takes}"]
    lines += textwrap.wrap(
        wording.pages(setting.reason), _WIDTH, initial_indent="    ", subsequent_indent="    "
    )
    return "\n".join(lines)


def _name(target):
    """Returns FIELD of an assignment to `c.FIELD`, `config.FIELD` or `c["FIELD"]`; else None."""
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return target.slice.value
    return None


def _around(node: ast.Assign, by_line: Mapping[int, tuple[str, bool]]) -> str:
    """Returns the comment lines directly above an assignment and those within it, as one text."""
    first = node.lineno
    while by_line.get(first - 1, ("", False))[1]:
        first -= 1
    lines = range(first, node.end_lineno + 1)
    return " ".join(by_line[line][0] for line in lines if line in by_line)


def _allowed(field):
    """Returns which values a setting takes: its choices, its bounds, or else its type."""
    kind = _KINDS.get(field.type, field.type.__name__)
    if "choices" in field.metadata:
        return "one of " + ", ".join(map(repr, field.metadata["choices"]))
    if "bounds" not in field.metadata:
        return kind

    low, high = field.metadata["bounds"]
    return f"{kind}, {low} or more" if math.isinf(high) else f"{kind}, {low} to {high}"
