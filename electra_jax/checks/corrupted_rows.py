# SPDX-License-Identifier: Apache-2.0
"""Checks 6, 7, 17, 22 and 23: what is written into rows, by which random numbers, and padding.

Each check is a function `check(config, seed) -> Result`, over tiny networks of the same kind as
those of the configuration (`tiny_networks.py`) with random weights. docs/learning_checks.md
explains the expected values.
"""

import math

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.checks.result import ABOVE_ZERO, FOR_SCALE, Measure, Result
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import masking

ROWS = 256  # in the checks that count slots


def sampler_is_calibrated(config: config_lib.Config, seed: int) -> Result:
    """Check 6: a sample equals the original as often as the generator's probability of it says.

    The originals are drawn from the generator's own distribution, by another method (all scores at
    once, in numpy), so that they are plausible and hits are frequent. A sampler that always takes
    the most probable token hits more often and fails.
    """
    small = tiny_networks.config(config, objective__mask_token_rate=1.0, objective__temperature=1.0)
    objective = tiny_networks.objective(small)
    lanes = tiny_networks.lanes(ROWS, seed)
    batch = tiny_networks.batch(lanes)
    keys, knobs = tiny_networks.keys(seed, 0, batch), objective.knobs(1.0)
    params = tiny_networks.with_uneven_scores(tiny_networks.weights(objective, seed))

    chosen, p_BNV = _probabilities(objective, params, batch, keys, knobs)
    allowed_BNV = p_BNV.copy()  # the distribution of samples: special ids are excluded
    allowed_BNV[..., list(objective.special_ids)] = 0
    allowed_BNV /= allowed_BNV.sum(-1, keepdims=True)
    originals_BN = _draw(allowed_BNV, seed)

    # Slots depend only on which tokens are special, and every slot shows [MASK]. So the generator
    # reads the same input as before, although the originals are new.
    text_BL = np.asarray(masking.write(batch.ids_BL, chosen, jnp.asarray(originals_BN)))
    text = tiny_networks.batch(lanes | {"ids": text_BL})
    made = tiny_networks.jit(objective.generate)(params, text, keys, knobs)
    used_BN = np.asarray(made.chosen.used_BN)

    return Result(
        6,
        "samples hit the original as often as the generator believes in it",
        "wrong temperature, argmax instead of a sample, low precision, a wrong gather",
        _compared_hits(made, used_BN, originals_BN, allowed_BNV, p_BNV),
    )


def _compared_hits(made, used_BN, originals_BN, allowed_BNV, p_BNV) -> tuple[Measure, ...]:
    """The numbers of check 6: hits of the samples against the probabilities of the originals."""

    def at_original(of_BNV):
        return np.take_along_axis(of_BNV, originals_BN[..., None], -1)[..., 0][used_BN]

    hits = (np.asarray(made.sampled_BN) == originals_BN)[used_BN]
    expected = at_original(allowed_BNV)
    error = math.sqrt((expected * (1 - expected)).sum())
    best = (allowed_BNV.argmax(-1) == originals_BN)[used_BN]
    losses_BN = np.asarray(made.gen_losses_BN, np.float64)
    wrong = np.abs(np.exp(-losses_BN)[used_BN] - at_original(p_BNV))

    return (
        Measure(
            "hits less p_G(original), in standard errors",
            float((hits - expected).sum() / error),
            -3,
            3,
        ),
        Measure("argmax accuracy less hits", float(best.mean() - hits.mean()), ABOVE_ZERO),
        Measure("error of p_G(original) in the loss", float(wrong.max()), 0, 1e-4),
        Measure(f"hits, of {used_BN.sum():,} slots", float(hits.mean()), why=FOR_SCALE),
    )


