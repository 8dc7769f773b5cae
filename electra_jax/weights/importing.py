# SPDX-License-Identifier: Apache-2.0
"""Making a workdir that begins with weights of other programs: `electra_jax.convert --from`.

The weights come from a Hugging Face folder or from a checkpoint of Google's code. They are written
as checkpoint 0 of a new workdir, together with a configuration that has their shapes and with their
vocabulary, and are read again. `main --workdir=WORKDIR` then trains on.
"""

import dataclasses
import os

import jax
import numpy as np
from absl import logging

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import staging, whole_folder
from electra_jax.step import plans
from electra_jax.weights import (
    checkpoint,
    checkpoint_series,
    reading,
    starting_weights,
    trained_weights,
    warm_start,
)
from electra_jax.weights.formats import modern_electra
from electra_jax.workdir import metadata, prepared_data, saved_config, starts


def to_workdir(source: str, recipe: config_lib.Config, workdir: str) -> dict:
    """Makes a workdir whose run begins with these weights.

    Shapes, sharing and vocabulary are taken from the source, everything else from the recipe. With
    init.optimizer='restored' in the recipe Adam's moments are copied too.

    Returns a summary for printing. Raises ConfigError, in one line, if the source is damaged or
    does not fit the recipe.
    """
    if address := staging.address(workdir):
        raise config_lib.ConfigError(
            f"--workdir={address} is in a bucket, and weights are imported into a folder of this"
            " machine; choose one, and begin the run in the bucket with --config.init.from=FOLDER"
        )

    found = reading.open(source)
    if found.config is not None:
        raise config_lib.ConfigError(
            f"{source} was trained here; begin with it directly: --config.init.from={source}"
        )

    config = _fitting_config(found, recipe, os.path.abspath(workdir))
    for text in sum(config_lib.differences(recipe, config), []):
        if not text.startswith("init."):  # the run begins with the copy
            logging.info("as the weights say: %s", text)

    optimizer, named = None, f"--from={source}"
    if config.init.weights == "ema":
        raise config_lib.ConfigError(
            f"init.weights='ema', but {source} holds no averages; leave out --config.init.weights"
        )

    if config.init.optimizer == "restored":
        optimizer = _optimizer(named, found, config)
    elif found.moments is not None:
        logging.info("Adam's moments stay behind; init.optimizer='restored' takes them along")

    # The run itself copies these layers; here it is only checked that their shapes allow it.
    if config.init.missing_generator == "discriminator" and not found.role("generator"):
        _, fresh = _fresh_state(found, config)
        warm_start.lower_layers(named, trees.flat(found.params), trees.flat(fresh.params))

    with whole_folder.new(workdir, "--workdir") as folder:
        found.vocabulary.save(os.path.join(folder, prepared_data.VOCABULARY))
        _save_first(metadata.directory(folder), found, config, optimizer)
        saved_config.write(folder, config)
        starts.note_imported(folder, _name(found))

        again = reading.open(folder)
        for network in trained_weights.NETWORKS:
            if found.role(network):
                trained_weights.check_same(found, network, again, network)

    return {
        "workdir": os.path.abspath(workdir),
        "networks": [network for network in trained_weights.NETWORKS if found.role(network)],
        "objective": config.objective.name,
    }


def _name(found):
    """The name of the weights; those of an export are called what they were exported from."""
    return found.began_with.get("main") or trained_weights.name_of(found.source)


def _fitting_config(found, recipe, workdir):
    """Returns the recipe with the shapes, the layers and the vocabulary of the weights.

    Raises ConfigError if the recipe asks for other layers or another head than these or the
    published ones, or for another vocabulary.
    """
    model, data = _fitting_model(found, recipe.model), _fitting_data(found, recipe.data, workdir)
    objective = dataclasses.replace(recipe.objective, name=_objective_name(found, recipe))
    init = dataclasses.replace(recipe.init, from_=workdir)
    if objective.name in config_lib.WITHOUT_GENERATOR:
        # Asked for by a recipe of another objective, as configs/continued.py with a BERT.
        init = dataclasses.replace(init, missing_generator="fresh")

    name = os.path.basename(workdir)
    config = dataclasses.replace(
        recipe, name=name, data=data, model=model, objective=objective, init=init
    )
    # Parsed once more, so that the new combination is checked like any other configuration.
    return config_lib.parse(config_lib.to_tree(config))


