# SPDX-License-Identifier: Apache-2.0
"""All pre-training metrics of a checkpoint on held-out records.

python -m electra_jax.evaluate --workdir=runs/tiny
python -m electra_jax.evaluate --workdir=runs/tiny --step=500 --json
"""

import json

from absl import flags

from electra_jax import checkpointed, command, writers
from electra_jax import config as config_lib

_STEP = flags.DEFINE_integer("step", None, "Which checkpoint; the newest without it.")
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object as the last line.", allow_override=True
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Evaluates and prints."""
    opened = checkpointed.open_workdir(config, workdir, _STEP.value)
    values = checkpointed.evaluate(opened)
    print(writers.evaluation_block(opened.step, opened.config.schedule.steps, values))
    if _JSON.value:
        print(json.dumps({"step": opened.step} | values))


if __name__ == "__main__":
    command.run(main)
