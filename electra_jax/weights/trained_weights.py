# SPDX-License-Identifier: Apache-2.0
"""Trained networks in memory, as `reading` returns them, and the comparison of two such."""

import dataclasses
import os
from collections.abc import Collection

import jax

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.data import records
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.host import staging
from electra_jax.model import networks
from electra_jax.weights import hub

NETWORKS = ("discriminator", "generator")
_LEARNT = {  # (objective, network) -> what it has learnt, where its role does not say it
    ("electric", "discriminator"): "gives energies",
    ("masked_token_detection", "discriminator"): "judges slots",
    ("replace_mlm", "discriminator"): "restores slots",
    ("all_tokens_mlm", "discriminator"): "restores",
    ("adversarial_generator", "generator"): "fools",
    ("frozen_generator", "generator"): "frozen",
}
HEADS = ("detection", "head")  # the parts of a network alone that are not fine-tuned
_NO_LIMIT = 65_536  # tokens per row with rotary positions if no configuration says less


def portable(config: config_lib.Config) -> config_lib.Config:
    """The configuration with networks of the same shapes that any device can compute.

    They compute in float32 with plain einsum attention; another kind may need a TPU or GPU that
    this machine lacks.
    """
    model = dataclasses.replace(config.model, attention="einsum", dtype="float32", remat="none")
    return dataclasses.replace(config, model=model)


def portable_shape(shape: networks.NetworksConfig) -> networks.NetworksConfig:
    """The networks with plain products and norms, as exports have them.

    Those of a CPU and of a GPU only make that device faster. The first look up rotations in a table
    of fixed length, where a StableHLO program takes rows of any length; the second need a kernel
    that other devices lack.
    """
    plain = {
        name: dataclasses.replace(getattr(shape, name), products="default", norms_in_kernel=False)
        for name in ("discriminator", "generator")
    }
    return dataclasses.replace(shape, **plain)


def role_of(paths: Collection[str], network: str) -> str | None:
    """What a network's head does, by the paths of all parameters; see `Weights.role`."""
    own = [path for path in paths if path.startswith(f"{network}/")]
    # Of its own, shared, or shared in part.
    encoders = (f"{network}/encoder/", "encoder/", f"{network}/upper_layers/")
    if not own or not any(path.startswith(encoders) for path in paths):
        return None
    if any(path.startswith(f"{network}/head/output/") for path in own):
        return "judges"
    return "predicts" if f"{network}/head/bias" in own else "encodes"


@dataclasses.dataclass(frozen=True)
class Weights:
    """Trained networks, their vocabulary, and what is known of their training."""

    source: str
    step: int
    networks: networks.NetworksConfig  # shapes; computes in float32 with plain einsum attention
    params: dict  # a nested dict of arrays, shared between networks as in training
    vocabulary: vocabulary_lib.Vocabulary
    config: config_lib.Config | None = None  # None if they were not trained here
    data: records.Manifest | None = None  # of the prepared data, if it is still there
    environment: dict | None = None  # what they were trained with, if that is known
    trained_tokens: int = 0  # in the longest rows that they were trained on; 0: not known
    moments: dict[str, dict] | None = None  # of Google's files: {"mu", "nu"}, each by path
    only: str | None = None  # which network of its run this is, if it was taken alone
    stage_rows: tuple[int, ...] = ()  # rows that each stage of its run has taken, if that is known
    # The names of the weights that its run started from: 'main' for the main network and all that
    # comes with it, 'generator' for a generator of its own. Of weights that were not trained here,
    # their own name.
    began_with: dict[str, str] = dataclasses.field(default_factory=dict)

    def role(self, network: str) -> str | None:
        """Returns what a network's head does; None if there is no such network.

        'judges' detects replaced tokens, 'predicts' predicts masked ones, 'encodes' has no head.
        A generator without an encoder of the usual kind (two towers) counts as none.
        """
        return role_of(trees.flat(self.params), network)

    def alone(self, network: str) -> "Weights":
        """Returns one network as the discriminator, with its own tables, without the other."""
        own = dict(networks.alone(self.networks, self.params, network))
        params = {"embeddings": own.pop("embeddings"), "discriminator": own}
        shape = getattr(self.networks, network)
        head = self.networks.discriminator_head if network == "discriminator" else "token"
        config = dataclasses.replace(
            self.networks,
            discriminator=shape,
            sharing="embeddings",
            shared_layers=0,
            discriminator_head=head,
        )
        return dataclasses.replace(
            self, params=params, networks=config, moments=None, only=self.only or network
        )

    def learnt(self, network: str) -> str | None:
        """Returns what a network has learnt, for readers: its role, or what its objective made it.

        Heads of one kind do not all mean the same: that of `electric` gives energies.
        """
        role, objective = self.role(network), self.config.objective.name if self.config else ""
        if role in (None, "encodes"):  # a head of which nothing can be said
            return role
        return _LEARNT.get((objective, self.only or network), role)

    @property
    def limit(self) -> int:
        """The largest number of tokens in a row.

        Without learned positions it is that of the longest rows of training, or `max_positions` if
        that is more; 65,536 if neither is known.
        """
        if self.networks.max_positions:
            return self.networks.max_positions
        if self.config is None:
            return self.trained_tokens or _NO_LIMIT
        return max(self.config.model.max_positions, self.trained_tokens)

    def main(self) -> str:
        """Returns the default network: the one that is fine-tuned.

        Raises ConfigError if no network has an encoder.
        """
        found = next((name for name in NETWORKS if self.role(name)), None)
        if found is None:
            raise config_lib.ConfigError(f"{self.source} holds no network with an encoder")
        return found


def name_of(path: str | os.PathLike) -> str:
    """The name of weights: a repository's address, or the last part of a folder's path.

    A checkpoint has the name of its workdir.
    """
    path = os.fspath(path)
    if hub.is_address(path):
        return path
    path = os.path.abspath(path)
    above = os.path.dirname(path)
    if os.path.basename(above) == staging.CHECKPOINTS:
        path = os.path.dirname(above)
    return os.path.basename(path)


def without_own_layer(found: Weights) -> Weights:
    """Returns the weights without a head that has a layer of its own, if there is one.

    For programs that have no such head; what is fine-tuned stays.
    """
    main = found.params.get("discriminator", {})
    if "detection" not in main:
        return found
    kept = {part: x for part, x in main.items() if part not in HEADS}
    return dataclasses.replace(found, params=found.params | {"discriminator": kept})


def check_same(found, network, again, name):
    """Raises OSError unless `network` of `found` equals `name` of `again`, bit for bit."""
    size = found.vocabulary.size
    ours, theirs = (
        trees.flat(jax.device_get(x.alone(which).params))
        for x, which in ((found, network), (again, name))
    )

    for path in ours:
        x, y = ours[path], theirs.get(path)
        if y is None:
            raise OSError(f"{path} did not come back; nothing was written")
        if path.endswith(("embeddings/token", "head/bias")):  # padded rows belong to no token
            x, y = x[:size], y[:size]
        if x.tobytes() != y.tobytes():
            raise OSError(f"{path} came back different; nothing was written")
