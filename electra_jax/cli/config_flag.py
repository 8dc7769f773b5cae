# SPDX-License-Identifier: Apache-2.0
"""Which configuration a command line names, and the overrides of its fields.

`define_config` defines the flag --config: from the file that the command line names, or from the
settings that the workdir has saved. absl and ml_collections then parse the flag and the overrides
--config.SECTION.FIELD=VALUE, except for those that `without_keywords` takes out first.
"""

import importlib.util
import keyword
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from electra_jax import config as config_lib
from electra_jax import configs
from electra_jax.host import buckets, program, safe_files, staging
from electra_jax.workdir import metadata, saved_config

_CONFIG_FLAGS = ("--config", "-config")


def define_config(argv: Sequence[str]) -> None:
    """Defines --config, from the file that is named or else from the settings of the workdir.

    Raises ConfigError if neither names a configuration.
    """
    if "config" in flags.FLAGS:
        delattr(flags.FLAGS, "config")

    given = given_config(argv)
    saved = None if given else config_of_workdir(argv)
    if saved is not None:
        config_flags.DEFINE_config_dict("config", saved)
        return

    if not given and not {"--help", "--helpfull", "-h"} & set(argv):
        raise config_lib.ConfigError(_no_config(argv))

    config_flags.DEFINE_config_file("config", None, "A configuration, such as tiny, or a file.")


def check_values(argv: Sequence[str]) -> None:
    """Raises ConfigError for a flag without a value, since absl would take the next flag as it."""
    for arg, following in zip(argv[1:], [*argv[2:], None]):
        if arg == "--":
            return
        if arg.startswith("-") and _takes_value(arg) and (following is None or _is_flag(following)):
            name = arg.lstrip("-")
            raise config_lib.ConfigError(f"--{name} has no value; write --{name}=VALUE")


def check_overrides(argv: Sequence[str], tree: ConfigDict) -> None:
    """Raises ConfigError if an override without a value has taken the next flag as its value."""
    for arg, following in zip(argv[1:], argv[2:]):
        path = arg.lstrip("-").removeprefix("config.")
        if arg.startswith("--config.") and "=" not in arg and following.startswith("--"):
            value: Any = tree
            for name in path.split("."):
                value = value[name]
            if value == following:
                raise config_lib.ConfigError(f"{arg} has no value; write {arg}=VALUE")


def _takes_value(arg):
    """Whether an argument is a flag that takes the next argument as its value."""
    name = arg.lstrip("-")
    if name in flags.FLAGS:
        return not flags.FLAGS[name].boolean
    return name == "config"


def _is_flag(arg):
    """Whether an argument is a flag; a value may begin with one dash, as -1 does."""
    name = arg.lstrip("-").partition("=")[0]
    return arg.startswith("--") or arg.startswith("-") and (name in flags.FLAGS or name == "config")


