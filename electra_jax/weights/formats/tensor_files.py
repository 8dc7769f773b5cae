# SPDX-License-Identifier: Apache-2.0
"""Files of named tensors, without torch: model.safetensors and pytorch_model.bin.

    read       all tensors of a folder, from one file or from several with an index
    check      whether those files are there
    names      what they are called
    read_file  one file
    write      safetensors, read again and compared

`pytorch_files` reads the second kind.
"""

import contextlib
import json
import os
from collections.abc import Mapping

import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from electra_jax.weights.formats import pytorch_files

SAFETENSORS = "model.safetensors"
PYTORCH = "pytorch_model.bin"
INDEX = ".index.json"  # added to either name: which tensor is in which of several files


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
    raise _nothing_in(folder)


def check(folder: str) -> None:
    """Raises ValueError, as `read` does, for a file that is missing; no tensor is read.

    So it does for a safetensors file that is cut off, or is only the pointer that Git LFS leaves.
    """
    for name in (SAFETENSORS, PYTORCH):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return _check_file(path)
        if os.path.exists(path + INDEX):
            for each in sorted(set(_places(folder, path + INDEX).values())):
                _check_file(os.path.join(folder, each))
            return None
    raise _nothing_in(folder)


def names(folder: str) -> list[str]:
    """Returns the names of a folder's tensors; of one safetensors file only its header is read.

    Raises ValueError as `read` does.
    """
    path = os.path.join(folder, SAFETENSORS)
    return _names_in(path) if os.path.exists(path) else list(read(folder))


def _names_in(path):
    """The names in the header of a safetensors file, whose size must be as the header says."""
    try:
        with _readable(), safetensors.safe_open(path, "numpy") as file:
            return list(file.keys())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_file(path):
    if path.endswith(".safetensors"):
        _names_in(path)


def _nothing_in(folder):
    return ValueError(f"{folder} holds neither {SAFETENSORS} nor {PYTORCH}")


def read_file(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of one file, in the format that its ending says.

    Raises ValueError, in one line with the file's name.
    """
    try:
        return (_read_safetensors if path.endswith(".safetensors") else pytorch_files.read)(path)
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
    places, found = _places(folder, index), {}
    for name in sorted(set(places.values())):
        path = os.path.join(folder, name)
        here = read_file(path)
        if twice := sorted(here.keys() & found.keys()):
            raise ValueError(f"{path} holds {twice[0]}, as another file does; copy them again")
        found |= here

        for tensor in sorted(t for t, place in places.items() if place == name):
            if tensor not in here:
                raise ValueError(f"{path} lacks {tensor}, which its index names; copy it again")
    return found


def _places(folder, index) -> dict[str, str]:
    """{tensor: name of its file} as an index says; each file is there."""
    try:
        with open(index, encoding="utf-8") as file:
            places = json.load(file)["weight_map"]
        names = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of tensors; copy it again") from error
    if not names:
        raise ValueError(f"{index} names no tensor; copy it again")

    for name in names:
        path = os.path.join(folder, str(name))
        if name != os.path.basename(str(name)):
            raise ValueError(f"{index} names {str(name)[:80]!r}, which is no file of its folder")
        if not os.path.isfile(path):
            raise ValueError(f"{path} is missing, one of {len(names)} files; copy it too")
    return places


def _read_safetensors(path):
    with _readable():
        return dict(safetensors_numpy.load_file(path))


@contextlib.contextmanager
def _readable():
    """Raises ValueError, in one line, for a file that is not safetensors."""
    try:
        yield
    except (safetensors.SafetensorError, OSError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"damaged or cut off ({reason[:120]}); copy it again") from error
