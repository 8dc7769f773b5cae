# SPDX-License-Identifier: Apache-2.0
"""Files of named tensors, without torch: model.safetensors and pytorch_model.bin.

    read       all tensors of a folder, from one file or from several with an index
    read_file  one file
    write      safetensors, read again and compared

A .bin file is a pickle, and a pickle is a program. It is never run here. `_Reader` reads its
instructions one by one; it knows those that build names, numbers and descriptions of tensors, and
refuses all others, as well as every function except the three that make tensors. Both forms are
read: the zip archive of torch 1.6 and newer, and the older one (pickles, then the tensors' bytes),
in which the Hub has Google's ELECTRA.
"""

import json
import os
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

SAFETENSORS = "model.safetensors"
PYTORCH = "pytorch_model.bin"
INDEX = ".index.json"  # added to either name: which tensor is in which of several files

_DTYPES = {
    "torch DoubleStorage": np.float64,
    "torch FloatStorage": np.float32,
    "torch HalfStorage": np.float16,
    "torch BFloat16Storage": ml_dtypes.bfloat16,
    "torch LongStorage": np.int64,
    "torch IntStorage": np.int32,
    "torch ShortStorage": np.int16,
    "torch CharStorage": np.int8,
    "torch ByteStorage": np.uint8,
    "torch BoolStorage": np.bool_,
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # the first number of a file in the older form


def read(folder: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a folder's model.safetensors, or else of its pytorch_model.bin.

    Either may be split into several files, which NAME.index.json lists.

    Raises ValueError, in one line with the file's name, if there is none, or if one is damaged or
    is not an archive of tensors.
    """
    for name in (SAFETENSORS, PYTORCH):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return read_file(path)
        if os.path.exists(path + INDEX):
            return _read_several(folder, path + INDEX)
    raise ValueError(f"{folder} holds neither {SAFETENSORS} nor {PYTORCH}")


def read_file(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of one file, in the format that its ending says.

    Raises ValueError, in one line with the file's name.
    """
    try:
        return (_read_safetensors if path.endswith(".safetensors") else _read_pytorch)(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes safetensors, reads them again and compares. Raises OSError if they differ."""
    # In C order: safetensors writes the bytes of other arrays in a wrong order, without an error.
    whole = {name: np.asarray(x, order="C") for name, x in tensors.items()}
    safetensors_numpy.save_file(whole, path, metadata={"format": "pt"})
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)  # the library makes files that only their owner can read

    again = safetensors_numpy.load_file(path)
    for name, x in whole.items():
        if name not in again or again[name].tobytes() != x.tobytes():
            raise OSError(f"{path}: {name} is not what was written; write it again")


def _read_several(folder, index):
    """Returns the tensors of all files in an index; each must be in the file that it says."""
    try:
        with open(index, encoding="utf-8") as file:
            places = json.load(file)["weight_map"]
        names = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of tensors; copy it again") from error
    if not names:
        raise ValueError(f"{index} names no tensor; copy it again")

    found = {}
    for name in names:
        path = os.path.join(folder, str(name))
        if name != os.path.basename(str(name)):
            raise ValueError(f"{index} names {str(name)[:80]!r}, which is no file of its folder")
        if not os.path.isfile(path):
            raise ValueError(f"{path} is missing, one of {len(names)} files; copy it too")
        here = read_file(path)
        if twice := sorted(here.keys() & found.keys()):
            raise ValueError(f"{path} holds {twice[0]}, as another file does; copy them again")
        found |= here

        for tensor in sorted(t for t, place in places.items() if place == name):
            if tensor not in here:
                raise ValueError(f"{path} lacks {tensor}, which its index names; copy it again")
    return found


def _read_safetensors(path):
    try:
        return dict(safetensors_numpy.load_file(path))
    except (safetensors.SafetensorError, OSError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"damaged or cut off ({reason[:120]}); copy it again") from error


def _read_pytorch(path):
    try:
        if zipfile.is_zipfile(path):
            return _read_zip(path)
        with open(path, "rb") as file:
            return _read_legacy(file)
    except (zipfile.BadZipFile, EOFError, struct.error) as error:
        raise ValueError(f"damaged or cut off ({error}); copy it again") from error
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("no archive of tensors, or a damaged one") from error


def _read_zip(path):
    """Reads the newer form: data.pkl describes the tensors, one entry per storage has the bytes."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError("no archive of tensors: it holds no data.pkl")

        root = names[0].removesuffix("data.pkl")
        order = root + "byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise ValueError("written on a big-endian machine; save it again on another one")

        with archive.open(names[0]) as file:
            tree = _Reader(file).read()

        def content(storage):
            entry = archive.getinfo(f"{root}data/{storage.key}")
            size = storage.count * np.dtype(_DTYPES[storage.kind]).itemsize
            if entry.file_size != size or entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"tensor data {storage.key} has another size than it says")
            return archive.read(entry)

        return _arrays(tree, content)


def _read_legacy(file):
    """Reads the older form: five pickles, then the length and the bytes of each storage."""
    if _Reader(file).read() != _LEGACY_MAGIC:
        raise ValueError("no archive of tensors")
    for _ in range(2):  # the version, and the machine
        about = _Reader(file).read()
    if not about.get("little_endian", True):
        raise ValueError("written on a big-endian machine; save it again on another one")
    tree = _Reader(file).read()

    storages = {x.storage.key: x.storage for x in _tensors(tree).values()}

    contents = {}
    for key in _Reader(file).read():
        (count,) = struct.unpack("<q", file.read(8))
        size = count * np.dtype(_DTYPES[storages[key].kind]).itemsize
        contents[key] = file.read(size)
        if count != storages[key].count or len(contents[key]) != size:
            raise ValueError("damaged or cut off; copy it again")
    return _arrays(tree, lambda storage: contents[storage.key])


class _Storage(NamedTuple):
    """A run of numbers in the file, which one or more tensors show."""

    kind: str
    key: str
    count: int


class _Tensor(NamedTuple):
    """What a pickle says of one tensor; offset and strides count elements of its storage."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple


class _Name(NamedTuple):
    """A class or function that a pickle names. It is kept as text and never looked up."""

    text: str


def _tensors(tree) -> dict[str, _Tensor]:
    """Returns what a pickle describes. Raises ValueError unless it is a dict of tensors."""
    if not isinstance(tree, dict):
        raise ValueError("no archive of tensors by name")
    for name, x in tree.items():
        if not isinstance(name, str) or not isinstance(x, _Tensor):
            raise ValueError(f"{str(name)[:60]!r} is no tensor: this is more than a state_dict")
    return tree


def _arrays(tree, content):
    """Makes the arrays that a pickle describes; no tensor may reach beyond its storage.

    Args:
      content: storage -> its bytes.
    """
    kept, found = {}, {}
    for name, x in _tensors(tree).items():
        if x.storage not in kept:
            kept[x.storage] = np.frombuffer(content(x.storage), _DTYPES[x.storage.kind])
        flat, sizes = kept[x.storage], (*x.shape, *x.strides, x.offset)
        if len(x.shape) != len(x.strides) or any(type(n) is not int or n < 0 for n in sizes):
            raise ValueError(f"tensor {name} has no possible shape")
        last = x.offset + sum((n - 1) * step for n, step in zip(x.shape, x.strides))
        if 0 not in x.shape and last >= len(flat):
            raise ValueError(f"tensor {name} reaches beyond its data")

        strides = [step * flat.itemsize for step in x.strides]
        view = np.lib.stride_tricks.as_strided(flat[x.offset :], x.shape, strides, writeable=False)
        found[name] = view.copy()
    return found


class _Reader:
    """Reads one pickle as data: a stack machine that builds plain values and runs nothing."""

    def __init__(self, file):
        self._file, self._stack, self._marks, self._memo = file, [], [], {}

    def read(self) -> Any:
        """Returns what the pickle describes: dicts, lists, tuples, numbers, texts and tensors."""
        for instruction, argument, _ in _instructions(self._file):
            name = instruction.name
            if name == "STOP":
                return self._stack.pop()
            if name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name]())
            elif name in _LITERALS:
                self._stack.append(argument)
            elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
                self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                self._stack.append(self._memo[argument])
            elif name == "MARK":
                self._marks.append(len(self._stack))
            elif name not in ("PROTO", "FRAME"):
                self._build(name, argument)
        raise EOFError("it ends too early")

    def _build(self, name, argument):
        """Carries out an instruction that takes values from the stack."""
        stack = self._stack
        if name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._pop(int(name[-1]))))
        elif name in ("SETITEM", "SETITEMS"):
            flat = self._pop(2) if name == "SETITEM" else self._since_mark()
            self._top(dict).update(zip(flat[::2], flat[1::2]))
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._since_mark()
            self._top(list).extend(items)
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "STACK_GLOBAL":
            stack.append(_Name(" ".join(self._pop(2))))
        elif name == "REDUCE":
            stack.append(_result_of(*self._pop(2)))
        elif name == "BUILD":  # attributes of a state_dict (versions of its modules), ignored
            stack.pop()
            self._top(dict)
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        else:
            raise ValueError(f"no archive of tensors: it holds the instruction {name}")

    def _pop(self, count):
        first = len(self._stack) - count
        if not 0 <= first <= len(self._stack):
            raise IndexError("stack")
        items = self._stack[first:]
        del self._stack[first:]
        return items

    def _since_mark(self):
        return self._pop(len(self._stack) - self._marks.pop())

    def _top(self, kind):
        if type(self._stack[-1]) is not kind:
            raise ValueError("no archive of tensors: it fills what is no container")
        return self._stack[-1]


_CONSTANTS = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
)  # fmt: skip


def _instructions(file):
    try:
        yield from pickletools.genops(file)
    except ValueError as error:
        raise ValueError("no archive of tensors, or a damaged one") from error


def _result_of(function, arguments):
    """Returns what one of the three functions for tensors would return; refuses all others."""
    text = function.text if isinstance(function, _Name) else "what is no function"
    if text == "collections OrderedDict" and not arguments:
        return {}
    if text == "torch._utils _rebuild_parameter":
        return arguments[0]
    if text == "torch._utils _rebuild_tensor_v2":
        storage, offset, shape, strides = arguments[:4]
        if isinstance(storage, _Storage):
            return _Tensor(storage, offset, shape, strides)
    raise ValueError(
        f"it asks to run {text.replace(' ', '.')[:80]}, which no tensor needs; nothing of it was"
        " run. Do not load this file elsewhere either"
    )


def _storage(about):
    """Returns the storage that a persistent id of a pickle describes."""
    word, kind, key, _, count, *view = about
    text = kind.text if isinstance(kind, _Name) else ""
    if word != "storage" or text not in _DTYPES or any(x is not None for x in view):
        raise ValueError(f"a tensor of the kind {text.replace(' ', '.')!r} is not known")
    if type(key) is not str or type(count) is not int:
        raise ValueError("a tensor's data has no name")
    return _Storage(text, key, count)
