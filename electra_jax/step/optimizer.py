# SPDX-License-Identifier: Apache-2.0
"""AdamW as the reference runs it, optax's own beside it, and Muon for the matrices of the layers.

    gradients -> clip -> moments -> decay -> share of the peak rate -> updates; the step subtracts

`update` takes `applied`, a bool: where it is false the moments stay as they were, and the caller
leaves out the updates. Reference: google-research/electra optimization.py. Rules go by a
parameter's path, never by its rank: what decays, which network's rate and clip it has, which arrays
Muon takes as matrices.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jax import numpy as jnp

from electra_jax.core import trees


@dataclasses.dataclass(frozen=True)
class Rates:
    """The peak of each parameter's learning rate."""

    generator: float  # of the embeddings too
    discriminator: float
    matrices: float | None = None  # of both networks' layers, where Muon takes them

    @property
    def peak(self) -> float:
        """The largest; the others are shares of it."""
        return max(self.generator, self.discriminator, self.matrices or 0.0)

    def share(self, path: str) -> float:
        """The rate of the parameter at this path, as a share of the peak."""
        if self.matrices is not None and matrix(path):
            return self._share(self.matrices)
        return self._share(getattr(self, network(path)))

    def named(self) -> dict[str, float]:
        """{metric: share of the peak}: `learning_rate` once, one a network where they differ."""
        if self.generator == self.discriminator:
            named = {"learning_rate": self.generator}
        else:
            named = {
                "gen_learning_rate": self.generator,
                "disc_learning_rate": self.discriminator,
            }
        if self.matrices is not None and {self.matrices} != set(named.values()):
            named["muon_learning_rate"] = self.matrices
        return {name: self._share(rate) for name, rate in named.items()}

    def _share(self, rate):
        return rate / self.peak if self.peak else 1.0


@dataclasses.dataclass(frozen=True)
class AdamConfig:
    """What every optimizer needs; `clip_norm` 0 switches clipping off."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    clip: str = "joint"  # of all gradients together | 'per_network': each network for itself
    rates: Rates = Rates(1.0, 1.0)


def reference_adamw(config: AdamConfig) -> optax.GradientTransformation:
    """Clip, Adam WITHOUT bias correction, decoupled decay; the caller multiplies by -rate.

    Without correction the first updates are larger (6.5 times at step 10), which the published
    warmup was tuned for.
    """
    return _chain(config, scale_by_uncorrected_adam(config.beta1, config.beta2, config.epsilon))


def adamw(config: AdamConfig) -> optax.GradientTransformation:
    """The same with optax's bias-corrected Adam; the caller multiplies by -rate."""
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    return _chain(config, held_where_not_applied(adam))


def muon(config: AdamConfig) -> optax.GradientTransformation:
    """Optax's Muon for the matrices of the layers, bias-corrected Adam for all else.

    Jordan et al. 2024 (kellerjordan.github.io/posts/muon), with the size of an update that Liu et
    al. 2025 (arXiv:2502.16982, section 2.2) give it: 0.2 sqrt(max(rows, columns)) makes its root
    mean square AdamW's, so that rates and decay tuned for AdamW carry over.
    """
    matrices = optax.chain(
        optax.contrib.scale_by_muon(weight_dimension_numbers=_by_path(_dimensions)),
        optax.stateless(_as_large_as_adams),
    )
    others = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    kinds = _by_path(lambda path: "matrix" if matrix(path) else "other")
    both = optax.partition({"matrix": matrices, "other": others}, kinds)
    return _chain(config, held_where_not_applied(both))


MATRICES = (  # the end of a path -> axes that a product sums over, axes of its result
    (r"attention/(query|key|value)/kernel", (1,), (2, 3)),  # [layers, D, H, K]
    (r"attention/output/kernel", (1, 2), (3,)),  # [layers, H, K, D]
    (r"feed_forward/(in|gate)/kernel", (1,), (2,)),  # [layers, D, F]
    (r"feed_forward/out/kernel", (1,), (2,)),  # [layers, F, D]
)


