# SPDX-License-Identifier: Apache-2.0
"""Shapes of the networks of a configuration with the vocabulary of the published models."""

import jax

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.model import networks
from electra_jax.step import plans

from .corpus import load_config

VOCABULARY = 30_522  # of BERT; the published sizes are counted with it


def shapes_of(name):
    """(config of the networks, shapes of their parameters) of configs/NAME.py."""
    config = plans.networks_config(config_lib.parse(load_config(name)), VOCABULARY)
    return config, jax.eval_shape(lambda: networks.init(config, jax.random.key(0)))


def tree_of(name):
    """{path: shape} of configs/NAME.py."""
    _, shapes = shapes_of(name)
    return {path: x.shape for path, x in trees.flat(shapes).items()}
