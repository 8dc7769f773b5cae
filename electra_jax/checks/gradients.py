# SPDX-License-Identifier: Apache-2.0
"""Checks 11, 12 and 13: which parameters each loss changes, and that lambda has no other effect.

Each check is a function `check(config, seed) -> Result`, over tiny networks of the same kind as
those of the configuration (`tiny_networks.py`) with random weights. docs/learning_checks.md
explains the expected values.
"""

import dataclasses

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.checks.result import ABOVE_ZERO, Measure, Result
from electra_jax.step import optimizer, schedule, train_step

STEPS = 50  # in check 13


def gradients_stay_in_their_network(config: config_lib.Config, seed: int) -> Result:
    """Check 11: in untied networks, no loss has a gradient in any parameter of the other network.

    Sampled ids are integers, so no gradient can pass through them. This check finds a layer or a
    table that both networks read.
    """
    largest = _largest_gradients(config, seed, "none")
    generator, discriminator = ("generator/",), ("discriminator/", "embeddings/")

    return Result(
        11,
        "no gradient crosses between untied networks",
        "shared layers or tables, samples that are not cut off",
        (
            Measure("largest of L_D in the generator", largest("disc", generator), 0, 0),
            Measure("largest of L_MLM in the discriminator", largest("gen", discriminator), 0, 0),
            Measure(
                "least leaf of L_MLM in the generator", largest.least("gen", generator), ABOVE_ZERO
            ),
            Measure(
                "least leaf of L_D in the discriminator",
                largest.least("disc", discriminator),
                ABOVE_ZERO,
            ),
        ),
    )


def sharing_is_as_named(config: config_lib.Config, seed: int) -> Result:
    """Check 12: which loss changes which embedding tables with each value of `model.sharing`.

    With 'embeddings' both losses change the shared tables. With 'gdes' (gradient-disentangled
    embedding sharing) L_MLM changes the tables and L_D only the difference that the discriminator
    adds to them. With 'none' each network has its own tables.
    """
    tables, delta = ("embeddings/",), ("discriminator/embeddings_delta/",)
    own = ("generator/embeddings/",)
    shared, gdes, none = (
        _largest_gradients(config, seed, sharing) for sharing in ("embeddings", "gdes", "none")
    )

    return Result(
        12,
        "embeddings hear the losses that their sharing says",
        "gradient-disentangled or untied embeddings that are neither",
        (
            Measure("shared: least leaf of L_MLM", shared.least("gen", tables), ABOVE_ZERO),
            Measure("shared: least leaf of L_D", shared.least("disc", tables), ABOVE_ZERO),
            Measure("gdes: L_D in the tables", gdes("disc", tables), 0, 0),
            Measure("gdes: L_MLM in the difference", gdes("gen", delta), 0, 0),
            Measure(
                "gdes: least leaf of L_D in the difference", gdes.least("disc", delta), ABOVE_ZERO
            ),
            Measure("untied: L_D in the generator's", none("disc", own), 0, 0),
            Measure("untied: L_MLM in the discriminator's", none("gen", tables), 0, 0),
        ),
    )


def lambda_means_nothing_to_adam(config: config_lib.Config, seed: int) -> Result:
    """Check 13: lambda = 1 and 64 train the same discriminator if the networks share nothing.

    Adam divides a gradient by its own scale, and a power of two scales floating-point numbers
    exactly. This needs no clipping and a very small epsilon. With shared tables and clipping of the
    joint gradient, the two must differ.
    """
    untied = _lambda_moves(config, seed, "none", clip_norm=0.0)
    shared = _lambda_moves(config, seed, "embeddings", clip_norm=1.0)

    return Result(
        13,
        f"lambda = 1 or 64, {STEPS} steps: untied networks do not care",
        "optimizer groups, place of the clip",
        (
            Measure("untied, no clip: relative difference", untied, 0, 1e-5),
            # Three orders of magnitude above what is allowed for the untied networks.
            Measure("shared, joint clip: relative difference", shared, 1e-2),
        ),
    )


CHECKS = {
    11: gradients_stay_in_their_network,
    12: sharing_is_as_named,
    13: lambda_means_nothing_to_adam,
}


@dataclasses.dataclass(frozen=True)
class _Largest:
    """{loss term: {path of a parameter: its largest absolute derivative}}."""

    found: dict[str, dict[str, float]]

    def __call__(self, term, parts):
        """The largest derivative of a term in the parameters whose path begins with `parts`."""
        return max(self._within(term, parts))

    def least(self, term, parts):
        """The smallest of these largest derivatives, which shows whether all parameters learn.

        The bias of an attention key is left out, because its true derivative is 0.
        """
        return min(self._within(term, parts, ("key/bias",)))

    def _within(self, term, parts, without=()):
        leaves = self.found[term].items()
        return [x for path, x in leaves if path.startswith(parts) and not path.endswith(without)]


def _largest_gradients(config, seed, sharing):
    """Returns the derivatives of both losses in every parameter of tiny networks."""
    objective = tiny_networks.objective(tiny_networks.config(config, model__sharing=sharing))
    batch = tiny_networks.batch(tiny_networks.lanes(16, seed))
    keys, knobs = tiny_networks.keys(seed, 0, batch), objective.knobs(0.0)

    @tiny_networks.jit
    def gradients(params):
        # One forward pass; a cotangent of 1 for one term and 0 for the other separates them.
        terms, back = jax.vjp(lambda p: objective.loss(p, batch, keys, knobs)[0], params)
        return {
            term: back({other: jnp.float32(other == term) for other in terms})[0] for term in terms
        }

    found = gradients(tiny_networks.weights(objective, seed))
    return _Largest(
        {
            term: {path: float(np.abs(x).max()) for path, x in tiny_networks.flat(tree).items()}
            for term, tree in found.items()
        }
    )


def _lambda_moves(config, seed, sharing, clip_norm):
    """Trains with lambda = 1 and 64 and returns how far the two discriminators are apart.

    The distance is relative to the distance from the initial weights, after `STEPS` steps.
    """
    objective = tiny_networks.objective(tiny_networks.config(config, model__sharing=sharing))
    adam = optimizer.adamw(optimizer.Settings(epsilon=1e-12, clip_norm=clip_norm, weight_decay=0.0))

    first = tiny_networks.weights(objective, seed)
    lanes = {name: jnp.asarray(lane) for name, lane in tiny_networks.lanes(4, seed).items()}

    @tiny_networks.jit
    def train(weight):
        weighted = dataclasses.replace(objective, disc_weight=weight)
        update = train_step.make_update(
            weighted,
            adam,
            lambda *_: jnp.float32(1e-3),
            jax.random.key(seed),
            tiny_networks.VOCABULARY.pad_id,
            schedule.share_of_steps(STEPS),
        )
        state = train_step.state_of(weighted, adam, first)
        return lax.fori_loop(0, STEPS, lambda _, state: update(state, lanes)[0], state).params

    ends = [tiny_networks.flat(train(jnp.float32(weight))["discriminator"]) for weight in (1, 64)]
    begin = tiny_networks.flat(first["discriminator"])
    # The true gradient of a key's bias is 0, so Adam only amplifies rounding errors there.
    paths = [path for path in begin if not path.endswith("key/bias")]
    apart = optax.tree.norm([ends[0][path] - ends[1][path] for path in paths])
    moved = optax.tree.norm([ends[0][path] - begin[path] for path in paths])
    return float(apart / moved)
