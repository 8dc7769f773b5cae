# SPDX-License-Identifier: Apache-2.0
"""Reading the trained weights of a workdir: a checkpoint, its configuration and its vocabulary."""

import dataclasses
import glob
import os

import jax
from absl import logging

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.core import trees
from electra_jax.data import records
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import buckets
from electra_jax.step import plans
from electra_jax.weights import checkpoint, trained_weights
from electra_jax.weights.formats import json_files
from electra_jax.workdir import metadata, prepared_data, starts


def read(workdir: str, step: int | None = None, data_dir: str = "") -> trained_weights.Weights:
    """Reads the checkpoint of one step, or the newest that can be read.

    The averaged weights are returned if there are any, since the run was evaluated by them.

    Raises ConfigError or CheckpointError.
    """
    directory = metadata.directory(workdir)
    found = metadata.steps(directory)
    if step is not None and step not in found:
        raise config_lib.ConfigError(
            f"no checkpoint of step {step} in {directory}; there are {', '.join(map(str, found))}"
        )

    def read_one(path):
        about = metadata.read(path)
        config = config_lib.parse_saved(about["config"])
        vocabulary, data = vocabulary_of(workdir, config, about["vocabulary"], data_dir)
        part = "ema" if any(name.startswith("ema/") for name in about["digest"]) else "params"
        shapes = stored_shapes(config, vocabulary, about["digest"], part)
        params = checkpoint.restore(path, {part: checkpoint.on_one_device(shapes)}).tree[part]
        shape = plans.networks_config(trained_weights.portable(config), vocabulary.size)
        shape = trained_weights.portable_shape(shape)
        return trained_weights.Weights(
            workdir,
            about["step"],
            shape,
            params,
            vocabulary,
            config,
            data,
            environment=about.get("environment"),
            stage_rows=tuple(about.get("rows_by_stage", ())),
            began_with=began_with(workdir, config),
            trained_tokens=stages.longest_row(config, about.get("rows_by_stage", ())),
        )

    newest = metadata.newest_good(directory, found if step is None else [step], read_one)
    if newest is None and step is not None:
        raise metadata.CheckpointError(
            f"the checkpoint of step {step} in {directory} cannot be read; leave out the step for"
            " the newest checkpoint that can be read"
        )
    if newest is None:
        raise metadata.CheckpointError(f"no checkpoint in {directory} can be read")
    return newest[0]


def began_with(workdir: str, config: config_lib.Config) -> dict[str, str]:
    """The names of the weights that a workdir's run started from, as `Weights.began_with`.

    With imported weights `init.from` is the workdir itself; starts.jsonl says what they were.
    """
    init, found = config.init, {}
    if imported := starts.imported_from(workdir):
        found["main"] = imported
    elif init.from_ and os.path.abspath(init.from_) != os.path.abspath(workdir):
        found["main"] = trained_weights.name_of(init.from_)
    if init.generator_from:
        found["generator"] = trained_weights.name_of(init.generator_from)
    return found


def stored_shapes(config: config_lib.Config, vocabulary, digest: dict[str, str], part: str) -> dict:
    """Returns the shapes of the parameters that a checkpoint holds, as a nested dict.

    These are all parameters of its objective, or those of some networks only.

    Args:
      digest: the digest in its metadata, which lists all saved arrays.
      part: 'params' or 'ema', the averages.
    """
    plan = plans.make_plan(trained_weights.portable(config), vocabulary)
    whole = jax.eval_shape(plan.objective.init, plan.key)
    return trees.nested(
        {path: x for path, x in trees.flat(whole).items() if f"{part}/{path}" in digest}
    )


def vocabulary_of(
    workdir: str, config: config_lib.Config, sha256: str, data_dir: str = ""
) -> tuple[vocabulary_lib.Vocabulary, records.Manifest | None]:
    """Returns (the vocabulary with this hash, the manifest of its prepared data or None).

    Raises ConfigError if the vocabulary is nowhere, see `vocabulary_place`.
    """
    place, vocabulary, data = _found(workdir, config, sha256, data_dir)
    return vocabulary, prepared_data.manifest(data) or _manifest_beside(os.path.dirname(place))


def vocabulary_place(workdir: str, config: config_lib.Config, sha256: str) -> str:
    """Returns the folder of the vocabulary with this hash.

    Looks in the workdir first, then in the folders of prepared data. Raises ConfigError if the
    vocabulary is nowhere.
    """
    return _found(workdir, config, sha256)[0]


def _found(workdir, config, sha256, data_dir=""):
    """(folder of the vocabulary with this hash, the vocabulary, the run's data)."""
    prepared = data_dir or config.data.dir
    if buckets.is_address(prepared) and not buckets.is_installed():
        prepared = ""  # the rows are there, and weights are read without them
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, dir=prepared))

    data = prepared_data.RunData.of(config, workdir)
    root, inside = data.root, os.path.join(workdir, "data")
    places = [os.path.join(workdir, prepared_data.VOCABULARY)]
    for folder in dict.fromkeys((root, inside)):
        places += sorted(glob.glob(os.path.join(glob.escape(folder), "*", records.VOCABULARY)))

    for place in places:
        if json_files.read(os.path.join(place, "vocabulary.json")).get("sha256") != sha256:
            continue
        try:
            vocabulary = vocabulary_lib.load(place)
        except ValueError as error:
            logging.error("%s cannot be used: %s", place, error)
            continue
        return place, vocabulary, data
    raise config_lib.ConfigError(
        f"the vocabulary {sha256[:12]} of {workdir} is neither in {places[0]} nor under {root};"
        " copy it there, or give --config.data.dir the folder of its prepared data"
    )


def _manifest_beside(folder):
    """Returns the manifest in the folder of a vocabulary, or None if there is none."""
    try:
        return records.read_manifest(folder)
    except ValueError:
        return None
