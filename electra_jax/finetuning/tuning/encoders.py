# SPDX-License-Identifier: Apache-2.0
"""The encoder that is fine-tuned: its shape, vocabulary and weights, from any place.

    a workdir, a checkpoint, an export, a Hugging Face folder  ->  `weights.reading.open`
        ->  the main network and the embedding tables that it reads; no head, no generator

If a run keeps averages of its weights, they are taken, as in the run's evaluations.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from electra_jax.core import meshes, sharding
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.finetuning import config as finetuning_config
from electra_jax.model import accounting, encoder_config, networks
from electra_jax.weights import checkpoint, reading, trained_weights


@dataclasses.dataclass(frozen=True)
class LoadedEncoder:
    """The pre-trained encoder that every task starts from."""

    networks: networks.NetworksConfig  # with the dropout of fine-tuning
    vocabulary: vocabulary_lib.Vocabulary
    trunk: dict | None  # as `networks.main_trunk` gives it; None: random weights, by seed
    parameters: int
    max_tokens: int  # the longest row that it can read; 0: no limit
    pretrained_tokens: int  # in the longest rows of pre-training; 0: none, or not known
    about: Mapping[str, Any]  # for readers: where it comes from, which step
    identity: str  # a hash of all weights

    @property
    def step(self) -> int | None:
        """The step of its checkpoint; None if it has random weights or comes without a step."""
        return self.about.get("step")


@dataclasses.dataclass(frozen=True)
class Start:
    """The encoder weights that the seeds of one task start from."""

    trunk: dict | None  # None: random ones, by seed
    identity: str
    note: str  # where they come from, for readers of the results


def read(config: finetuning_config.Config, workdir: str, mesh: Mesh) -> LoadedEncoder:
    """Reads the encoder that the settings name, by default that of `workdir`; writes nothing.

    Raises ConfigError or CheckpointError.
    """
    source = config.encoder.from_ or workdir
    found = reading.open(source, config.encoder.step or None, config.encoder.data_dir)
    shape = networks_of(config, found, mesh)

    # Only shapes are computed, so counting costs no memory.
    count = sum(
        accounting.parameters(
            jax.eval_shape(lambda: networks.init_trunk(shape, jax.random.key(0)))
        ).values()
    )

    if config.encoder.init == "fresh":
        trunk, identity, about = None, "fresh", {"from": f"random weights, shape of {source}"}
        trained_tokens = 0
    else:
        own = found.alone(found.main())
        trunk = networks.main_trunk(own.networks, own.params)
        trunk = jax.device_put(trunk, sharding.replicated(mesh))
        identity, about = identity_of(trunk), {"from": source, "step": found.step}
        trained_tokens = found.trained_tokens
    return LoadedEncoder(
        networks=shape,
        vocabulary=found.vocabulary,
        trunk=trunk,
        parameters=count,
        max_tokens=shape.max_positions,
        pretrained_tokens=trained_tokens,
        about=about | {"parameters": count},
        identity=identity,
    )


def identity_of(trunk: dict) -> str:
    """A hash of all weights, the same on any mesh."""
    digest = json.dumps(checkpoint.digest(trunk), sort_keys=True)
    return hashlib.blake2b(digest.encode(), digest_size=8).hexdigest()


def networks_of(
    config: finetuning_config.Config, found: trained_weights.Weights, mesh: Mesh
) -> networks.NetworksConfig:
    """The main network's configuration as this fine-tuning computes it on these devices.

    Raises ConfigError if more layers are to be frozen than there are.
    """
    shape, platform = found.alone(found.main()).networks, meshes.platform(mesh)
    dtype, recipe = config.run.dtype, config.recipe
    if dtype == "auto":
        dtype = "float32" if platform == "cpu" else "bfloat16"

    if recipe.frozen_layers > shape.discriminator.layers:
        raise finetuning_config.ConfigError(
            f"recipe.frozen_layers={recipe.frozen_layers}, but the encoder has"
            f" {shape.discriminator.layers} layers; give at most as many"
        )

    main = dataclasses.replace(
        shape.discriminator,
        dropout=recipe.dropout,
        attention_dropout=recipe.attention_dropout,
        remat=config.run.remat,
        frozen_layers=recipe.frozen_layers,
        **encoder_config.forms_on(
            platform,
            config.run.scan,
            norms_in_kernel=meshes.runs_triton(meshes.first_device(mesh)),
        ),
    )
    return dataclasses.replace(shape, discriminator=main, dtype=dtype)
