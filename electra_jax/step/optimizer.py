# SPDX-License-Identifier: Apache-2.0
"""Four optimizers: AdamW as in the reference, optax's AdamW, Muon for the layers' matrices, LAMB.

    gradients -> clip -> moments -> weight decay -> LAMB's trust ratio -> share of the peak rate
      -> updates

The training step multiplies the updates by -rate. `update` takes a bool `applied`: if it is False,
the moments stay as they were and the caller drops the updates. A parameter's path, never its rank,
decides whether it decays, which network's rate and clipping it has, whether Muon takes it, and
whether LAMB scales it, whole or layer by layer.
Reference: google-research/electra, optimization.py.
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
class PeakRates:
    """The peaks of the learning rates."""

    generator: float
    discriminator: float
    # Of the layers' matrices: (generator or shared, discriminator); None without Muon.
    matrices: tuple[float, float] | None = None
    tables: str = "generator"  # the network that `embeddings/` belongs to

    @property
    def peak(self) -> float:
        """The largest peak; the others are expressed as shares of it."""
        return max(self.generator, self.discriminator, *(self.matrices or ()))

    def share(self, path: str) -> float:
        """The rate of the parameter at this path, as a share of the peak."""
        rates = self.generator, self.discriminator
        if self.matrices is not None and matrix_axes(path):
            rates = self.matrices
        return self._share(rates[network(path, self.tables) == "discriminator"])

    def named(self) -> dict[str, float]:
        """{metric: share of the peak} of the rates that a run logs.

        One `learning_rate`, or one per network if they differ, and one for Muon's matrices if that
        differs, or two.
        """
        if self.generator == self.discriminator:
            named = {"learning_rate": self.generator}
        else:
            named = {
                "gen_learning_rate": self.generator,
                "disc_learning_rate": self.discriminator,
            }

        if self.matrices is not None:
            muon, of_discriminator = self.matrices
            if muon != of_discriminator:
                named["muon_learning_rate"] = muon
                named["disc_muon_learning_rate"] = of_discriminator
            elif {muon} != set(named.values()):
                named["muon_learning_rate"] = muon
        return {name: self._share(rate) for name, rate in named.items()}

    def _share(self, rate):
        return rate / self.peak if self.peak else 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the four optimizers. The peak of the rate is applied by the step."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0  # the largest norm of the gradients; 0 switches clipping off
    clip: str = "joint"  # one norm of all gradients | 'per_network': one for each network
    peaks: PeakRates = PeakRates(1.0, 1.0)


def reference_adamw(settings: Settings) -> optax.GradientTransformation:
    """Clipping, Adam WITHOUT bias correction, decoupled weight decay.

    Without the correction the first updates are larger (6.5 times at step 10). The published warmup
    was tuned for that.
    """
    adam = scale_by_uncorrected_adam(settings.beta1, settings.beta2, settings.epsilon)
    return _chain(settings, adam)


def adamw(settings: Settings) -> optax.GradientTransformation:
    """Clipping, optax's bias-corrected Adam, decoupled weight decay."""
    adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
    return _chain(settings, held_where_not_applied(adam))


def muon(settings: Settings) -> optax.GradientTransformation:
    """Optax's Muon for the matrices of the layers, bias-corrected Adam for all other parameters.

    Muon is by Jordan et al. 2024 (kellerjordan.github.io/posts/muon). Its updates are scaled by
    0.2 sqrt(max(rows, columns)), as in Liu et al. 2025 (arXiv:2502.16982, section 2.2): then their
    root mean square is that of AdamW's updates, and rates and decay tuned for AdamW can be kept.
    """
    matrices = optax.chain(
        optax.contrib.scale_by_muon(weight_dimension_numbers=_by_path(_dimensions)),
        optax.stateless(_as_large_as_adams),
    )
    others = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
    kinds = _by_path(lambda path: "matrix" if matrix_axes(path) else "other")
    both = optax.partition({"matrix": matrices, "other": others}, kinds)
    return _chain(settings, held_where_not_applied(both))


def lamb(settings: Settings) -> optax.GradientTransformation:
    """Clipping, bias-corrected Adam, decoupled weight decay, and a trust ratio for each layer.

    Algorithm 2 of You et al. 2020 (arXiv:1904.00962), without bounds for the norm of the weights.
    Biases and norms have no ratio, as they have no decay. In both it is the LAMB of NVIDIA's
    ELECTRA (DeepLearningExamples), TensorFlow Addons' with `--skip_adaptive`.
    """
    adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
    return _chain(settings, held_where_not_applied(adam), optax.stateless(_at_trust_ratio))


MATRICES = (  # end of a path, axes of the kernel's inputs, axes of its outputs
    (r"attention/(query|key|value)/kernel", (1,), (2, 3)),  # [layers, D, H, K]
    (r"attention/output/kernel", (1, 2), (3,)),  # [layers, H, K, D]
    (r"feed_forward/(in|gate)/kernel", (1,), (2,)),  # [layers, D, F]
    (r"feed_forward/out/kernel", (1,), (2,)),  # [layers, F, D]
)