@functools.cache
def matrix(path: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Input and output axes of a layer's kernel; None for any other parameter.

    A projection belongs to no layer, also where both networks share it and it lies in `encoder/`.

    Raises KeyError for a kernel of a layer that no line of the table covers.
    """
    of_an_encoder = re.search(r"(^|/)encoder/.*kernel$", path)
    if not of_an_encoder or path.endswith("encoder/projection/kernel"):
        return None
    for pattern, reduced, made in MATRICES:
        if re.search(rf"(^|/){pattern}$", path):
            return reduced, made
    raise KeyError(f"no line of optimizer.MATRICES covers {path}")


def network(path: str) -> str:
    """Whose parameter is at this path; what no network has for itself goes with the generator."""
    return "discriminator" if path.startswith("discriminator/") else "generator"


def decays(path: str) -> bool:
    """Whether weight decay applies to the parameter at this path."""
    return not (path.endswith("/bias") or "/norm/" in path)


def decay_mask(params: dict) -> dict:
    """The same for a whole tree."""
    return _by_path(decays)(params)


def clip_by_global_norm(most: float) -> optax.GradientTransformation:
    """Scales all gradients by min(1, most / their joint norm), one factor for all.

    Optax's divides each gradient and selects; that is a second array and a kernel more for every
    parameter, where a factor is fused into the moments.
    """

    def update(gradients, params=None):
        del params
        norm = optax.tree.norm(gradients)
        factor = jnp.where(norm < most, 1.0, most / norm)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)

    return optax.stateless(update)


class UncorrectedAdamState(NamedTuple):
    """First and second moment, each shaped as the parameters."""

    mu: optax.Params
    nu: optax.Params


def scale_by_uncorrected_adam(
    beta1: float, beta2: float, epsilon: float
) -> optax.GradientTransformationExtraArgs:
    """m / (sqrt(v) + epsilon) with plain moving averages from zero; epsilon outside the root."""

    def init(params):
        return UncorrectedAdamState(
            jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
        )

    def update(gradients, state, params=None, *, applied=True, **_):
        del params

        def moved(beta, average, x):
            return jnp.where(applied, beta * average + (1 - beta) * x, average)

        mu = jax.tree.map(lambda m, g: moved(beta1, m, g), state.mu, gradients)
        nu = jax.tree.map(lambda v, g: moved(beta2, v, g * g), state.nu, gradients)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        return updates, UncorrectedAdamState(mu, nu)

    return optax.GradientTransformationExtraArgs(init, update)


def held_where_not_applied(
    transformation: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """The same, its state left as it was where a step is not applied."""

    def update(gradients, state, params=None, *, applied=True, **_):
        updates, new = transformation.update(gradients, state, params)
        return updates, jax.tree.map(lambda n, o: jnp.where(applied, n, o), new, state)

    return optax.GradientTransformationExtraArgs(transformation.init, update)


def _chain(config, moments):
    parts = [_clip(config), moments, optax.add_decayed_weights(config.weight_decay, decay_mask)]
    if set(config.rates.named().values()) != {1.0}:
        parts.append(optax.stateless(functools.partial(_at_own_rate, config.rates)))
    return optax.chain(*parts)


def _clip(config):
    if not config.clip_norm:
        return optax.identity()
    clip = clip_by_global_norm(config.clip_norm)
    if config.clip == "joint":
        return clip
    return optax.partition({"generator": clip, "discriminator": clip}, _by_path(network))


def _at_own_rate(rates, updates, params=None):
    del params
    shares = _by_path(rates.share)(updates)
    return jax.tree.map(lambda u, share: u * share, updates, shares)


def _dimensions(path):
    # Never None: only matrices come here.
    return optax.contrib.MuonDimensionNumbers(*matrix(path))  # type: ignore[misc]


def _as_large_as_adams(updates, params=None):
    del params

    def scaled(update, dimensions):
        sides = (math.prod(update.shape[axis] for axis in axes) for axes in dimensions)
        return 0.2 * math.sqrt(max(sides)) * update

    return jax.tree.map(scaled, updates, _by_path(_dimensions)(updates))


def _by_path(rule: Callable[[str], Any]) -> Callable[[dict], dict]:
    """Turns a rule for one path into a tree of its answers."""

    def answers(tree):
        return jax.tree_util.tree_map_with_path(lambda path, _: rule(trees.path_name(path)), tree)

    return answers