def _fitting_model(found, model):
    """The section `model` with the shapes and the kinds of layers of the weights."""
    shape = found.networks
    trunk = modern_electra.trunk_of(shape.discriminator)
    kinds = modern_electra.read_settings(trunk) | {"discriminator_head": shape.discriminator_head}
    published = modern_electra.PUBLISHED | {"discriminator_head": "token"}
    for name, value in kinds.items():
        if getattr(model, name) not in (value, published[name]):
            raise config_lib.ConfigError(
                f"model.{name}={getattr(model, name)!r} does not go with these weights, which are"
                f" made for {value!r}; leave it out"
            )

    def network(trunk):
        return config_lib.Network(trunk.layers, trunk.width, trunk.heads, trunk.feed_forward)

    return dataclasses.replace(
        model,
        **kinds,
        embedding_size=shape.embedding_size,
        max_positions=shape.max_positions or found.limit,
        discriminator=network(shape.discriminator),
        generator=network(shape.generator) if found.role("generator") else model.generator,
        sharing=shape.sharing,
        shared_layers=shape.shared_layers,
    )


def _fitting_data(found, data, workdir):
    """The section `data` with the vocabulary of the weights, and rows that they can read."""
    if data.added_pieces:
        raise config_lib.ConfigError(
            f"data.added_pieces={data.added_pieces} makes another vocabulary than that of"
            " these weights, which the workdir gets; leave it out, or begin a run with them:"
            f" --config.init.from={found.source}"
        )

    vocabulary = found.vocabulary
    file = vocabulary_lib.FILES[vocabulary.kind]
    return dataclasses.replace(
        data,
        vocab=os.path.join(workdir, prepared_data.VOCABULARY, file),
        lower_case=vocabulary.lower_case,
        strip_accents=vocabulary.strip_accents,
        sequence_length=min(data.sequence_length, found.networks.max_positions or found.limit),
    )


def _objective_name(found, recipe):
    """Returns the recipe's objective if it trains these networks.

    A main network that predicts tokens gets an objective of that kind instead.
    """
    name = recipe.objective.name
    if found.role("discriminator") == "predicts":
        fitting = ("replace_mlm", "all_tokens_mlm") if found.role("generator") else ("masked_lm",)
        return name if name in fitting else fitting[0]
    if name in ("masked_lm", "replace_mlm", "all_tokens_mlm", "electric"):
        raise config_lib.ConfigError(
            f"objective.name={name!r} has another main network than a discriminator; leave it out,"
            f" or begin such a run with --config.init.from={found.source}"
        )
    return name


def _optimizer(named, found, config):
    """Returns the optimizer state before the first step; zeros where the source has no moments."""
    objective, fresh = _fresh_state(found, config)
    begins = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, objective.phases, found.vocabulary
    )
    moments = starting_weights.google_moments(named, found, begins)
    leaves = [
        moments.get(path, np.zeros(x.shape, x.dtype))
        for path, x in trees.flat(fresh.optimizer).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(fresh.optimizer), leaves)


def _fresh_state(found, config):
    """Returns (the run's objective, the shapes of its state before the first step)."""
    plan = plans.make_plan(config, found.vocabulary)
    return plan.objective, plan.state_shapes


def _save_first(directory, found, config, optimizer=None):
    """Writes the weights as checkpoint 0, marked as weights only: `init.from` begins with it.

    Args:
      optimizer: the optimizer's state if the run continues with moments, else None. It is read
        again and compared with its digest.
    """
    tree = {"params": found.params} | ({} if optimizer is None else {"optimizer": optimizer})
    with checkpoint_series.Checkpoints(directory, keep_last=1) as saved:
        about = {
            "config": config_lib.to_tree(config),
            "data": "",
            "vocabulary": found.vocabulary.sha256,
            "jax": jax.__version__,
            metadata.WEIGHTS_ONLY: True,
        }
        saved.save(0, tree, about)
    if optimizer is not None:
        checkpoint.restore(
            os.path.join(directory, "0"), {"optimizer": checkpoint.on_one_device(optimizer)}
        )