@functools.cache
def matrix_axes(path: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Input and output axes of a layer's kernel; None for any other parameter.

    A projection of the embeddings belongs to no layer, even if it lies in `encoder/`, as it does
    when both networks share one. Raises KeyError for a kernel that `MATRICES` does not cover.
    """
    of_a_layer = re.search(r"(^|/)(encoder|detection|upper_layers)/.*kernel$", path)
    if not of_a_layer or path.endswith("encoder/projection/kernel"):
        return None

    for pattern, input_axes, output_axes in MATRICES:
        if re.search(rf"(^|/){pattern}$", path):
            return input_axes, output_axes
    raise KeyError(f"no line of optimizer.MATRICES covers {path}")


def network(path: str, tables: str) -> str:
    """The network that a parameter belongs to; shared parameters count as the generator's.

    `tables` is the network that `embeddings/` belongs to: the generator, with which they are
    shared, or the discriminator, if no generator reads them.
    """
    if path.startswith("embeddings/"):
        return tables
    return "discriminator" if path.startswith("discriminator/") else "generator"


def decays(path: str) -> bool:
    """Whether weight decay applies to the parameter at this path."""
    return not (path.endswith("/bias") or "/norm/" in path)


def decay_mask(params: dict) -> dict:
    """Whether weight decay applies, for every parameter of a tree."""
    return _by_path(decays)(params)


def clip_by_global_norm(most: float) -> optax.GradientTransformation:
    """Scales all gradients by the same factor, min(1, most / their joint norm).

    Optax's own function divides each gradient and then selects, which needs a second array and one
    more kernel per parameter. A factor is fused into the computation of the moments.
    """

    def update(gradients, params=None):
        del params
        norm = optax.tree.norm(gradients)
        factor = jnp.where(norm < most, 1.0, most / norm)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients)

    return optax.stateless(update)


class UncorrectedAdamState(NamedTuple):
    """The first and the second moment, each with the shapes of the parameters."""

    mu: optax.Params
    nu: optax.Params


def scale_by_uncorrected_adam(
    beta1: float, beta2: float, epsilon: float
) -> optax.GradientTransformationExtraArgs:
    """m / (sqrt(v) + epsilon), where m and v are plain moving averages that begin at zero."""

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
    """The same transformation, whose state stays as it was if a step is not applied."""

    def update(gradients, state, params=None, *, applied=True, **_):
        updates, new = transformation.update(gradients, state, params)
        return updates, jax.tree.map(lambda n, o: jnp.where(applied, n, o), new, state)

    return optax.GradientTransformationExtraArgs(transformation.init, update)


def _chain(settings, moments, *after_decay):
    """Clipping, moments, weight decay, what comes after it, each parameter's share of the peak."""
    decay = optax.add_decayed_weights(settings.weight_decay, decay_mask)
    parts = [_clip(settings), moments, decay, *after_decay]
    if set(settings.peaks.named().values()) != {1.0}:  # otherwise every share is 1
        parts.append(optax.stateless(functools.partial(_at_own_rate, settings.peaks)))
    return optax.chain(*parts)


def _clip(settings):
    if not settings.clip_norm:
        return optax.identity()
    clip = clip_by_global_norm(settings.clip_norm)
    if settings.clip == "joint":
        return clip
    network_of = functools.partial(network, tables=settings.peaks.tables)
    return optax.partition({"generator": clip, "discriminator": clip}, _by_path(network_of))


def _at_own_rate(rates, updates, params=None):
    del params
    shares = _by_path(rates.share)(updates)
    return jax.tree.map(lambda u, share: u * share, updates, shares)


def _dimensions(path):
    axes = matrix_axes(path)
    assert axes is not None, f"{path} is not a matrix of a layer"
    return optax.contrib.MuonDimensionNumbers(*axes)


def _as_large_as_adams(updates, params=None):
    """Muon's updates, scaled to the root mean square of AdamW's."""
    del params

    def scaled(update, dimensions):
        sides = (math.prod(update.shape[axis] for axis in axes) for axes in dimensions)
        return 0.2 * math.sqrt(max(sides)) * update

    return jax.tree.map(scaled, updates, _by_path(_dimensions)(updates))


def _at_trust_ratio(updates, params):
    """LAMB's updates: each array's, or each layer's of a stack, times |weights| / |update|.

    The ratio is 1 if either norm is 0.
    """
    ratio = optax.scale_by_trust_ratio()

    def scaled(update, weights):
        return ratio.update(update, optax.EmptyState(), weights)[0]

    def scale(path):
        if not decays(path):
            return lambda update, weights: update
        return jax.vmap(scaled) if matrix_axes(path) else scaled

    return jax.tree.map(lambda u, w, f: f(u, w), updates, params, _by_path(scale)(updates))


def _by_path(rule: Callable[[str], Any]) -> Callable[[dict], dict]:
    """Turns a function of one path into a function of a tree, which applies it to every path."""

    def answers(tree):
        return jax.tree_util.tree_map_with_path(lambda path, _: rule(trees.path_name(path)), tree)

    return answers
