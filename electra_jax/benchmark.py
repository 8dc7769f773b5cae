# SPDX-License-Identifier: Apache-2.0
"""Measures how fast a configuration trains on this machine, and where its time goes.

    python -m electra_jax.benchmark --config=configs/small.py --config.data.batch_size=16
    python -m electra_jax.benchmark --config=configs/base.py --json > base.json
    python -m electra_jax.benchmark --config=configs/tiny.py --config.model.scan=off

It uses made-up rows and writes nothing. The step is the one that a run takes; if the run has stages
(`schedule.stages`), it is that of the first, and the table names the others. On one device the
parts of the step are also timed alone, with their gradients. Their sum may be more or less than the
time of the step, in which they overlap. On a CPU a large matrix product is timed in bfloat16 and
float32, since it depends on the CPU which of them is faster.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage
    from electra_jax.host import huge_pages

    # Before all other imports: help answers at once, and the program may be started again.
    usage.answer(__file__)
    huge_pages.use_huge_pages()

import json

import jax
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.data import vocabulary_training
from electra_jax.host import cluster, processes
from electra_jax.speed import measurement
from electra_jax.workdir import prepared_data

_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of a table.", allow_override=True
)
_STEPS = flags.DEFINE_integer("steps", 10, "Steps that are timed.", lower_bound=1)
_PARTS = flags.DEFINE_bool("parts", True, "Time the parts of the step too; one device only.")
_VOCAB = flags.DEFINE_integer(
    "vocab_size", 0, "Size of the made-up vocabulary; 0: what data.vocab says.", lower_bound=0
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Measures and prints; nothing is written to the workdir."""
    low, high = vocabulary_training.SIZES
    if _VOCAB.value and not low <= _VOCAB.value <= high:
        raise config_lib.ConfigError(
            f"--vocab_size={_VOCAB.value} is outside [{low}, {high:,}]; 0: as data.vocab says"
        )

    cluster.check_chips_are_free()
    # The seconds of compiling are measured too.
    jax.config.update("jax_enable_compilation_cache", False)
    found = measurement.measure(
        config,
        _VOCAB.value or prepared_data.vocabulary_size(prepared_data.RunData.of(config, workdir)),
        _STEPS.value,
        _PARTS.value,
    )

    if not processes.is_first():
        return
    printing.say(json.dumps(found) if _JSON.value else measurement.table(found))


if __name__ == "__main__":
    command.run(main)
