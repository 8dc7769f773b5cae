# SPDX-License-Identifier: Apache-2.0
"""Checks 1 and 3: both losses before the first step, compared with arithmetic.

Each check is a function `check(config, seed) -> Result`. They use the networks of the configuration
in their full size, over random ids, and take seconds, nearly all of them for compiling.
docs/learning_checks.md explains the expected values.
"""

import math

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.checks.result import FOR_SCALE, Measure, Result
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import replaced_token_detection as rtd

FIRST_WEIGHTS = 8  # initializations that are averaged over


def generator_at_step_0(config: config_lib.Config, seed: int) -> Result:
    """Check 1: the generator's first loss is ln V plus half the variance of its scores.

    A layer norm gives a vector the length sqrt(E), so its scores against a table with standard
    deviation s have the variance E s^2, and E[-log softmax] = ln V + E s^2 / 2. With the published
    scale of 0.02 the second term is 0.02 to 0.16; a larger scale makes it visible.
    """
    first = _first_losses(config, seed)
    size = first["size"]
    spread = first["table_variance"].mean() * size / 2
    excess = first["gen"].mean() - math.log(first["vocab_size"])

    return Result(
        1,
        "generator's loss at step 0 is ln V",
        "wrong first weights, logits over the wrong axis, an untied or unscaled table",
        (
            Measure("loss on [MASK] less ln V less E s^2 / 2", excess - spread, -0.15, 0.15),
            Measure("loss less ln V", excess, why=FOR_SCALE),
            Measure("E s^2 / 2", spread, why=FOR_SCALE),
        ),
    )


def discriminator_at_step_0(config: config_lib.Config, seed: int) -> Result:
    """Check 3: the discriminator's first loss is ln 2 plus an eighth of its squared logits.

    A logit z costs ln 2 + z^2 / 8 -+ z / 2. The sign of z depends on the random initialization,
    because the Glorot-uniform last layer gives all tokens a common offset. So the last term is
    noise of known size, and the mean over several initializations is tested.
    """
    first = _first_losses(config, seed)
    excess = first["disc"] - math.log(2) - first["squared_logits"] / 8
    error = excess.std(ddof=1) / math.sqrt(len(excess))
    bound = 0.03 + 3 * error
    weight = config.objective.disc_weight

    return Result(
        3,
        "discriminator's loss at step 0 is ln 2",
        "first weights of the head, positions left out of the loss",
        (
            Measure("loss less ln 2 less z^2 / 8", excess.mean(), -bound, bound),
            Measure("its part of the total", weight * first["disc"].mean(), why=FOR_SCALE),
            Measure(
                "logits, root mean square", first["squared_logits"].mean() ** 0.5, why=FOR_SCALE
            ),
        ),
    )


CHECKS = {
    1: generator_at_step_0,
    3: discriminator_at_step_0,
}


def _first_losses(config, seed):
    """Measures fresh networks: losses, variance of the token table, mean squared logits.

    Returns arrays with one value per initialization, and the sizes E and V as numbers.
    """
    objective, lanes = tiny_networks.in_full_size(config, seed)
    batch, knobs = tiny_networks.batch(lanes), objective.knobs(0.0)

    def one(number):
        key = jax.random.fold_in(jax.random.key(seed), number)
        params = objective.init(streams.stream(key, "init"))
        keys = streams.keys(key, 0, batch.row_B, dropout=False)
        detected = objective.intermediates(params, batch, keys, knobs)
        masked_BN, real_BL = detected.chosen.masked_BN, batch.real_BL
        token_VE = networks.generator_table(objective.networks, params)[0]
        return {
            "gen": (detected.gen_losses_BN * masked_BN).sum() / masked_BN.sum(),
            "disc": (rtd.detection_loss(detected) * real_BL).sum() / real_BL.sum(),
            "squared_logits": (detected.disc_logits_BL**2 * real_BL).sum() / real_BL.sum(),
            "table_variance": token_VE[: objective.networks.vocab_size].var(),
        }

    # One after another and not as a batch: networks in full size need the memory.
    found = tiny_networks.jit(lambda: lax.map(one, jnp.arange(FIRST_WEIGHTS)))()
    return {name: np.asarray(x, np.float64) for name, x in found.items()} | {
        "size": objective.networks.embedding_size,
        "vocab_size": objective.networks.vocab_size,
    }
