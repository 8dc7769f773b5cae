# SPDX-License-Identifier: Apache-2.0
"""Tensor archives are read without torch and without running anything that is in them."""

import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest

from electra_jax.weights.formats import tensor_files

TENSORS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "a.bias": np.array([1.5, -2.25], np.float16),
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.float32),
}


class Storage:
    """What a pickle of torch says of a tensor's data."""

    def __init__(self, kind, key, count):
        self.about = ("storage", kind, key, "cpu", count)


@pytest.fixture
def torch(monkeypatch):
    """Names that a pickle of torch refers to; there is nothing behind them."""
    main, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "HalfStorage", "LongStorage", "QInt8Storage"):
        setattr(main, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        raise AssertionError("run")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = (
        "torch._utils",
        "_rebuild_tensor_v2",
    )
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", main)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return main


class Tensor:
    """Pickles as a tensor of torch does."""

    def __init__(self, storage, offset, shape, strides):
        self.arguments = (storage, offset, shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


def pickled(tree, view=()):
    class Pickler(pickle.Pickler):
        def persistent_id(self, x):
            return x.about + view if isinstance(x, Storage) else None

    file = io.BytesIO()
    Pickler(file, 2).dump(tree)
    return file.getvalue()


def described(torch, tensors=TENSORS):
    """(a tree of tensors that say where their data is, that data by key)."""
    kinds = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage"}
    tree, data = collections.OrderedDict(), {}
    for key, (name, x) in enumerate(tensors.items()):
        strides = tuple(step // x.itemsize for step in x.strides)
        storage = Storage(getattr(torch, kinds[x.dtype.name]), str(key), x.size)
        tree[name] = Tensor(storage, 0, x.shape, strides)
        data[str(key)] = x.tobytes()
    tree._metadata = {"": {"version": 1}}
    return tree, data


def archive(path, tree, data):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("model/data.pkl", tree if isinstance(tree, bytes) else pickled(tree))
        file.writestr("model/byteorder", "little")
        for key, content in data.items():
            file.writestr(f"model/data/{key}", content)
    return str(path.parent)


def same(found, tensors=TENSORS):
    assert set(found) == set(tensors)
    for name, x in tensors.items():
        assert found[name].dtype == x.dtype and found[name].shape == x.shape
        assert found[name].tobytes() == x.tobytes()


def test_an_archive_of_torch_is_read(torch, tmp_path):
    same(tensor_files.read(archive(tmp_path / "pytorch_model.bin", *described(torch))))


def test_the_older_form_is_read(torch, tmp_path):
    """Pickles one after the other, then the bytes: Google's ELECTRA on the Hub lies so."""
    tree, data = described(torch)
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "protocol_version": 1001}]
    content = b"".join(pickle.dumps(part, 2) for part in parts)
    content += pickled(tree, view=(None,)) + pickle.dumps(list(data), 2)
    for x, part in zip(TENSORS.values(), data.values()):
        content += struct.pack("<q", x.size) + part
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    same(tensor_files.read(str(tmp_path)))
    (tmp_path / "pytorch_model.bin").write_bytes(content[:-3])
    with pytest.raises(ValueError, match="pytorch_model.bin: damaged or cut off"):
        tensor_files.read(str(tmp_path))


def test_tensors_that_are_views_are_read(torch, tmp_path):
    """Two tensors over one storage, one of them turned."""
    x = np.arange(6, dtype=np.float32)
    storage = Storage(torch.FloatStorage, "0", 6)
    tree = {"turned": Tensor(storage, 0, (3, 2), (1, 3)), "end": Tensor(storage, 4, (2,), (1,))}
    found = tensor_files.read(archive(tmp_path / "pytorch_model.bin", tree, {"0": x.tobytes()}))
    np.testing.assert_array_equal(found["turned"], x.reshape(2, 3).T)
    np.testing.assert_array_equal(found["end"], [4, 5])


class Hostile:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("where", ["itself", "a value", "an attribute"])
def test_a_pickle_that_runs_something_is_refused_and_nothing_runs(torch, tmp_path, where):
    trap = tmp_path / "trap"
    tree, data = described(torch)
    if where == "itself":
        tree = Hostile(str(trap))
    elif where == "a value":
        tree["x"] = Hostile(str(trap))
    else:
        tree._metadata = Hostile(str(trap))
    folder = archive(tmp_path / "pytorch_model.bin", tree, data)
    with pytest.raises(ValueError, match="it asks to run posix.mkdir, which no tensor needs"):
        tensor_files.read(folder)
    pickle_alone = pickled(tree)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle_alone)
    with pytest.raises(ValueError, match="pytorch_model.bin: it asks to run posix.mkdir"):
        tensor_files.read(folder)
    assert not trap.exists()


