# SPDX-License-Identifier: Apache-2.0
"""How fast a configuration trains here, and where its time goes; on made-up rows, nothing is kept.

    python -m electra_jax.benchmark --config=configs/small.py --config.data.batch_size=16
    python -m electra_jax.benchmark --config=configs/base.py --json > base.json

The step is the run's own. Parts are timed alone, with their gradients, on one device; together
they may take more or less than the step, in which they overlap.
"""

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()  # first of all: the program begins anew

import json
import sys

import jax
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.data import vocabulary
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
    """Measures and prints; the workdir is not touched."""
    low, high = vocabulary.SIZES
    if _VOCAB.value and not low <= _VOCAB.value <= high:
        raise config_lib.ConfigError(
            f"--vocab_size={_VOCAB.value} is outside [{low}, {high:,}]; 0: as data.vocab says"
        )
    jax.config.update("jax_enable_compilation_cache", False)  # compile seconds are to be real
    say = (lambda line: print(line, file=sys.stderr)) if _JSON.value else print
    found = measurement.measure(
        config,
        _VOCAB.value or prepared_data.vocabulary_size(config, workdir),
        _STEPS.value,
        _PARTS.value,
    )
    if _JSON.value:
        print(json.dumps(found))
    else:
        say(measurement.table(found))


if __name__ == "__main__":
    command.run(main)
