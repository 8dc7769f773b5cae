# SPDX-License-Identifier: Apache-2.0
"""Runs a command by its name, as `electra-jax` or `python -m electra_jax`.

    electra-jax                      lists the commands
    electra-jax COMMAND --help       describes one
    electra-jax main --config=tiny   runs it
    electra-jax help data.rows       describes a setting, or with `data` all of a section;
                                     those of pre-training and those of fine-tuning
    electra-jax --help=data.rows     the same, as the commands write it

Each command is also a module of its own, so that `python -m` can run it without this one.
"""

import difflib
import importlib.metadata
import os
import runpy
import sys

from electra_jax.cli import printing, usage
from electra_jax.host import program

HERE = os.path.dirname(os.path.abspath(__file__))
COMMANDS = (  # in the order in which they are needed
    "prepare", "main", "show", "evaluate", "score", "finetune", "predict", "convert", "compare",
    "check", "flops", "compile", "benchmark",
)  # fmt: skip


def main() -> None:
    """Runs the command that the first argument names, with the arguments after it."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name.startswith("--help="):
        name, rest = "help", [name.removeprefix("--help=")]

    if name in ("-h", "--help") or (name == "help" and not rest):
        printing.say(overview())
    elif name == "--version":
        print(importlib.metadata.version("electra_jax"))
    elif name == "help" and rest[0] in COMMANDS:
        usage.answer(file_of(rest[0]), argv=["", "--help"])
    elif name == "help":
        from electra_jax.cli import settings_help  # noqa: PLC0415 - imports more than this file

        sys.exit(settings_help.show(rest[0], *settings_help.FILES))
    elif name in COMMANDS:
        sys.argv[:] = [file_of(name), *rest]
        runpy.run_module(f"electra_jax.{name}", run_name="__main__", alter_sys=True)
    else:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"commands: {', '.join(COMMANDS)}"
        print(f"error: there is no command {name!r}; {hint}", file=sys.stderr)
        sys.exit(2)


def overview() -> str:
    """Returns the commands with what each does, and how to begin."""
    lines = ["Pre-trains text encoders by replaced-token detection (ELECTRA).", "", "Commands:"]
    for name in COMMANDS:
        lines.append(f"  {name:<10} {' '.join(usage.summary(file_of(name)).split())}")
    lines += [
        "",
        f"To begin: {program.command('main')} --config=tiny",
        f"{program.name()} help COMMAND describes a command,",
        f"{program.name()} help data.rows a setting.",
    ]
    return "\n".join(lines)


def file_of(name: str) -> str:
    """Returns the source file of a command."""
    return os.path.join(HERE, f"{name}.py")


if __name__ == "__main__":
    main()
