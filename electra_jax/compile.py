# SPDX-License-Identifier: Apache-2.0
"""Compiles the training step for chips that are not here: does it fit, and what do they exchange?

    python -m electra_jax.compile --config=configs/base.py --topology=v5e:2x4
    python -m electra_jax.compile --config=configs/large.py --topology=v5e:16x16 --json > large.json
    python -m electra_jax.compile --config=configs/small.py --topology=2xv5e:4x4  # two slices

The step is the one that a run takes, with the configuration's mesh, batch and precision. Topologies
are v4, v5e, v5p, v6e (v5e:2x4 are eight chips) and h100, h200 (h100:8), and several slices of them
(2xv5e:4x4). With schedule.stages the step of each row length and batch is compiled; verdict and
figures are of the stage that needs most memory, which is named. It needs the compilers of these
chips, `pip install -e '.[aot]'`, and takes one to ten minutes per step, longer if it tries other
settings too. Nothing is trained or written.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import json

import ml_collections
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.speed import ahead_of_time, chips, remedies, topology_fit
from electra_jax.workdir import prepared_data

_TOPOLOGY = flags.DEFINE_string(
    "topology",
    None,
    "The chips, such as v5e:2x4, v5e:16x16, 2xv5e:4x4, v4:2x2x2, v6e:2x4 or h100:8.",
)
_REMEDIES = flags.DEFINE_bool(
    "remedies",
    True,
    "If it does not fit, try settings with which it may: model.remat, mesh.fsdp,"
    " schedule.accumulation, mesh.tensor, then pairs of them. If it fits, try whether it does with"
    " less model.remat. If its rows cannot be split, try a larger mesh.tensor.",
)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of a table.", allow_override=True
)


def main(config: config_lib.Config, workdir: str) -> int:
    """Compiles and prints; returns 0 if the configuration fits, 1 if not."""
    if _TOPOLOGY.value is None:
        raise config_lib.ConfigError("--topology is needed, such as --topology=v5e:2x4")

    try:
        topology = chips.topology(_TOPOLOGY.value)
    except ValueError as error:
        raise config_lib.ConfigError(str(error)) from error

    vocab_size = prepared_data.vocabulary_size(prepared_data.RunData.of(config, workdir))
    tree = ml_collections.ConfigDict(config_lib.to_tree(config))

    def compile_(changed: ml_collections.ConfigDict) -> ahead_of_time.StepOnChips:
        return ahead_of_time.compile_in_subprocess(changed, topology, vocab_size)

    def announce(line: str) -> None:
        if not _JSON.value:
            printing.say(line)

    made = list(remedies.trials(tree, topology, compile_, _REMEDIES.value, announce))
    if _JSON.value:
        printing.say(json.dumps(topology_fit.as_json(tree, topology, made)))
    else:
        printing.say("\n".join(topology_fit.table(tree, topology, made)))
    return 0 if made[0].found.fits(topology.chip) else 1


if __name__ == "__main__":
    command.run(main)
