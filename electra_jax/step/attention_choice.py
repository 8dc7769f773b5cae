# SPDX-License-Identifier: Apache-2.0
"""Chooses how attention is computed on the devices at hand.

config, row length, devices -> 'splash', 'fused', 'blockwise' or 'einsum'
"""

import functools

from jax.sharding import Mesh

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.model import attention


def choose(config: config_lib.Config, length: int, mesh: Mesh | None) -> str:
    """How attention over rows of this length is computed on the devices of the mesh.

    Without a mesh those of this machine count. Raises ConfigError if the configuration names a way
    that is not possible there.
    """
    model = config.model
    refused = functools.partial(_kernel_refused, config, length=length, mesh=mesh)
    if model.attention == "auto":
        long = model.attention_dropout == 0 and length >= 512
        ways = ["splash"] * long + ["fused", "blockwise", "einsum"]
        return next(way for way in ways if not refused(way))

    if reason := refused(model.attention):
        raise config_lib.ConfigError(
            f"model.attention={model.attention!r} {reason}; try model.attention=einsum"
        )
    return model.attention


def why_no_kernel(config: config_lib.Config, mesh: Mesh | None, length: int) -> str:
    """Why `auto` takes no kernel for attention over rows of this length on an accelerator.

    It is '' where it takes one, on CPUs, and if the configuration names the way.
    """
    kernel = {"tpu": "fused", "gpu": "blockwise"}.get(meshes.platform(mesh))
    if config.model.attention != "auto" or kernel is None:
        return ""
    if choose(config, length, mesh) != "einsum":
        return ""
    return f"{kernel} {_kernel_refused(config, kernel, length, mesh)}"


def _kernel_refused(config, way, length, mesh):
    """Why the networks that the objective reads cannot compute attention in this way, or ''."""
    model = config.model
    networks = [model.discriminator]
    if "model.generator" in config_lib.READS[config.objective.name]:
        networks = [model.generator, model.discriminator]

    shapes = [(network.heads, network.width // network.heads) for network in networks]
    device = meshes.first_device(mesh)
    return attention.refused(
        way,
        meshes.platform(mesh),
        length,
        shapes,
        model.dropout_bits,
        triton=meshes.runs_triton(device),
        mosaic=meshes.runs_mosaic(device),
    )
