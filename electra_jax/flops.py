# SPDX-License-Identifier: Apache-2.0
"""Counts parameters and floating-point operations of the paper's models or of a configuration.

    python -m electra_jax.flops
    python -m electra_jax.flops --config=configs/small.py
    python -m electra_jax.flops --config=configs/small.py --tokens_per_second=2849 --device=a100
    python -m electra_jax.flops --config=configs/small.py --json > small.json

The tables give two conventions side by side. In the paper's convention a training step counts as
two forward passes, and a look-up of a token as a product with a one-hot vector
(`speed/paper_flops.py`). In the honest one a training step counts as three forward passes, only
matrix products count, and look-ups are free (`model/accounting.py`); the MFU is computed with this
one.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import json

import jax
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.speed import flops_figures, flops_tables
from electra_jax.workdir import prepared_data

_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of a table.", allow_override=True
)
_SPEED = flags.DEFINE_float(
    "tokens_per_second",
    None,
    "A measured speed of all devices together, padding not counted. Adds the MFU.",
)
_PADDING = flags.DEFINE_float(
    "padding_rate", 0.0, "The share of padding in the rows that ran at that speed."
)
_DEVICE = flags.DEFINE_string(
    "device", None, "The device that ran at that speed, such as a100; default: this machine's."
)
_DEVICES = flags.DEFINE_integer("devices", 1, "The number of devices that ran.", lower_bound=1)


def main(config: config_lib.Config | None, workdir: str | None) -> None:
    """Computes and prints; nothing is trained or written."""
    _check_flags(config is None)

    if config is None:
        found = flops_figures.published()
        printing.say(
            json.dumps({"published": found}) if _JSON.value else flops_tables.of_paper(found)
        )
        return

    if _PADDING.present and _SPEED.value is None and config.schedule.budget != "tokens":
        raise config_lib.ConfigError(
            "--padding_rate changes nothing here: it is used with --tokens_per_second, and for a"
            " budget in tokens"
        )
    found = flops_figures.of_config(
        config,
        prepared_data.vocabulary_size(prepared_data.RunData.of(config, workdir)),
        _SPEED.value,
        _PADDING.value,
    )
    if _SPEED.value is not None:
        kind = _DEVICE.value or jax.devices()[0].device_kind
        found |= flops_figures.mfu(found, _SPEED.value, kind, _DEVICES.value, _PADDING.value)

    printing.say(json.dumps(found) if _JSON.value else flops_tables.of_config(found))


def _check_flags(alone: bool) -> None:
    """Raises ConfigError if the flags do not fit together; `alone` means without --config."""
    if alone and _SPEED.value is not None:
        raise config_lib.ConfigError("--tokens_per_second needs a --config: that of the run")
    if _SPEED.value is None and (_DEVICE.present or _DEVICES.present):
        raise config_lib.ConfigError("--device and --devices need --tokens_per_second")
    if _SPEED.value is not None and not 0 < _SPEED.value < float("inf"):
        raise config_lib.ConfigError(f"--tokens_per_second={_SPEED.value} is not positive")
    if alone and _PADDING.present:
        raise config_lib.ConfigError("--padding_rate needs a --config: that of the run")
    if not 0 <= _PADDING.value < 1:
        raise config_lib.ConfigError(
            f"--padding_rate={_PADDING.value} is not a share of the positions; give a number from 0"
            " to below 1, as the log and the benchmark print it"
        )


if __name__ == "__main__":
    command.run(main, config_needed=False)
