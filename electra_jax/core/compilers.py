# SPDX-License-Identifier: Apache-2.0
"""Options of XLA: those without which a compiler fails, and those that it refuses."""

from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import Mesh

from electra_jax.core import sharding


def needed(device: jax.Device) -> dict[str, bool | int | str]:
    """Returns {name: value} of XLA's options for programs of this device; usually empty."""
    if device.device_kind == "TPU v6 lite" and jax.__version_info__ < (0, 12):
        # The compiler of jax 0.10.2 (libtpu 0.0.42.1) crashes (signal 11) on the step of `small`
        # and `large`, while it decides whether to fuse two products. That of jax 0.12.0.1 (libtpu
        # 0.0.50.1) compiles them; 0.11 was not tried.
        return {"xla_tpu_dot_dot_fusion": False}

    return {}


def refused(options: Mapping[str, bool | int | str], mesh: Mesh) -> str:
    """Returns why the compiler of these devices refuses an option; '' if it takes all."""
    if not options:
        return ""

    number = jax.ShapeDtypeStruct((), np.float32, sharding=sharding.replicated(mesh))
    try:
        jax.jit(lambda x: x + 1, compiler_options=dict(options)).lower(number).compile()
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[0]
    return ""
