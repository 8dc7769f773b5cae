# SPDX-License-Identifier: Apache-2.0
"""Options that the compiler of a device needs, because without them it fails."""

import jax


def needed(device: jax.Device) -> dict[str, bool | int | str]:
    """Returns {name: value} of XLA's options for programs of this device; mostly empty."""
    if device.device_kind == "TPU v6 lite" and jax.__version_info__ < (0, 12):
        # The compiler of jax 0.10.2 (libtpu 0.0.42.1) ends with signal 11 on the step of `small`
        # and `large`, where it weighs the fusion of two products. That of jax 0.12.0.1 (libtpu
        # 0.0.50.1) compiles them; 0.11 was not tried.
        return {"xla_tpu_dot_dot_fusion": False}

    return {}
