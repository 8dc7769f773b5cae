# SPDX-License-Identifier: Apache-2.0
"""What every command does before its own work: flags, configuration, processes, errors.

`run(main)` defines --config and --workdir, parses, starts jax.distributed where there are several
processes, calls `main(config, workdir)`, and turns bad input into one line and exit code 2.
`run_on_paths(main)` is for a command that has no configuration of its own: `main(paths)`.
"""

import ast
import glob
import importlib.util
import keyword
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from absl import app, flags
from ml_collections import ConfigDict, config_flags

from electra_jax import config as config_lib
from electra_jax.host import logs, peers, safe_files, signals
from electra_jax.workdir import metadata, saved_config

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where a run keeps everything it makes; runs/NAME of the config."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "HOST:PORT of process 0; TPU pods and Slurm need no flag."
)
_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes train together.")
_PROCESS = flags.DEFINE_integer("process_id", None, "This process's number, from 0.")
_START_TIMEOUT = flags.DEFINE_float(
    "start_timeout",
    peers.START_SECONDS,
    "Seconds that a process waits for the others at its start; after 10 it says for whom.",
    lower_bound=1,
)
_STOP_TIMEOUT = flags.DEFINE_float(
    "stop_timeout",
    signals.STOP_SECONDS,
    "Seconds from SIGTERM or Ctrl-C to the end of the step at which a run saves; one that hangs"
    " longer ends without saving. A second signal ends at once.",
    lower_bound=1,
)

_REFUSALS = (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError)
_BAD_INPUT = 2  # exit codes
_FAILED = 1
_INTERRUPTED = 130  # a KeyboardInterrupt that is not of `signals`


def run(
    main: Callable[[Any, str], int | None],
    argv: Sequence[str] | None = None,
    config_needed: bool = True,
    config_file: str = "",
    parse: Callable[[ConfigDict], Any] | None = None,
) -> None:
    """Runs a command and exits.

    Args:
      main: takes the parsed configuration and the workdir; returns an exit code or None.
      argv: sys.argv in tests.
      config_needed: if not, and nothing on the command line speaks of a run, main gets two Nones.
      config_file: the one for a command that needs no --config.
      parse: of a command whose configuration is of another kind than the workdir's config.json.
    """
    argv = list(sys.argv if argv is None else argv)
    app.define_help_flags()
    for flag in (_WORKDIR, _COORDINATOR, _PROCESSES, _PROCESS, _START_TIMEOUT, _STOP_TIMEOUT):
        # --help shows a command's own flags and these.
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[flag.name])
    config = workdir = None
    try:
        if config_file and not _given_config(argv) and (parse or _saved_config(argv) is None):
            argv.insert(1, f"--config={config_file}")
        if config_needed or _speaks_of_a_run(argv):
            define_config(argv)
        given, keywords = _without_keywords(argv)
        sys.argv[:] = _without_keywords(sys.argv)[0]  # ml_collections looks there for itself
        rest = flags.FLAGS(given)
        if len(rest) > 1:
            raise config_lib.ConfigError(
                f"{rest[1]!r} is not a flag; write --{rest[1].lstrip('-')}"
            )
        if "config" in flags.FLAGS:
            _override(flags.FLAGS["config"].value, keywords)
            config = (parse or config_lib.parse)(flags.FLAGS["config"].value)
            workdir = _WORKDIR.value or os.path.join("runs", config.name)
            safe_files.check_path(workdir, "--workdir", config_lib.ConfigError)
    except Exception as error:  # whatever a configuration file raises that is not Python yet
        if not (isinstance(error, _REFUSALS) or _in_config_file(error, argv)):
            raise
        _exit(_explain(error, argv), _BAD_INPUT)

    def work():
        start_processes()
        return main(config, workdir)

    _run(work, argv)


def run_on_paths(
    main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None
) -> None:
    """Runs a command whose arguments, but for its flags, are paths; and exits."""
    argv = list(sys.argv if argv is None else argv)
    app.define_help_flags()
    try:
        paths = flags.FLAGS(argv)[1:]
        if _WORKDIR.present:
            raise config_lib.ConfigError(f"write {_WORKDIR.value} without --workdir=")
    except (flags.Error, config_lib.ConfigError) as error:
        _exit(_explain(error, argv), _BAD_INPUT)
    _run(lambda: main(paths), argv)


