# SPDX-License-Identifier: Apache-2.0
"""Trained networks in memory, as `reading` returns them, and the comparison of two such."""

import dataclasses

import jax

from electra_jax import config as config_lib
from electra_jax.data import records, vocabulary
from electra_jax.model import networks
from electra_jax.weights import trees

NETWORKS = ("discriminator", "generator")
_NO_LIMIT = 65_536  # tokens of a row, where positions are turned and nobody says more


@dataclasses.dataclass(frozen=True)
class Weights:
    """Networks that were trained, and what is known of how."""

    source: str
    step: int
    networks: networks.NetworksConfig  # computes in float32, with plain products
    params: dict  # shared as they were trained
    vocabulary: vocabulary.Vocabulary
    config: config_lib.Config | None = None  # None where only the shapes are known
    data: records.Manifest | None = None
    moments: dict[str, dict] | None = None  # Google's: {'mu', 'nu'}, each flat by path

    def role(self, network: str) -> str | None:
        """'judges', 'predicts' or 'encodes' (no head); None where there is no such network."""
        own = self.params.get(network)
        if own is None or not ("encoder" in own or "encoder" in self.params):
            return None
        head = own.get("head", {})
        return "judges" if "output" in head else "predicts" if "bias" in head else "encodes"

    def alone(self, network: str) -> "Weights":
        """One network as the main one, with tables of its own and nothing of the other."""
        own = dict(networks.alone(self.networks, self.params, network))
        params = {"embeddings": own.pop("embeddings"), "discriminator": own}
        shape = getattr(self.networks, network)
        config = dataclasses.replace(self.networks, discriminator=shape, sharing="embeddings")
        return dataclasses.replace(self, params=params, networks=config, moments=None)

    @property
    def limit(self) -> int:
        """The most tokens of a row."""
        learned = self.networks.max_positions
        return learned or (self.config.model.max_positions if self.config else _NO_LIMIT)

    def main(self) -> str:
        """The network that is asked for where nobody says which: the one that is fine-tuned."""
        found = next((name for name in NETWORKS if self.role(name)), None)
        if found is None:
            raise config_lib.ConfigError(f"{self.source} holds no network with an encoder")
        return found


def check_same(found, network, again, name):
    """Raises OSError unless one network here and one there are equal, bit for bit."""
    size = found.vocabulary.size
    ours, theirs = (
        trees.flat(jax.device_get(x.alone(which).params))
        for x, which in ((found, network), (again, name))
    )
    for path in ours:
        x, y = ours[path], theirs.get(path)
        if path.endswith(("embeddings/token", "head/bias")):  # the padded tail is no token's
            x, y = x[:size], y[:size]
        if y is None or x.tobytes() != y.tobytes():
            raise OSError(f"{path} came back different; nothing was written")