def with_file(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the file of --config in place of its name, before all flags.

    ml_collections refuses an override that stands before it.

    Raises ConfigError if there is no such file and no such configuration in the package, and if
    several are named.
    """
    if len(given_config(argv)) > 1:
        raise config_lib.ConfigError(
            "--config is given twice; take one file, and set what differs in the other as"
            " --config.SECTION.FIELD=VALUE"
        )

    named, others, is_value = [], [], False
    for arg in argv:
        flag, equals, value = arg.partition("=")
        if is_value:
            named = [others.pop(), _file(arg)]
        elif equals and flag in _CONFIG_FLAGS:
            named = [f"{flag}={_file(value)}"]
        else:
            others.append(arg)
        is_value = arg in _CONFIG_FLAGS
    return [*others[:1], *named, *others[1:]]


def _file(given):
    """Returns FILE[:ARGUMENT] for the value NAME[:ARGUMENT] of --config."""
    name, colon, argument = given.partition(":")
    file = configs.path(name)
    if file is None:
        asked = os.path.basename(name).removesuffix(".py")
        raise config_lib.ConfigError(
            f"--config={name} is no file and no configuration of the package;"
            f" {config_lib.nearest(asked, configs.names())}"
        )

    # A file of your own may import others as `FOLDER.NAME`, whatever the current folder is.
    if os.path.dirname(os.path.abspath(file)) != configs.FOLDER:
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(file))))
    return file + colon + argument


def _no_config(argv: Sequence[str]) -> str:
    """Returns why there is no configuration: none is named, or the workdir has none."""
    workdir = _workdir(argv)
    if not workdir:
        return "--config is missing: --config=tiny, or --workdir of a run that was begun"

    begin = f"{program.command('main')} --config=tiny --workdir={workdir} begins one"
    if not os.path.exists(workdir):
        return f"there is no workdir {workdir}; {begin}"
    if not os.path.isdir(workdir):
        return f"--workdir={workdir} is a file; give the folder of a run"

    if metadata.steps(metadata.directory(workdir)):
        return (
            f"{workdir} holds no config.json, and none of its checkpoints says how it was trained;"
            " give the configuration that it was begun with, as --config=FILE.py"
        )

    return f"{workdir} holds no config.json, so no run was begun there; {begin}"


def names_a_run(argv: Sequence[str]) -> bool:
    """Returns whether an argument names a configuration or a workdir, or asks for help."""
    names = [arg.lstrip("-").partition("=")[0].partition(".")[0] for arg in argv[1:]]
    return bool({"config", "workdir", "help", "helpfull", "h"} & set(names))


def without_keywords(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Takes out the overrides of fields whose name is a Python keyword, such as `init.from`.

    Returns (the other arguments, {path of such a field: its value}). ml_collections evaluates the
    path of an override as Python, where `init.from` is a syntax error.
    """
    rest, found = [], {}
    for arg in argv:
        path, equals, value = arg.lstrip("-").partition("=")
        if equals and path.startswith("config.") and keyword.iskeyword(path.rpartition(".")[2]):
            found[path.removeprefix("config.")] = value
        else:
            rest.append(arg)
    return rest, found


def override(tree: ConfigDict, values: Mapping[str, str]) -> None:
    """Sets text fields by their paths. Raises ConfigError if a path is unknown."""
    for path, value in values.items():
        if unknown := unknown_field(path, tree):
            raise config_lib.ConfigError(unknown)

        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node[section]
        node[name] = value


def unknown_field(path: str, tree: ConfigDict) -> str | None:
    """Returns a line that says which part of `section.field` is unknown; None if all are known."""
    node, seen = tree, ""
    for name in path.split("."):
        if not isinstance(node, ConfigDict):
            return f"config.{seen.rstrip('.')} is a value and has no field {name!r}"
        if name not in node:
            return f"unknown field config.{seen}{name}; {config_lib.nearest(name, list(node))}"
        node, seen = node[name], f"{seen}{name}."

    return None


def value_of(argv: Sequence[str], name: str) -> str:
    """Returns the last value of a flag written --NAME=VALUE or --NAME VALUE; '' without one.

    Needed before the flags are parsed, because --config and --workdir decide how to parse them.
    """
    found = ""
    for arg, following in zip(argv, [*argv[1:], ""]):
        flag, equals, value = arg.partition("=")
        if flag in (f"--{name}", f"-{name}"):
            found = value if equals else following
    return found


def given_config(argv: Sequence[str]) -> list[str]:
    """Returns the arguments that are the flag --config itself, not one of its overrides."""
    return [arg for arg in argv if arg.split("=")[0] in _CONFIG_FLAGS]


def named_config(argv: Sequence[str]) -> ConfigDict | None:
    """Returns the configuration without overrides, since parsing stopped at the first bad one."""
    given = value_of(argv, "config")
    if not given:
        return config_of_workdir(argv)

    path, _, argument = given.partition(":")
    spec = importlib.util.spec_from_file_location("named_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(argument) if argument else module.get_config()


def config_of_workdir(argv: Sequence[str]) -> ConfigDict | None:
    """Returns the settings of the run in --workdir; None without one.

    Raises ConfigError if they are damaged.
    """
    workdir = _workdir(argv)
    found = saved_config.of_run(workdir) if workdir else None
    return None if found is None else ConfigDict(_with_tuples(config_lib.to_tree(found)))


def _workdir(argv):
    """The workdir, or its copy on this machine with the settings that lie in a bucket."""
    workdir = value_of(argv, "workdir")
    if not buckets.is_address(workdir):
        safe_files.check_no_address(workdir, "--workdir", config_lib.ConfigError)
        return workdir
    buckets.check(workdir, "--workdir", config_lib.ConfigError)
    here = staging.local(workdir)
    staging.fetch(here, (saved_config.NAME,))
    return here


def _with_tuples(value):
    """Turns the lists of JSON into tuples: ml_collections can override only tuples by flags."""
    if isinstance(value, dict):
        return {name: _with_tuples(part) for name, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
