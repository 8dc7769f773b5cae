# SPDX-License-Identifier: Apache-2.0
"""The outline of weights: shapes, heads and vocabulary of what is at a path, without its arrays.

    path -> Outline -> a configuration that goes on from there (configs/continued.py)

Nothing is put on a device, so it may be asked for before the processes of a run are joined.
"""

import dataclasses
import os
from collections.abc import Collection
from typing import Any

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.host import staging
from electra_jax.model import networks
from electra_jax.weights import (
    hub,
    reading,
    reading_foreign,
    reading_workdir,
    trained_weights,
)
from electra_jax.weights.formats import orbax_export, tensorflow_bundle, tokenizer_files
from electra_jax.workdir import metadata

_OF_BOTH = (
    "embedding_size", "max_positions", "sharing", "shared_layers", "discriminator_head",
    "positions", "rotary_base", "feed_forward_kind", "norm_place", "norm_kind", "biases",
    "local_window", "global_every",
)  # fmt: skip
# Those that not all objectives read -> what holds for the networks of others.
_OF_SOME = {"shared_layers": 0, "discriminator_head": "token"}
_OF_ONE = ("layers", "width", "heads", "feed_forward")
_SECOND_HEADS = {"selection": "multi_word_selection", "correction": "corrective_lm"}
_ROWS = 512  # tokens, where the longest rows of training are not known


@dataclasses.dataclass(frozen=True)
class Outline:
    """What is known of weights without reading them."""

    model: dict[str, Any]  # settings of the section `model` that make networks of their shapes
    data: dict[str, Any]  # settings of the section `data` that give their vocabulary
    # What the head of each network does: 'judges', 'predicts', 'encodes', as
    # `trained_weights.Weights.role` has it. A network that is not there is left out.
    roles: dict[str, str]
    longest: int  # tokens in the longest rows of training; 0: not known
    trained_by: str = ""  # the objective whose second head the discriminator has; '': it has none


def read(path: str) -> Outline:
    """Returns the outline of what `reading.open` would read.

    Raises ConfigError, CheckpointError or ValueError, one line, if there is nothing, or if it is
    damaged or of an unknown kind.
    """
    if not path:
        raise config_lib.ConfigError("name the weights: --config=configs/continued.py:WEIGHTS")
    if hub.is_address(path):
        return read(hub.folder(path))
    path = os.path.normpath(staging.copied(path, "path", config_lib.ConfigError))

    if orbax_export.is_one(path):
        return _of_export(path)
    if pair := reading.pair_of_hugging_face(path):
        return _of_hugging_face(pair)
    if prefix := tensorflow_bundle.prefix_of(path):
        return _of_google(prefix)
    return _of_workdir(path)


def _of_export(path):
    about = orbax_export.about(path)
    longest, vocab = about.get("trained_tokens", 0), os.path.join(path, orbax_export.VOCABULARY)
    model = settings(reading.shape(path), longest)
    paths = about["parameters"]
    return Outline(model, {"vocab": vocab}, _roles(paths), longest, _second_head(paths))


def _of_hugging_face(pair):
    place, shape = tokenizer_files.place(pair.main), pair.shapes[pair.main]
    longest = shape.max_positions if shape.trunk["positions"] == "rotary" else 0
    return Outline(settings(pair.shape, longest), _vocabulary(place), pair.roles(), longest)


def _of_google(prefix):
    place = tokenizer_files.place(os.path.dirname(prefix) or os.curdir)
    shape, paths = reading_foreign.outline_of_google(prefix)
    return Outline(settings(shape, 0), _vocabulary(place), _roles(paths), 0)


def _of_workdir(path):
    about = next(iter(metadata.readable(metadata.directory(path))), (None, None))[1]
    workdir = path
    if about is None and os.path.basename(os.path.dirname(path)) == staging.CHECKPOINTS:
        about, workdir = metadata.read(path), os.path.dirname(os.path.dirname(path))
    if about is None:
        raise config_lib.ConfigError(
            f"{path} holds no weights that can be read{hub.meant(path)}; give a workdir with"
            " checkpoints, an export, a folder of Hugging Face or a checkpoint of Google's"
        )

    trained = config_lib.parse_saved(about["config"])
    vocab = reading_workdir.vocabulary_place(workdir, trained, about["vocabulary"])
    paths = [name.partition("/")[2] for name in about["digest"]]  # without params/, ema/
    longest = stages.longest_row(trained, about.get("rows_by_stage", ()))
    model = {name: getattr(trained.model, name) for name in _OF_BOTH}
    for name, without in _OF_SOME.items():
        if f"model.{name}" not in config_lib.READS[trained.objective.name]:
            model[name] = without
    for network in trained_weights.NETWORKS:
        model[network] = dataclasses.asdict(getattr(trained.model, network))
    return Outline(model, {"vocab": vocab}, _roles(paths), longest, _second_head(paths))


def settings(shape: networks.NetworksConfig, longest: int) -> dict[str, Any]:
    """The settings of `model` that make networks of this shape.

    With rotary positions no shape says how long rows may be: as `longest`, those of training.
    """
    trunk = shape.discriminator
    found = {name: getattr(shape if hasattr(shape, name) else trunk, name) for name in _OF_BOTH}
    found["max_positions"] = shape.max_positions or longest or _ROWS
    for network in trained_weights.NETWORKS:
        one = getattr(shape, network)
        found[network] = {name: getattr(one, name) for name in _OF_ONE}
    return found


def _vocabulary(place: tokenizer_files.Place) -> dict[str, Any]:
    """The settings of `data` for a vocabulary; only a vocab.txt does not tell its case itself."""
    if not place.path.endswith(tokenizer_files.VOCAB_TXT):
        return {"vocab": place.path}
    return {
        "vocab": place.path,
        "lower_case": place.lower_case,
        "strip_accents": place.strip_accents,
    }


def _roles(paths: Collection[str]) -> dict[str, str]:
    """What the head of each network does that is there, by the paths of the parameters."""
    found = {name: trained_weights.role_of(paths, name) for name in trained_weights.NETWORKS}
    return {name: role for name, role in found.items() if role}


def _second_head(paths: Collection[str]) -> str:
    """The objective by which a head of the discriminator beside detection was trained."""
    heads = {path.split("/")[1] for path in paths if path.startswith("discriminator/")}
    return next((name for head, name in _SECOND_HEADS.items() if head in heads), "")