def define_config(argv: Sequence[str]) -> None:
    """Defines --config: the file that is named, else the config.json of the workdir."""
    if "config" in flags.FLAGS:
        delattr(flags.FLAGS, "config")
    given = _given_config(argv)
    saved = None if given else _saved_config(argv)
    if saved is not None:
        config_flags.DEFINE_config_dict("config", saved)
        return
    if not given and not {"--help", "--helpfull", "-h"} & set(argv):
        raise config_lib.ConfigError(_no_config(argv))
    for arg in given:
        path = (arg.partition("=")[2] or _value_of(argv, "config")).partition(":")[0]
        if not os.path.isfile(path):
            known = ", ".join(sorted(glob.glob("configs/*.py"))) or "none under configs/ here"
            raise config_lib.ConfigError(f"--config={path} does not exist; known: {known}")
        # The files import one another as `configs.NAME`, from wherever the command is called.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    config_flags.DEFINE_config_file("config", None, "A file such as configs/tiny.py.")


def _no_config(argv: Sequence[str]) -> str:
    """Why there is no configuration: nothing names one, or what is named has none."""
    workdir = _value_of(argv, "workdir")
    if not workdir:
        return "--config is missing: --config=configs/tiny.py, or --workdir of a run that was begun"
    begin = f"python -m electra_jax.main --config=configs/tiny.py --workdir={workdir} begins one"
    if not os.path.exists(workdir):
        return f"there is no workdir {workdir}; {begin}"
    if not os.path.isdir(workdir):
        return f"--workdir={workdir} is a file; give the folder of a run"
    if metadata.steps(os.path.join(workdir, "checkpoints")):
        return (
            f"{workdir} holds no config.json, and none of its checkpoints says how it was trained;"
            " give the configuration that it was begun with, as --config=FILE.py"
        )
    return f"{workdir} holds no config.json, so no run was begun there; {begin}"