def labels_follow_from_ids(config: config_lib.Config, seed: int) -> Result:
    """Check 7: a token is labelled replaced if it was chosen and its id changed.

    The labels are counted again in numpy, from the ids alone.
    """
    small = tiny_networks.config(config)
    objective = tiny_networks.objective(small)
    batch = tiny_networks.batch(tiny_networks.lanes(ROWS, seed))
    keys, knobs = tiny_networks.keys(seed, 0, batch), objective.knobs(1.0)
    params = tiny_networks.with_uneven_scores(tiny_networks.weights(objective, seed))
    made = tiny_networks.jit(objective.generate)(params, batch, keys, knobs)

    ids_BL, labels_BL = np.asarray(batch.ids_BL), np.asarray(made.replaced_BL)
    chosen_BL = np.zeros(ids_BL.shape, bool)
    differs = lucky = slots = 0
    chosen = jax.device_get(made.chosen)

    # One slot at a time, so that this code has nothing in common with the code under test.
    for row, (slots_N, used_N, sampled_N) in enumerate(
        zip(chosen.slots_BN, chosen.used_BN, np.asarray(made.sampled_BN))
    ):
        for slot, id_ in zip(slots_N[used_N], sampled_N[used_N]):
            chosen_BL[row, slot] = True
            slots += 1
            differs += int(id_ != ids_BL[row, slot])
            lucky += int(id_ == ids_BL[row, slot])

    share = labels_BL.sum() / max(slots, 1)

    return Result(
        7,
        "labels follow from ids",
        "a sample equal to the original counted as replaced, labels by position",
        (
            Measure("labels less chosen slots that differ", int(labels_BL.sum()) - differs, 0, 0),
            Measure("labels outside the chosen slots", int(labels_BL[~chosen_BL].sum()), 0, 0),
            Measure(
                "replaced of chosen less 1 less lucky of chosen",
                float(share - (1 - lucky / max(slots, 1))),
                -1e-9,
                1e-9,
            ),
            Measure(f"samples equal to the original, of {slots:,}", lucky, 1),
        ),
    )


def replace_mlm_never_sees_mask(config: config_lib.Config, seed: int) -> Result:
    """Check 17: how many [MASK] the main network reads, under Replace MLM and under MLM."""
    counts = {}
    for name in ("replace_mlm", "masked_lm"):
        objective = tiny_networks.objective(tiny_networks.config(config, name))
        batch = tiny_networks.batch(tiny_networks.lanes(ROWS, seed))
        keys, knobs = tiny_networks.keys(seed, 0, batch), objective.knobs(1.0)
        params = tiny_networks.weights(objective, seed)
        made = tiny_networks.jit(objective.intermediates)(params, batch, keys, knobs)
        counts[name] = int((np.asarray(made.corrupted_BL) == objective.mask_id).sum())

    return Result(
        17,
        "the main network of Replace MLM never sees [MASK], that of MLM does",
        "a control of table 5 that reads the wrong text",
        (
            Measure("[MASK] under replace_mlm", counts["replace_mlm"], 0, 0),
            Measure("[MASK] under masked_lm", counts["masked_lm"], 1),
        ),
    )


def randomness_belongs_to_the_row(config: config_lib.Config, seed: int) -> Result:
    """Check 22: a seed gives one result; other row numbers, steps and seeds give other results.

    The key of a row comes from its number in the run. The two halves of the batch hold the same
    rows under different numbers, as the shares of two replicas do.
    """
    objective = tiny_networks.objective(tiny_networks.config(config))
    half = tiny_networks.lanes(ROWS // 4, seed)
    lanes = {name: np.concatenate([lane, lane]) for name, lane in half.items()}
    batch, knobs = tiny_networks.batch(lanes), objective.knobs(1.0)
    params = tiny_networks.weights(objective, seed)

    @tiny_networks.jit
    def run(key, step):
        keys = streams.keys(key, step, batch.row_B, dropout=False)
        made = objective.generate(params, batch, keys, knobs)
        slots_BL = masking.write(jnp.zeros_like(batch.ids_BL), made.chosen, made.chosen.used_BN)
        return slots_BL, made.sampled_BN, made.gen_losses_BN

    # The first two are equal in everything; the others differ in the step or in the seed.
    runs = [
        jax.device_get(run(jax.random.key(number), step))
        for number, step in ((seed, 0), (seed, 0), (seed, 1), (seed + 1, 0))
    ]

    equal = all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1]))
    slots_BL, middle = runs[0][0], len(half["ids"])

    def same(one_BL, other_BL):
        return float((one_BL == other_BL).all(1).mean())

    # By chance 1 in C(10, 2) = 45 of the shortest rows has equal slots, far fewer of the others.
    often = 0.1

    return Result(
        22,
        "one seed, one result; other replicas, steps and seeds draw other slots",
        "a key that is not folded with the row, the step or the seed",
        (
            Measure("two runs of one seed differ", int(not equal), 0, 0),
            Measure(
                "rows with equal slots, two replicas",
                same(slots_BL[:middle], slots_BL[middle:]),
                0,
                often,
            ),
            Measure("rows with equal slots, two steps", same(slots_BL, runs[2][0]), 0, often),
            Measure("rows with equal slots, two seeds", same(slots_BL, runs[3][0]), 0, often),
        ),
    )


