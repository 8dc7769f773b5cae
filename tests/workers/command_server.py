# SPDX-License-Identifier: Apache-2.0
"""Runs commands one after another, each in a fork of this process.

Importing jax and the package takes two seconds, and this process does it only once for all
commands. It reads one JSON object per line, {"module", "argv", "cwd", "env", "parse_only"}, writes
the output of the command to CWD/output.txt, and prints its exit code. No device is used before the
fork.
"""

import json
import os
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


def _work(module, argv, cwd, env, parse_only):
    """Runs the command in the forked process and exits with its code; never returns."""
    code = 1
    try:
        os.chdir(cwd)
        os.environ.update(env)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
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
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
