# SPDX-License-Identifier: Apache-2.0
"""Turns a tree of settings into typed values, and back.

    tree -> nested dataclasses -> each value checked against its declaration in `fields.py`

A tree is what `configs/*.py` build with ml_collections, and what config.json holds. A setting that
is unknown, missing, mistyped or out of bounds raises ConfigError, in one line with the remedy.
"""

import dataclasses
import difflib
import json
from collections.abc import Mapping
from typing import Any

import ml_collections

from electra_jax.config.fields import declared, flatten


class ConfigError(ValueError):
    """A setting that cannot be used; the message is one line and names the remedy."""


def typed(kind: type, tree: Mapping[str, Any], page: str) -> Any:
    """Returns a tree as an instance of the dataclass `kind`, with every value checked.

    `page` is the file that lists every field; messages name it. Raises ConfigError for a setting
    that is unknown, missing, mistyped or out of bounds.
    """
    if isinstance(tree, ml_collections.ConfigDict):
        tree = tree.to_dict()
    config = _build(kind, tree, "", page)

    flat = flatten(config)
    for path, field in declared(kind).items():
        _check_value(path, flat[path], field.metadata)
    return config


def completed(saved: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A tree that was saved, with the settings of `base` that it lacks because they came later.

    saved   {"model": {"scan": "on"}}
    base    {"model": {"scan": "auto", "remat": "none"}}
    result  {"model": {"scan": "on", "remat": "none"}}
    """
    tree = dict(saved)
    for name, value in base.items():
        if name not in tree:
            tree[name] = value
        elif isinstance(value, Mapping) and isinstance(tree[name], Mapping):
            tree[name] = completed(tree[name], value)
    return tree


def to_tree(config: Any) -> dict[str, Any]:
    """The configuration as a nested dict, which config.json holds and `parse` reads."""
    tree: dict[str, Any] = {}
    for path, value in flatten(config).items():
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def to_json(config: Any) -> str:
    """The text of config.json: the tree, indented, in the order of `fields.py`."""
    return json.dumps(to_tree(config), indent=2) + "\n"


def nearest(name: str, known: list[str]) -> str:
    """ "did you mean 'X'?" if a known name is similar, otherwise the list of known names."""
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _build(kind, tree, prefix, page):
    """The dataclasses of a tree. Raises ConfigError for unknown, missing or mistyped settings."""
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(kind)}
    for name in tree:
        if name not in fields:
            raise ConfigError(f"unknown field {prefix}{name}; {nearest(name, list(fields))}")

    values = {}
    for name, field in fields.items():
        path = prefix + name
        if name not in tree:
            raise ConfigError(f"field {path} is missing; {page} has every field")
        if not dataclasses.is_dataclass(field.type):
            values[field.name] = _typed(path, tree[name], field.type)
        elif isinstance(tree[name], Mapping):
            values[field.name] = _build(field.type, tree[name], path + ".", page)
        else:
            raise ConfigError(f"{path} is a section, not {tree[name]!r}")
    return kind(**values)


def _check_value(path, value, allowed):
    """Raises ConfigError if the value is not one of its choices or not within its bounds."""
    if "choices" in allowed and value not in allowed["choices"]:
        raise ConfigError(
            f"{path}={value!r} is not one of {', '.join(map(repr, allowed['choices']))}"
        )
    if "bounds" in allowed:
        low, high = allowed["bounds"]
        if not low <= value <= high:  # written so that NaN is refused too
            raise ConfigError(f"{path}={value} is outside [{low}, {high}]")


def _typed(path, value, kind):
    """The value with the type of its field. Raises ConfigError if it has another type."""
    if kind is float and type(value) is int:
        return float(value)
    if kind is tuple and isinstance(value, list):  # JSON has lists only
        value = tuple(value)
    if kind is tuple and isinstance(value, tuple):
        return tuple(tuple(part) if isinstance(part, list) else part for part in value)
    if type(value) is not kind:
        raise ConfigError(
            f"{path}={value!r} is of type {type(value).__name__}, not of type {kind.__name__}"
        )
    return value
