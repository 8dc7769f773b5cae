# SPDX-License-Identifier: Apache-2.0
"""Explains in one line what is wrong with a command line or a configuration file."""

import ast
import dataclasses
import os
import re
import traceback
from collections.abc import Sequence

from ml_collections import ConfigDict

from electra_jax import config as config_lib
from electra_jax.cli import config_flag
from electra_jax.host import error_causes

# So ml_collections begins the errors of a configuration file that it raises again, of their class.
_WITH_TRACE = "Error whilst parsing config file"


def explain(error: BaseException, argv: Sequence[str]) -> str:
    """Returns one line that says what is wrong and, for a misspelt field, names the nearest one.

    Args:
      error: raised by absl, ml_collections, a configuration file or our own checks.
      argv: the command line.
    """
    for cause in error_causes.of(error):
        if isinstance(cause, config_lib.ConfigError) and _WITH_TRACE not in str(cause):
            return " ".join(str(cause).split())

    if place := in_config_file(error, argv):
        cause = next(cause for cause in error_causes.of(error) if _place(cause, argv))
        # A KeyError shows its text with quotes and escapes, also within another error.
        message = cause
        while isinstance(message, KeyError | AttributeError) and message.args:
            message = message.args[0]
        return f"{place}: {type(cause).__name__}: {' '.join(str(message).split())}"

    named = config_flag.value_of(argv, "config")
    if "has no attribute 'get_config'" in str(error) and named:
        return f"--config={named} defines no get_config(); see configs/base.py"

    # The overrides are checked again one by one, for a message that names the nearest field or says
    # what the value has to be.
    overrides = [arg[len("--config.") :] for arg in argv if arg.startswith("--config.")]
    if overrides:
        tree = config_flag.named_config(argv)
        for override in overrides if tree else ():
            path = override.partition("=")[0]
            problem = config_flag.unknown_field(path, tree) or _mistyped(override, tree)
            if problem:
                return problem

    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if section := re.match(r"Unknown command line flag '(\w+)\.", text):
        if section[1] in {field.name for field in dataclasses.fields(config_lib.Config)}:
            flag = text.split("'")[1]
            return f"--{flag} is not a flag; did you mean --config.{flag}?"
    for theirs, ours in _PLAINLY.items():
        text = re.sub(theirs, ours, text)
    return " ".join(text.split()) or type(error).__name__


def in_config_file(error: BaseException, argv: Sequence[str]) -> str:
    """Returns 'FILE.py, line 3' if a line of the named configuration file failed; else ''.

    ml_collections raises errors of its own from those of the file.
    """
    return next(filter(None, (_place(cause, argv) for cause in error_causes.of(error))), "")


def _place(error, argv):
    """The line of the named configuration file in which an error came up; '' if in none."""
    named = config_flag.value_of(argv, "config").partition(":")[0]
    if not named or isinstance(error, config_lib.ConfigError):
        return ""
    if isinstance(error, SyntaxError) and os.path.isfile(error.filename or ""):
        return f"{error.filename}, line {error.lineno}"

    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == os.path.abspath(named)
    ]
    return f"{named}, line {lines[-1]}" if lines else ""


def _mistyped(override: str, tree: ConfigDict) -> str | None:
    """Returns why a field cannot hold the value of `section.field=value`; None if it can."""
    path, equals, given = override.partition("=")
    value = tree
    for name in path.split("."):
        value = value[name]

    if isinstance(value, ConfigDict):
        return f"config.{path} is a section; give one of its fields: {', '.join(value)}"

    wanted = _KINDS.get(type(value))
    if wanted is None or not equals:
        return None

    words, read = wanted
    try:
        read(given)
    except (ValueError, SyntaxError):
        return f"config.{path}={given!r} is not {words}; without this flag it is {value!r}"

    return None


def _truth(text):
    if text.lower() not in ("true", "false", "t", "f", "1", "0"):
        raise ValueError(text)


def _sequence(text):
    if not isinstance(ast.literal_eval(text), list | tuple):
        raise ValueError(text)


_KINDS = {
    bool: ("true or false", _truth),
    int: ("a whole number", int),
    float: ("a number", float),
    tuple: ("a tuple, such as '(10, 12)'", _sequence),
}


_PLAINLY = {
    r"invalid literal for int\(\) with base 10: .*": "it is not a whole number",
    r"could not convert string to float: .*": "it is not a number",
}