def padding_changes_nothing(config: config_lib.Config, seed: int) -> Result:
    """Check 23: 32 padding tokens at the end of every row change no loss and no logit."""
    objective = tiny_networks.objective(
        tiny_networks.config(config, model__max_positions=tiny_networks.LENGTH + 32)
    )
    lanes = tiny_networks.lanes(16, seed)
    padded = {
        "ids": np.pad(
            lanes["ids"], ((0, 0), (0, 32)), constant_values=tiny_networks.VOCABULARY.pad_id
        ),
        "marks": np.pad(lanes["marks"], ((0, 0), (0, 32))),
    }
    params, knobs = tiny_networks.weights(objective, seed), objective.knobs(1.0)

    def step(of):
        batch = tiny_networks.batch(of)
        keys = tiny_networks.keys(seed, 0, batch)
        played = objective.intermediates(params, batch, keys, knobs)
        sums, _ = objective.loss(params, batch, keys, knobs)
        denominators = objective.denominators(batch, knobs)
        return played, {term: sums[term] / denominators[term] for term in sums}

    (short, losses), (long, padded_losses) = (
        jax.device_get(tiny_networks.jit(lambda of=of: step(of))()) for of in (lanes, padded)
    )
    real_BL = np.asarray(tiny_networks.batch(lanes).real_BL)
    length = real_BL.shape[1]
    moved = np.abs(short.disc_logits_BL - long.disc_logits_BL[:, :length])[real_BL].max()

    return Result(
        23,
        "32 pads more change nothing",
        "padding in a loss or in attention",
        (
            Measure("largest change of a logit", float(moved), 0, 1e-5),
            *(
                Measure(
                    f"change of {term}_loss",
                    float(abs(losses[term] - padded_losses[term])),
                    0,
                    1e-5,
                )
                for term in losses
            ),
        ),
    )


CHECKS = {
    6: sampler_is_calibrated,
    7: labels_follow_from_ids,
    17: replace_mlm_never_sees_mask,
    22: randomness_belongs_to_the_row,
    23: padding_changes_nothing,
}


def _probabilities(objective, params, batch, keys, knobs):
    """Returns the chosen slots, and the generator's probability of each id there, [B, N, V].

    All scores are computed at once; the code under test goes through the vocabulary in pieces.
    """

    @tiny_networks.jit
    def believe(params):
        chosen = objective.choose(batch, keys, knobs)
        masked = objective.mask(batch, chosen, keys)
        return chosen, networks.generator_logits(
            objective.networks, params, masked, chosen.slots_BN
        )

    chosen, logits_BNV = believe(params)
    log_BNV = jax.nn.log_softmax(
        np.asarray(logits_BNV, np.float64)[..., : tiny_networks.VOCABULARY.size]
    )
    return chosen, np.exp(np.asarray(log_BNV, np.float64))


def _draw(p_BNV, seed):
    """Draws an id at every slot: the largest of log-probability plus Gumbel noise, [B, N]."""
    noise_BNV = np.random.default_rng(seed).gumbel(size=p_BNV.shape)
    with np.errstate(divide="ignore"):  # log 0 is -inf, which is never drawn
        return (np.log(p_BNV) + noise_BNV).argmax(-1)
