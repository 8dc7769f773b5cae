# SPDX-License-Identifier: Apache-2.0
"""Tensors of a pytorch_model.bin, read without torch and without running what is in it.

A .bin file is a pickle, and a pickle is a program. It is never run here. `_Reader` reads its
instructions one by one; it knows those that build names, numbers and descriptions of tensors, and
refuses all others, as well as every function except the three that make tensors. Both forms are
read: the zip archive of torch 1.6 and newer, and the older one (pickles, then the tensors' bytes),
in which the Hub has Google's ELECTRA.
"""

import math
import pickletools
import struct
import zipfile
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

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
_REPEATED = 1 << 24  # elements of a tensor that shows its data several times, at most
_DAMAGED = (zipfile.BadZipFile, EOFError, struct.error, OverflowError)
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # the first number of a file in the older form


def read(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of one file.

    Raises ValueError, in one line without the file's name, if it is damaged or is not an archive of
    tensors.
    """
    try:
        if zipfile.is_zipfile(path):
            return _read_zip(path)
        with open(path, "rb") as file:
            return _read_legacy(file)
    except MemoryError as error:
        raise ValueError(f"does not fit into the memory, or is damaged ({error})") from error
    except (*_DAMAGED, NotImplementedError) as error:  # the last is zipfile's, of broken headers
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
        if math.prod(x.shape) > max(len(flat), _REPEATED):
            raise ValueError(f"tensor {name} is far larger than its data; save it as it is")

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
