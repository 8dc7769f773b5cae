# SPDX-License-Identifier: Apache-2.0
"""Where devices of several slices come to lie in the mesh, and which slices are refused."""

import dataclasses

import pytest

from electra_jax import config as config_lib
from electra_jax.core import meshes
from electra_jax.speed import dry_run
from electra_jax.step import plans
from support.corpus import load_config


@dataclasses.dataclass(frozen=True)
class Device:
    """What of a device a mesh is made by."""

    id: int
    slice_index: int = 0
    platform: str = "gpu"
    device_kind: str = "described"
    process_index: int = 0


def of_slices(count, each, platform="gpu"):
    """Devices of several slices in turn: 0 of the first, 1 of the second, 2 of the first, ..."""
    return [Device(number, number % count, platform) for number in range(count * each)]


def slices_along(mesh, axis):
    """Along this axis of the mesh, the slices of the devices of each row, as a set of tuples."""
    number = meshes.AXES.index(axis)
    rows = mesh.devices.swapaxes(number, -1).reshape(-1, mesh.devices.shape[number])
    return {tuple(device.slice_index for device in row) for row in rows}


def test_only_the_data_axis_goes_across_slices():
    mesh = meshes.make_mesh(-1, 2, 2, of_slices(2, 8))
    assert dict(mesh.shape) == {"data": 4, "fsdp": 2, "tensor": 2}
    assert slices_along(mesh, "data") == {(0, 0, 1, 1)}
    assert slices_along(mesh, "fsdp") == {(0, 0), (1, 1)}
    assert slices_along(mesh, "tensor") == {(0, 0), (1, 1)}


def test_the_setting_makes_groups_of_devices_that_are_of_no_slice():
    devices = [Device(number, platform="cpu") for number in range(8)]
    assert meshes.count_slices(devices) == 1
    assert meshes.count_slices(devices, 4) == 4
    mesh = meshes.make_mesh(-1, 2, 1, devices, slices=4)
    assert [[d.id for d in row.flat] for row in mesh.devices] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_the_setting_can_count_machines_of_gpus_as_one():
    devices = of_slices(2, 4)
    assert dict(meshes.make_mesh(1, 8, 1, devices, slices=1).shape)["fsdp"] == 8


@pytest.mark.parametrize(
    "devices, settings, message",
    [
        (
            of_slices(2, 4),
            {"fsdp": 8},
            "mesh.fsdp=8 x mesh.tensor=1 does not divide the 4 devices of each of 2 slices, and a"
            " copy of the model must lie in one; let it divide 4",
        ),
        (
            of_slices(2, 4, "tpu"),
            {"slices": 4},
            "mesh.slices=4, but these TPUs belong to 2 slices; set mesh.slices=0",
        ),
        (of_slices(1, 4, "tpu"), {"slices": 2}, "these TPUs belong to 1 slice; set mesh.slices=0"),
        (of_slices(1, 8), {"slices": 3}, "mesh.slices=3 does not divide 8 devices; try a divisor"),
    ],
)
def test_slices_that_do_not_fit_are_refused_in_one_line(devices, settings, message):
    with pytest.raises(ValueError) as error:
        meshes.make_mesh(devices=devices, **settings)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_configuration_asks_for_slices():
    config = load_config("small")
    config.mesh.update(slices=2)
    devices = [Device(number, platform="cpu") for number in range(8)]
    with pytest.raises(config_lib.ConfigError, match="mesh.slices=2 does not divide 7 devices"):
        plans.make_mesh(config_lib.parse(config), devices[:7])
    assert dict(plans.make_mesh(config_lib.parse(config), devices).shape)["data"] == 8


def test_a_dry_run_says_what_goes_across_slices():
    devices = of_slices(2, 8)
    assert dry_run._slices(meshes.make_mesh(-1, 2, 2, devices), 0) == [
        ("slices", "2 with 2 copies of the model in each; only gradients go across")
    ]
    assert dry_run._slices(meshes.make_mesh(-1, 8, 1, devices[::2]), 0) == []


@pytest.mark.parametrize(
    "count, settings, message",
    [
        # `small` has 128 rows and four heads. If two chips share rows, there are 128 parts.
        (256, {}, "data.batch_size=128 is not divisible by 256 .*; try 256 or mesh.tensor=2$"),
        (256, {"mesh.data": 256}, "; try 256 or mesh.tensor=2 with mesh.data=-1$"),
        (256, {"mesh.fsdp": 2}, "; try 256 or mesh.tensor=2$"),
        (256, {"schedule.accumulation": 2}, "not divisible by 512 .*; try 512 or mesh.tensor=4$"),
        # It would take 8, but a chip needs a whole head; 256 chips are not divisible by 3.
        (512, {"schedule.accumulation": 2}, "not divisible by 1024 .*; try 1024$"),
        (48, {}, "not divisible by 48 .*; try 96 or 144$"),
    ],
)
def test_rows_that_cannot_be_split_are_refused_with_what_would_help(count, settings, message):
    config = load_config("small")
    config.update_from_flattened_dict(settings)
    devices = [Device(number, platform="cpu") for number in range(count)]
    with pytest.raises(config_lib.ConfigError, match=message):
        plans.make_mesh(config_lib.parse(config), devices)


@pytest.mark.parametrize(
    "rows, settings, message",
    [
        # The 16 devices of two processes: an evaluation is of all, not of one process.
        (24, {}, "evaluation.batch_size=24 is not divisible by 16 (devices that split the rows);"
         " try 16 or 32, or 0, which takes the training batch"),
        (8, {}, "=8 is not divisible by 16 (devices that split the rows); try 16, or 0"),
        (6, {"mesh.fsdp": 2, "mesh.tensor": 2}, "=6 is not divisible by 8 "),
        (8, {"mesh.fsdp": 2, "mesh.tensor": 2}, ""),
        (16, {"schedule.accumulation": 8}, ""),  # of training only: 128 = 16 x 8
        (0, {}, ""),
    ],
)  # fmt: skip
def test_an_evaluation_needs_whole_rows_for_all_devices_but_not_for_micro_batches(
    rows, settings, message
):
    config = load_config("small")
    config.update_from_flattened_dict(settings | {"evaluation.batch_size": rows})
    config = config_lib.parse(config)
    devices = [Device(n, platform="cpu", process_index=n // 8) for n in range(16)]
    assert plans.make_mesh(config, devices).size == 16  # `show` and `benchmark` evaluate nothing
    if not message:
        assert plans.make_mesh(config, devices, evaluates=True).size == 16
        return

    with pytest.raises(config_lib.ConfigError) as error:
        plans.make_mesh(config, devices, evaluates=True)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_tensor_axis_that_is_named_divides_the_rows_of_an_evaluation_too():
    config = load_config("small")  # 128 rows, four heads
    config.evaluation.batch_size = 64
    devices = [Device(number, platform="cpu") for number in range(256)]
    with pytest.raises(config_lib.ConfigError, match="; try 256 or mesh.tensor=4$"):
        plans.make_mesh(config_lib.parse(config), devices)
