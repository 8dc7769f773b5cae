# SPDX-License-Identifier: Apache-2.0
"""Pre-trains ELECTRA.

    python -m electra_jax.main --config=configs/tiny.py
    python -m electra_jax.main --config=configs/base.py --workdir=runs/base
    python -m electra_jax.main --config=configs/small.py --config.data.source='text:corpus/*.txt'

Prepares the data if that is not done yet, then trains, evaluates, saves and reports. After an
interruption the same command continues exactly where the run stopped.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage
    from electra_jax.host import huge_pages

    # Before all other imports: help answers at once, and the program may be started again.
    usage.answer(__file__)
    huge_pages.use_huge_pages()

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.data import records
from electra_jax.speed import dry_run
from electra_jax.training import before_the_run, loop, run_data, trained_run

_DRY_RUN = flags.DEFINE_bool(
    "dry_run",
    False,
    "Print parameters, FLOPs, memory, room for checkpoints, epochs and time, and stop.",
)
_VERIFY = flags.DEFINE_bool(
    "verify_data",
    False,
    "First read all prepared records and compare their checksums.",
    allow_override=True,
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Trains, or with --dry_run prints what training would take."""
    if _DRY_RUN.value:
        trained_run.check_settings(config, workdir)
        print(dry_run.text(config, workdir))
        return

    if _VERIFY.value:
        # Stages with the same row length share a folder.
        with before_the_run.alone_in(workdir):
            for folder in dict.fromkeys(run_data.prepare(config, workdir)):
                records.verify(folder, logging.info)

    loop.train(config, workdir)


if __name__ == "__main__":
    command.run(main)