def start_processes() -> None:
    """jax.distributed by flags, on TPU machines and under Slurm; nothing to do elsewhere."""
    given = (_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
    if any(value is not None for value in given):
        if any(value is None for value in given):
            raise config_lib.ConfigError(
                "--coordinator_address, --num_processes and --process_id belong together"
            )
        peers.join(peers.Address(*given), _START_TIMEOUT.value)
    elif int(os.environ.get("SLURM_NTASKS", "1")) > 1 or _on_tpu():
        address = _found_by_jax()
        if address is None:
            jax.distributed.initialize()
        else:
            peers.join(address, _START_TIMEOUT.value)


def _found_by_jax() -> peers.Address | None:
    """What jax finds out by itself on TPU machines and under Slurm.

    It keeps that to itself; where a newer jax keeps it elsewhere, None.
    """
    try:
        from jax._src import clusters

        find = clusters.ClusterEnv.auto_detect_unset_distributed_params
        wait = int(_START_TIMEOUT.value)
        found = find(os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, wait)
        coordinator, count, me, devices = found
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    if None in (coordinator, count, me):
        return None
    return peers.Address(coordinator, count, me, devices)


def _run(work: Callable[[], int | None], argv: Sequence[str]) -> None:
    """Does the work and exits; an error that is written for the user becomes one line."""

    def guarded(_):
        signals.guard(_STOP_TIMEOUT.value)
        try:
            with peers.telling():
                code = work()
        except KeyboardInterrupt as error:
            code = getattr(error, "code", _INTERRUPTED)
            _print(str(error) or "interrupted; the same command goes on")
        except Exception as error:
            written = isinstance(error, ValueError | OSError | RuntimeError) and _is_ours(error)
            if not written and peers.group() is None:
                raise
            code = _BAD_INPUT if written and isinstance(error, ValueError) else _FAILED
            if written:
                _print(str(error))
            else:
                traceback.print_exc()
        if peers.group() is not None:
            peers.group().leave(code or 0)
        sys.exit(code)

    logs.show()
    app.run(guarded, argv=argv[:1], flags_parser=lambda args: args)


def _speaks_of_a_run(argv: Sequence[str]) -> bool:
    """Whether an argument names a configuration or a workdir, or asks for help with them."""
    names = [arg.lstrip("-").partition("=")[0].partition(".")[0] for arg in argv[1:]]
    return bool({"config", "workdir", "help", "helpfull", "h"} & set(names))


def _on_tpu() -> bool:
    """Whether this host has TPU chips and the library for them; asks without touching a device."""
    chips = glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*")
    if "tpu" not in (os.environ.get("JAX_PLATFORMS") or "tpu"):
        return False
    return bool(chips) and importlib.util.find_spec("libtpu") is not None


def _is_ours(error: BaseException) -> bool:
    """Errors raised by our own code are written for the user; any other is a bug to be seen."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace else ""
    ours = isinstance(error, OSError | config_lib.ConfigError)  # a command's own module is __main__
    return module.startswith("electra_jax") or ours


def _explain(error: BaseException, argv: Sequence[str]) -> str:
    """One line for what is wrong with the command line; a misspelt field gets the nearest name."""
    if place := _in_config_file(error, argv):
        return f"{place}: {type(error).__name__}: {error}"
    if "has no attribute 'get_config'" in str(error) and _value_of(argv, "config"):
        return f"--config={_value_of(argv, 'config')} defines no get_config(); see configs/base.py"
    overrides = [arg[len("--config.") :] for arg in argv if arg.startswith("--config.")]
    if overrides and not isinstance(error, config_lib.ConfigError):
        tree = _named_config(argv)
        for override in overrides:
            unknown = tree and _unknown_field(override.partition("=")[0], tree)
            if unknown or (unknown := tree and _mistyped(override, tree)):
                return unknown
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for theirs, ours in _PLAINLY.items():
        text = re.sub(theirs, ours, text)
    return " ".join(text.split()) or type(error).__name__


_PLAINLY = {
    r"invalid literal for int\(\) with base 10: .*": "it is not a whole number",
    r"could not convert string to float: .*": "it is not a number",
}


def _in_config_file(error: BaseException, argv: Sequence[str]) -> str:
    """'FILE.py, line 3' where the named configuration file itself raised this; else ''."""
    named = _value_of(argv, "config").partition(":")[0]
    if not named or isinstance(error, config_lib.ConfigError):
        return ""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    if frames and os.path.abspath(frames[-1].filename) == os.path.abspath(named):
        return f"{named}, line {frames[-1].lineno}"
    return ""


def _without_keywords(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments, and apart from them the overrides of fields that are named as a word of Python.

    ml_collections reads the path of an override as Python, where `init.from` is a syntax error.
    """
    rest, found = [], {}
    for arg in argv:
        path, equals, value = arg.lstrip("-").partition("=")
        if equals and path.startswith("config.") and keyword.iskeyword(path.rpartition(".")[2]):
            found[path.removeprefix("config.")] = value
        else:
            rest.append(arg)
    return rest, found


def _override(tree: ConfigDict, values: Mapping[str, str]) -> None:
    """Sets text fields by their paths. Raises ConfigError for an unknown one."""
    for path, value in values.items():
        if unknown := _unknown_field(path, tree):
            raise config_lib.ConfigError(unknown)
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node[section]
        node[name] = value


def _value_of(argv: Sequence[str], name: str) -> str:
    """The value of a flag that is written --NAME=VALUE or --NAME VALUE, the last one; or ''."""
    found = ""
    for arg, following in zip(argv, [*argv[1:], ""]):
        flag, equals, value = arg.partition("=")
        if flag in (f"--{name}", f"-{name}"):
            found = value if equals else following
    return found


def _given_config(argv: Sequence[str]) -> list[str]:
    return [arg for arg in argv if arg.split("=")[0] in ("--config", "-config")]


def _named_config(argv: Sequence[str]) -> ConfigDict | None:
    """The configuration without its overrides: parsing stopped at the first bad one."""
    given = _value_of(argv, "config")
    if not given:
        return _saved_config(argv)
    path, _, argument = given.partition(":")
    spec = importlib.util.spec_from_file_location("named_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(argument) if argument else module.get_config()


def _saved_config(argv: Sequence[str]) -> ConfigDict | None:
    """The settings of the workdir's run, if it has any. Raises ConfigError: they are damaged."""
    workdir = _value_of(argv, "workdir")
    found = saved_config.of_run(workdir) if workdir else None
    return None if found is None else ConfigDict(_with_tuples(config_lib.to_tree(found)))


def _with_tuples(value):
    """JSON has lists where a configuration has tuples, which alone can be overridden by a flag."""
    if isinstance(value, dict):
        return {name: _with_tuples(part) for name, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _unknown_field(path: str, tree: ConfigDict) -> str | None:
    node, seen = tree, ""
    for name in path.split("."):
        if not isinstance(node, ConfigDict):
            return f"config.{seen.rstrip('.')} is a value and has no field {name!r}"
        if name not in node:
            return f"unknown field config.{seen}{name}; {config_lib.nearest(name, list(node))}"
        node, seen = node[name], f"{seen}{name}."
    return None


def _mistyped(override: str, tree: ConfigDict) -> str | None:
    """What `section.field=value` says that the field cannot hold; None if nothing."""
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
        return f"config.{path}={given!r} is not {words}; it is {value!r} by itself"
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


def _exit(message: str, code: int) -> None:
    _print(message)
    sys.exit(code)


def _print(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
