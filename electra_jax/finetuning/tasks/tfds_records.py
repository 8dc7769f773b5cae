# SPDX-License-Identifier: Apache-2.0
"""Reads TFDS data sets as records of plain text and numbers, without importing TensorFlow.

    'tfds:glue/cola:validation'  ->  {'sentence': 'A cat .', 'label': 'acceptable', 'idx': 0}, ...

TFDS returns text as bytes and classes as numbers. Here bytes are decoded and class numbers are
replaced by class names.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from electra_jax.data import text_tfds

_READ_SIZE = 1024  # records per read; reading one by one is half as fast
_OTHERWISE = "give a folder that holds the official files, --config.data.dir=FOLDER"


def records(spec: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, record) for each record of 'tfds:NAME:SPLIT'.

    The data set is downloaded and prepared if it is not there yet. Raises ValueError, one line, if
    that fails; within `servers.SECONDS` if no server of it answers.
    """
    name, split = text_tfds.name_and_split(spec.removeprefix("tfds:"))
    source = text_tfds.random_access(name, split, _OTHERWISE)

    features = _builder(name).info.features
    for begin in range(0, len(source), _READ_SIZE):
        numbers = range(begin, min(begin + _READ_SIZE, len(source)))
        for number, record in zip(numbers, source.__getitems__(list(numbers)), strict=True):
            place = f"{spec}:{number}"
            yield place, {key: _plain(value, features[key]) for key, value in record.items()}


def classes(spec: str, field: str | None) -> tuple[str, ...]:
    """Returns the class names of a field in the order of their numbers, or () if it has none."""
    if field is None:
        return ()
    name, _ = text_tfds.name_and_split(spec.removeprefix("tfds:"))
    feature = _builder(name).info.features[field]
    return tuple(getattr(feature, "names", None) or ())


@functools.cache
def _builder(name):
    return text_tfds.builder_of(name, _OTHERWISE)


def _plain(value, feature):
    """Turns bytes into text, class numbers into names and arrays into lists, also when nested."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        inner = getattr(feature, "feature", feature)  # a sequence of records wraps their feature
        return {key: _plain(part, inner[key]) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        inner = getattr(feature, "feature", feature)
        return [_plain(part, inner) for part in value]
    if getattr(feature, "names", None):
        return feature.names[int(value)] if value >= 0 else None
    return value.item() if isinstance(value, np.generic) else value