def bad(torch, **changes):
    about = dict(offset=0, shape=(3,), strides=(1,), count=3, key="0", kind=torch.FloatStorage)
    about |= changes
    storage = Storage(about["kind"], about["key"], about["count"])
    return {"x": Tensor(storage, about["offset"], about["shape"], about["strides"])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 1}, "tensor x reaches beyond its data"),
        ({"strides": (2,)}, "tensor x reaches beyond its data"),
        ({"strides": (-1,)}, "tensor x has no possible shape"),
        ({"shape": (1 << 60,)}, "tensor x reaches beyond its data"),
        ({"shape": (1 << 40,), "strides": (0,)}, "tensor x is far larger than its data"),
        ({"shape": (3, 1)}, "tensor x has no possible shape"),
        ({"count": 4}, "tensor data 0 has another size than it says"),
        ({"key": "1"}, "no archive of tensors, or a damaged one"),
        ({"kind": "QInt8Storage"}, "a tensor of the kind 'torch.QInt8Storage' is not known"),
    ],
)
def test_a_tensor_that_lies_about_its_data_is_refused(torch, tmp_path, changes, message):
    if changes.get("kind"):
        changes = {"kind": getattr(torch, changes["kind"])}
    content = np.zeros(3, np.float32).tobytes()
    folder = archive(tmp_path / "pytorch_model.bin", bad(torch, **changes), {"0": content})
    with pytest.raises(ValueError, match=message):
        tensor_files.read(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle at all",
        pickle.dumps([1, 2]),
        pickle.dumps({"a": "text"}),
        b"\x80\x02]q\x00(K\x01K\x02e",  # ends without its stop
        b"\x80\x02}.",
        b"\x80\x02\x85.",  # a tuple of nothing that is there
        b"\x80\x02h\x05.",  # what was never kept
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_other_files_are_refused_in_one_line(tmp_path, content, zipped):
    if zipped and content == b"\x80\x02}.":
        return  # an archive of no tensors
    path = tmp_path / "pytorch_model.bin"
    archive(path, content, {}) if zipped else path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pytorch_model.bin: \S") as error:
        tensor_files.read(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_packed_archive_is_refused(torch, tmp_path):
    """Small files that become gigabytes; torch packs nothing."""
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("model/data.pkl", pickled(bad(torch)))
        file.writestr("model/data/0", bytes(12))
    with pytest.raises(ValueError, match="tensor data 0 has another size than it says"):
        tensor_files.read(str(tmp_path))


def test_safetensors_there_and_back(tmp_path):
    tensors = TENSORS | {"half": np.array([1, 2.5], ml_dtypes.bfloat16)}
    tensor_files.write(str(tmp_path / "model.safetensors"), tensors)
    same(tensor_files.read(str(tmp_path)), tensors)
    assert sorted(tensor_files.names(str(tmp_path))) == sorted(tensors)


def test_others_may_read_what_is_written(tmp_path):
    (tmp_path / "plain").write_text("")
    tensor_files.write(str(tmp_path / "model.safetensors"), TENSORS)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_what_lies_turned_in_memory_is_written_right(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor_files.write(str(tmp_path / "model.safetensors"), {"x": x.T})
    np.testing.assert_array_equal(tensor_files.read(str(tmp_path))["x"], x.T)


def test_safetensors_cut_off_anywhere_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    tensor_files.write(str(path), TENSORS)
    whole = path.read_bytes()
    for size in (0, 4, 8, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        for read in (tensor_files.read, tensor_files.names):
            with pytest.raises(ValueError, match="model.safetensors: damaged or cut off") as error:
                read(str(tmp_path))
            assert "\n" not in str(error.value)


def in_parts(folder, places, name="model.safetensors"):
    """Writes the index; {tensor: file}."""
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / f"{name}.index.json").write_text(json.dumps(index))


PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def parts(tmp_path):
    """A folder with TENSORS in two files, and what its index says."""
    places = {name: PARTS[number % 2] for number, name in enumerate(TENSORS)}
    for part in PARTS:
        here = {name: x for name, x in TENSORS.items() if places[name] == part}
        tensor_files.write(str(tmp_path / part), here)
    in_parts(tmp_path, places)
    return tmp_path, places


def test_weights_in_several_files_are_read_together(parts):
    same(tensor_files.read(str(parts[0])))


def test_archives_of_torch_in_several_files_are_read_together(torch, tmp_path):
    names = [f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)]
    halves = [dict(list(TENSORS.items())[:2]), dict(list(TENSORS.items())[2:])]
    for name, tensors in zip(names, halves):
        archive(tmp_path / name, *described(torch, tensors))
    in_parts(
        tmp_path,
        {x: name for name, half in zip(names, halves) for x in half},
        "pytorch_model.bin",
    )
    same(tensor_files.read(str(tmp_path)))


def test_a_part_that_is_missing_cut_off_or_another_is_named(parts):
    folder, places = parts
    second = folder / PARTS[1]
    whole = second.read_bytes()
    second.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match=f"{PARTS[1]}: damaged or cut off"):
        tensor_files.read(str(folder))
    second.unlink()
    with pytest.raises(ValueError, match=f"{PARTS[1]} is missing, one of 2 files; copy it too"):
        tensor_files.read(str(folder))
    second.write_bytes((folder / PARTS[0]).read_bytes())
    with pytest.raises(ValueError, match=f"{PARTS[1]} holds a.weight, as another file does"):
        tensor_files.read(str(folder))
    second.write_bytes(whole)
    in_parts(folder, places | {"more": PARTS[1]})
    with pytest.raises(ValueError, match=f"{PARTS[1]} lacks more, which its index names"):
        tensor_files.read(str(folder))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "model.safetensors.index.json is no index of tensors; copy it again"),
        ("[1]", "is no index of tensors"),
        ('{"weight_map": {"a": 1', "is no index of tensors"),
        ('{"weight_map": {"a": ["b"]}}', "is no index of tensors"),
        ('{"weight_map": {}}', "names no tensor"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "which is no file of its folder"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "which is no file of its folder"),
        ('{"weight_map": {"a": 7}}', "which is no file of its folder"),
        ('{"weight_map": {"a": ""}}', "is missing"),
    ],
)
def test_an_index_that_is_none_is_refused_in_one_line(index, message, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=message) as error:
        tensor_files.read(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds neither model.safetensors nor pytorch_model.bin"):
        tensor_files.read(str(tmp_path))
