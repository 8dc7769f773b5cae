# SPDX-License-Identifier: Apache-2.0
"""Runs commands one after another, each in a fork of this process.

Importing jax and the package takes two seconds, and this process does it only once for all
commands. It reads one JSON object per line, {"module", "argv", "cwd", "env", "output",
"parse_only"}, writes what the command prints to OUTPUT/stdout and OUTPUT/stderr, and prints its
exit code. No device is used before the fork.

`support/command_server.py` is the other end.
"""

import atexit
import json
import os
import pathlib
import runpy
import sys
import traceback


def serve() -> None:
    """Runs the commands of standard input until it ends."""
    from electra_jax.cli import command
    from electra_jax.finetuning.tuning import task_by_task  # noqa: F401, PLC0415
    from electra_jax.training import loop  # noqa: F401, PLC0415

    assert callable(command._run), "what --parse_only replaces has another name now"
    for line in sys.stdin:
        task = json.loads(line)
        sys.stdout.flush()
        process = os.fork()
        if not process:
            _work(**task)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _work(module, argv, cwd, env, output, parse_only):
    """Runs the command in the forked process and exits with its code; never returns."""
    code = 1
    try:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.path[0] = cwd  # as `python -m` does
        _redirect(pathlib.Path(output))
        sys.argv = [module, *argv]
        if parse_only:
            from electra_jax.cli import command  # noqa: PLC0415

            command._run = lambda work, argv: None
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(folder):
    """Nothing to read, and a file for each of the two ways to print."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)


if __name__ == "__main__":
    serve()
