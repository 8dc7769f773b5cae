# SPDX-License-Identifier: Apache-2.0
"""Prepares data: text -> vocabulary -> records with rows of a fixed length, and their manifest.

    python -m electra_jax.prepare --config=configs/tiny.py --workdir=runs/tiny
    python -m electra_jax.prepare --config=configs/tiny.py --workdir=runs/tiny --verify_data

The command `main` does this by itself if the data is not prepared yet. Use this command to do it
beforehand, for example on a machine with many cores, and to see a summary of the result. After an
interruption the same command continues.

    python -m electra_jax.prepare --config=configs/base.py --workdir=/shared/runs/base --ray=auto

prepares on all nodes of a cluster of Ray (docs/data.md).
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.data import ray_workers, records
from electra_jax.host import processes
from electra_jax.report import data_summary
from electra_jax.training import before_the_run, run_data

_VERIFY = flags.DEFINE_bool(
    "verify_data", False, "Read every record file and compare checksums.", allow_override=True
)
_RAY = flags.DEFINE_string(
    "ray",
    "",
    "HOST:PORT of the head of a cluster of Ray whose nodes prepare the text, or `auto`: the cluster"
    " that this machine belongs to. All nodes see the prepared folder, or it is in a bucket.",
    allow_override=True,
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Prepares the rows of every stage, verifies them if asked to, and prints a summary."""
    make_executor = None
    if _RAY.value:
        if not processes.is_alone():
            raise config_lib.ConfigError(
                f"--ray={_RAY.value} is for one process, which uses the cluster; start one"
            )
        ray_workers.check(_RAY.value)
        make_executor = ray_workers.factory(_RAY.value)

    # Stages with the same row length share a folder.
    with before_the_run.alone_in(workdir):
        for folder in dict.fromkeys(run_data.prepare(config, workdir, make_executor)):
            if _VERIFY.value:
                records.verify(folder, logging.info)
            print(data_summary.text(folder))


if __name__ == "__main__":
    command.run(main)
