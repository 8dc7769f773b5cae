# SPDX-License-Identifier: Apache-2.0
"""Text -> vocabulary -> fixed-length token records, resumable, with a manifest.

    python -m electra_jax.prepare --config=configs/tiny.py --workdir=runs/tiny
    python -m electra_jax.prepare --config=configs/tiny.py --workdir=runs/tiny --verify_data

`electra_jax.main` does this by itself where the data is not there yet; this command is for doing
it beforehand, on a machine with many cores, and for looking at what came out.
"""

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.data import records
from electra_jax.report import data_summary
from electra_jax.training import runs

_VERIFY = flags.DEFINE_bool("verify_data", False, "Read every record file and compare checksums.")


def main(config: config_lib.Config, workdir: str) -> None:
    """Prepares the rows of every stage, checks if asked to, and prints what there is."""
    for folder in dict.fromkeys(runs.prepare(config, workdir)):
        if _VERIFY.value:
            records.verify(folder, logging.info)
        print(data_summary.text(folder))


if __name__ == "__main__":
    command.run(main)
