# SPDX-License-Identifier: Apache-2.0
"""The mesh: the devices of a run along three axes, `data`, `fsdp` and `tensor`.

    data    parameters are copied; rows are split
    fsdp    parameters are split, and gathered when they are used; rows are split
    tensor  matrix products are split; its devices compute the same rows

Devices may belong to several slices, which only the network of the data centre connects. Then
`data` spans the slices, and the other two axes stay inside one: gradients cross between slices once
per step, and the exchanges of every layer stay inside a slice.
"""

import re
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

AXES = ("data", "fsdp", "tensor")


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
    slices: int = 0,
) -> Mesh:
    """Returns the mesh; `data=-1` takes all devices that remain after the other two axes.

    With several slices (see `count_slices`) the first copies of the model are those of the first
    slice, the next ones those of the second, and so on. Raises ValueError, one line, if the product
    of the sizes is not the number of devices, or if a copy of the model would lie in two slices.
    """
    devices = jax.devices() if devices is None else devices
    if fsdp < 1 or tensor < 1 or (data < 1 and data != -1):
        raise ValueError(
            f"mesh sizes data={data}, fsdp={fsdp}, tensor={tensor} must be positive"
            " (data may be -1: what is left)"
        )
    if data == -1:
        data = max(1, len(devices) // (fsdp * tensor))
    if data * fsdp * tensor != len(devices):
        raise ValueError(
            f"mesh of data={data} x fsdp={fsdp} x tensor={tensor} = {data * fsdp * tensor} does"
            f" not fit {len(devices)} devices; set mesh.data=-1 and let fsdp x tensor divide"
            f" {len(devices)}"
        )

    count = count_slices(devices, slices)
    if data % count:
        raise ValueError(
            f"mesh.fsdp={fsdp} x mesh.tensor={tensor} does not divide the {len(devices) // count}"
            f" devices of each of {count} slices, and a copy of the model must lie in one; let it"
            f" divide {len(devices) // count}"
        )

    # With Explicit axes, jax's newer default, the gathers here and in flax raise errors.
    arranged = _arranged(devices, (data, fsdp, tensor), count)
    return Mesh(arranged, AXES, axis_types=(AxisType.Auto,) * 3)


def _arranged(devices, shape, count):
    """The devices as an array of this shape, whose first axis spans `count` slices."""
    if count not in (1, len(_slice_numbers(devices))):  # groups in the order of the devices
        return np.asarray(devices).reshape(shape)

    # Axes of the mesh may be parts of an axis of the chips' torus, such as 8 of 16.
    if count == 1:
        return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)

    data, fsdp, tensor = shape
    return mesh_utils.create_hybrid_device_mesh(
        (data // count, fsdp, tensor), (count, 1, 1), devices, allow_split_physical_axes=True
    )


def count_slices(devices: Sequence[jax.Device], asked: int = 0) -> int:
    """Returns the number of slices that the devices belong to.

    With `asked=0` the devices tell: chips of a TPU pod belong to a slice, GPUs to a machine or to a
    group that NVLink connects. Devices other than TPUs can be divided into `asked` equal groups
    instead. Raises ValueError, one line, if they cannot.
    """
    found = len(_slice_numbers(devices))
    if asked in (0, found):
        return found
    if devices[0].platform == "tpu":
        raise ValueError(
            f"mesh.slices={asked}, but these TPUs belong to"
            f" {found} slice{'s' if found > 1 else ''}; set mesh.slices=0, which asks the devices"
        )
    if len(devices) % asked:
        raise ValueError(
            f"mesh.slices={asked} does not divide {len(devices)} devices; try a divisor of"
            f" {len(devices)}, or 0, which asks the devices"
        )
    return asked


def _slice_numbers(devices):
    """The slices that the devices belong to; a device without a `slice_index` counts as slice 0."""
    return {getattr(device, "slice_index", 0) for device in devices}


def platform(mesh: Mesh | None) -> str:
    """'cpu', 'gpu' or 'tpu': the kind of the mesh's devices, or of this machine's without a mesh.

    The devices of a mesh may belong to another machine, for which a program is only compiled.
    """
    kind = first_device(mesh).platform
    return "gpu" if kind in ("cuda", "rocm") else kind


def first_device(mesh: Mesh | None) -> jax.Device:
    """The first device of the mesh, or of this machine without a mesh."""
    return jax.devices()[0] if mesh is None else mesh.devices.flat[0]


def runs_triton(device: jax.Device) -> bool:
    """Whether our kernels for Triton run on a device: an NVIDIA GPU of capability 8.0 or newer."""
    capability = re.fullmatch(r"(\d+)\.\d", getattr(device, "compute_capability", ""))
    return capability is not None and int(capability[1]) >= 8


def runs_mosaic(device: jax.Device) -> bool:
    """Whether our kernels for TPUs run on a device: not on TPU v2 and v3.

    Mosaic, which compiles them, has no product of bfloat16 there (jax's issues 18595, 23989 and
    24633). A device that is no TPU may interpret them.
    """
    return re.match(r"TPU v[23]\b", getattr(device, "device_kind", "")) is None


def row_devices(mesh: Mesh) -> int:
    """Returns the number of parts that the rows are split into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]
