# SPDX-License-Identifier: Apache-2.0
"""Checks without training: what must hold exactly, or by arithmetic, before the first step.

Each check is a function `check(config, seed) -> Result`. Checks 1 and 3 use the networks of the
configuration in their full size, the others tiny networks of the same kind (`made_up.py`). Each
takes seconds, nearly all of them for compiling. docs/learning_checks.md explains the expected
values.
"""

import dataclasses
import math
import os
import tempfile

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import made_up
from electra_jax.checks.result import ABOVE_ZERO, FOR_SCALE, Measure, Result
from electra_jax.core import streams
from electra_jax.model import networks
from electra_jax.objectives import corrupt
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.report import writers
from electra_jax.step import optimizer, train_step
from electra_jax.training import loop

FIRST_WEIGHTS = 8  # initializations that checks 1 and 3 average over
ROWS = 256  # in the checks that count slots
STEPS = 50  # in check 13
SAVED, CRASHED, ENDED = 4, 6, 8  # steps of the run in check 21


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


def sampler_is_calibrated(config: config_lib.Config, seed: int) -> Result:
    """Check 6: a sample equals the original as often as the generator's probability of it says.

    The originals are drawn from the generator's own distribution, by another method (all scores at
    once, in numpy), so that they are plausible and hits are frequent. A sampler that always takes
    the most probable token hits more often and fails.
    """
    small = made_up.config(config, objective__mask_token_rate=1.0, objective__temperature=1.0)
    objective = made_up.objective(small)
    lanes = made_up.lanes(ROWS, seed)
    batch = made_up.batch(lanes)
    keys, knobs = made_up.keys(seed, 0, batch), objective.knobs(1.0)
    params = made_up.opinionated(made_up.weights(objective, seed))

    @made_up.jit
    def believe(params):
        chosen = objective.choose(batch, keys, knobs)
        masked = objective.mask(batch, chosen, keys)
        return chosen, networks.generator_logits(
            objective.networks, params, masked, chosen.slots_BN
        )

    # The same scores in float64 with numpy, independent of the code under test.
    chosen, logits_BNV = believe(params)
    log_BNV = jax.nn.log_softmax(np.asarray(logits_BNV, np.float64)[..., : made_up.WORDS.size])
    p_BNV = np.exp(np.asarray(log_BNV, np.float64))
    special = list(objective.special_ids)
    allowed_BNV = p_BNV.copy()  # the distribution of samples: special ids are excluded
    allowed_BNV[..., special] = 0
    allowed_BNV /= allowed_BNV.sum(-1, keepdims=True)

    noise_BNV = np.random.default_rng(seed).gumbel(size=p_BNV.shape)
    with np.errstate(divide="ignore"):
        gold_BN = (np.log(allowed_BNV) + noise_BNV).argmax(-1)

    # Slots depend only on which tokens are special, and every slot shows [MASK]. So the generator
    # reads the same input as before, although the originals are new.
    text_BL = np.asarray(corrupt.write(batch.ids_BL, chosen, jnp.asarray(gold_BN)))
    text = made_up.batch(lanes | {"ids": text_BL})
    made = made_up.jit(objective.generate)(params, text, keys, knobs)
    used_BN = np.asarray(made.chosen.used_BN)

    def at_gold(of_BNV):
        return np.take_along_axis(of_BNV, gold_BN[..., None], -1)[..., 0][used_BN]

    hits = (np.asarray(made.sampled_BN) == gold_BN)[used_BN]
    expected = at_gold(allowed_BNV)

    error = math.sqrt((expected * (1 - expected)).sum())
    best = (allowed_BNV.argmax(-1) == gold_BN)[used_BN]
    wrong = np.abs(np.exp(-np.asarray(made.gen_losses_BN, np.float64))[used_BN] - at_gold(p_BNV))

    return Result(
        6,
        "samples hit the original as often as the generator believes in it",
        "wrong temperature, argmax instead of a sample, low precision, a wrong gather",
        (
            Measure(
                "hits less p_G(original), in standard errors",
                float((hits - expected).sum() / error),
                -3,
                3,
            ),
            Measure("argmax accuracy less hits", float(best.mean() - hits.mean()), ABOVE_ZERO),
            Measure("error of p_G(original) in the loss", float(wrong.max()), 0, 1e-4),
            Measure(f"hits, of {used_BN.sum():,} slots", float(hits.mean()), why=FOR_SCALE),
        ),
    )


def labels_follow_from_ids(config: config_lib.Config, seed: int) -> Result:
    """Check 7: a token is labelled replaced if it was chosen and its id changed.

    The labels are counted again in numpy, from the ids alone.
    """
    small = made_up.config(config)
    objective = made_up.objective(small)
    batch = made_up.batch(made_up.lanes(ROWS, seed))
    keys, knobs = made_up.keys(seed, 0, batch), objective.knobs(1.0)
    params = made_up.opinionated(made_up.weights(objective, seed))
    made = made_up.jit(objective.generate)(params, batch, keys, knobs)

    ids_BL, labels_BL = np.asarray(batch.ids_BL), np.asarray(made.replaced_BL)
    chosen_BL = np.zeros(ids_BL.shape, bool)
    differs = lucky = slots = 0
    chosen = jax.device_get(made.chosen)
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


def replace_mlm_never_sees_mask(config: config_lib.Config, seed: int) -> Result:
    """Check 17: how many [MASK] the main network reads, under Replace MLM and under MLM."""
    counts = {}
    for name in ("replace_mlm", "masked_lm"):
        objective = made_up.objective(made_up.config(config, name))
        batch = made_up.batch(made_up.lanes(ROWS, seed))
        keys, knobs = made_up.keys(seed, 0, batch), objective.knobs(1.0)
        params = made_up.weights(objective, seed)
        made = made_up.jit(objective.play)(params, batch, keys, knobs)
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


def resuming_changes_nothing(config: config_lib.Config, seed: int) -> Result:
    """Check 21: a run that crashes and resumes has the same losses as one that does not crash.

    Both are real runs of 8 steps through `training.loop`, on made-up sentences, with dropout. The
    crash comes two steps after a checkpoint.
    """
    with tempfile.TemporaryDirectory() as folder, made_up.compiling_fast():
        text = os.path.join(folder, "text.txt")
        _write_sentences(text, seed)
        small = made_up.config(
            config,
            seed=seed,
            data__source=f"text:{text}",
            data__dir=os.path.join(folder, "data"),
            data__vocab="train:sentencepiece:64",
            data__heldout_fraction=0.1,
            data__batch_size=8,
            data__workers=1,
            model__dropout=0.1,
            optimizer__learning_rate=1e-3,
            schedule__steps=ENDED,
            schedule__warmup_steps=2,
            schedule__accumulation=1,
            checkpoint__every=SAVED,
            evaluation__every=ENDED,
            evaluation__rows=16,
            logging__every=1,
            logging__report_every=10 * ENDED,
            logging__tensorboard=False,
        )

        whole, broken = os.path.join(folder, "whole"), os.path.join(folder, "broken")
        loop.train(small, whole)
        try:
            loop.train(small, broken, [_Crash(CRASHED)])
        except _CrashedError:
            pass
        loop.train(small, broken)

        rows = [writers.read(os.path.join(run, "metrics.jsonl")) for run in (whole, broken)]
    losses = [
        {(row["step"], row["kind"]): (row["gen_loss"], row["disc_loss"]) for row in found}
        for found in rows
    ]

    after = [at for at in losses[0] if at[0] > SAVED]

    differences = [
        max(abs(a - b) for a, b in zip(losses[0][at], losses[1].get(at, (math.inf,) * 2)))
        for at in after
    ]

    return Result(
        21,
        "a resumed run goes on as if it had never stopped",
        "random numbers, optimizer or place in the data lost",
        (
            Measure("largest difference of a loss after resuming", max(differences), 0, 1e-6),
            Measure("steps and evaluations compared", len(after), ENDED - SAVED),
        ),
    )


def randomness_belongs_to_the_row(config: config_lib.Config, seed: int) -> Result:
    """Check 22: a seed gives one result; other row numbers, steps and seeds give other results.

    The key of a row comes from its number in the run. The two halves of the batch hold the same
    rows under different numbers, as the shares of two replicas do.
    """
    objective = made_up.objective(made_up.config(config))
    half = made_up.lanes(ROWS // 4, seed)
    lanes = {name: np.concatenate([lane, lane]) for name, lane in half.items()}
    batch, knobs = made_up.batch(lanes), objective.knobs(1.0)
    params = made_up.weights(objective, seed)

    @made_up.jit
    def run(key, step):
        keys = streams.keys(key, step, batch.row_B, dropout=False)
        made = objective.generate(params, batch, keys, knobs)
        slots_BL = corrupt.write(jnp.zeros_like(batch.ids_BL), made.chosen, made.chosen.used_BN)
        return slots_BL, made.sampled_BN, made.gen_losses_BN

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
    objective = made_up.objective(made_up.config(config, model__max_positions=made_up.LENGTH + 32))
    lanes = made_up.lanes(16, seed)
    padded = {
        "ids": np.pad(lanes["ids"], ((0, 0), (0, 32)), constant_values=made_up.WORDS.pad_id),
        "marks": np.pad(lanes["marks"], ((0, 0), (0, 32))),
    }
    params, knobs = made_up.weights(objective, seed), objective.knobs(1.0)

    def step(of):
        batch = made_up.batch(of)
        keys = made_up.keys(seed, 0, batch)
        played = objective.play(params, batch, keys, knobs)
        sums, _, _ = objective.loss(params, batch, keys, knobs)
        weights = objective.weights(batch, knobs)
        return played, {term: sums[term] / weights[term] for term in sums}

    (short, losses), (long, padded_losses) = (
        jax.device_get(made_up.jit(lambda of=of: step(of))()) for of in (lanes, padded)
    )
    real_BL = np.asarray(made_up.batch(lanes).real_BL)
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
    1: generator_at_step_0,
    3: discriminator_at_step_0,
    6: sampler_is_calibrated,
    7: labels_follow_from_ids,
    11: gradients_stay_in_their_network,
    12: sharing_is_as_named,
    13: lambda_means_nothing_to_adam,
    17: replace_mlm_never_sees_mask,
    21: resuming_changes_nothing,
    22: randomness_belongs_to_the_row,
    23: padding_changes_nothing,
}


def _first_losses(config, seed):
    """Measures fresh networks: losses, variance of the token table, mean squared logits.

    Returns arrays with one value per initialization, and the sizes E and V as numbers.
    """
    objective, lanes = made_up.of_every_size(config, seed)
    batch, knobs = made_up.batch(lanes), objective.knobs(0.0)

    def one(number):
        key = jax.random.fold_in(jax.random.key(seed), number)
        params = objective.init(streams.stream(key, "init"))
        keys = streams.keys(key, 0, batch.row_B, dropout=False)
        played = objective.play(params, batch, keys, knobs)
        masked_BN, real_BL = played.chosen.masked_BN, batch.real_BL
        token_VE = networks.generator_table(objective.networks, params)[0]
        return {
            "gen": (played.gen_losses_BN * masked_BN).sum() / masked_BN.sum(),
            "disc": (rtd.detection_loss(played) * real_BL).sum() / real_BL.sum(),
            "squared_logits": (played.disc_logits_BL**2 * real_BL).sum() / real_BL.sum(),
            "table_variance": token_VE[: objective.networks.vocab_size].var(),
        }

    found = made_up.jit(lambda: lax.map(one, jnp.arange(FIRST_WEIGHTS)))()
    return {name: np.asarray(x, np.float64) for name, x in found.items()} | {
        "size": objective.networks.embedding_size,
        "vocab_size": objective.networks.vocab_size,
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
    objective = made_up.objective(made_up.config(config, model__sharing=sharing))
    batch = made_up.batch(made_up.lanes(16, seed))
    keys, knobs = made_up.keys(seed, 0, batch), objective.knobs(0.0)

    @made_up.jit
    def gradients(params):
        # One forward pass; a cotangent of 1 for one term and 0 for the other separates them.
        terms, back = jax.vjp(lambda p: objective.loss(p, batch, keys, knobs)[0], params)
        return {
            term: back({other: jnp.float32(other == term) for other in terms})[0] for term in terms
        }

    found = gradients(made_up.weights(objective, seed))
    return _Largest(
        {
            term: {path: float(np.abs(x).max()) for path, x in made_up.flat(tree).items()}
            for term, tree in found.items()
        }
    )


def _lambda_moves(config, seed, sharing, clip_norm):
    """Trains with lambda = 1 and 64 and returns how far the two discriminators are apart.

    The distance is relative to the distance from the initial weights, after `STEPS` steps.
    """
    objective = made_up.objective(made_up.config(config, model__sharing=sharing))
    adam = optimizer.adamw(
        optimizer.AdamConfig(epsilon=1e-12, clip_norm=clip_norm, weight_decay=0.0)
    )

    first = made_up.weights(objective, seed)
    lanes = {name: jnp.asarray(lane) for name, lane in made_up.lanes(4, seed).items()}

    @made_up.jit
    def train(weight):
        weighted = dataclasses.replace(objective, disc_weight=weight)
        update = train_step.make_update(
            weighted,
            adam,
            lambda *_: jnp.float32(1e-3),
            jax.random.key(seed),
            made_up.WORDS.pad_id,
        )
        state = train_step.state_of(weighted, adam, first)
        return lax.fori_loop(0, STEPS, lambda _, state: update(state, lanes)[0], state).params

    ends = [made_up.flat(train(jnp.float32(weight))["discriminator"]) for weight in (1, 64)]
    begin = made_up.flat(first["discriminator"])
    # The true gradient of a key's bias is 0, so Adam only amplifies rounding errors there.
    paths = [path for path in begin if not path.endswith("key/bias")]
    apart = optax.tree.norm([ends[0][path] - ends[1][path] for path in paths])
    moved = optax.tree.norm([ends[0][path] - begin[path] for path in paths])
    return float(apart / moved)


class _CrashedError(Exception):
    """Raised by `_Crash` to end a run."""


class _Crash:
    """A metrics writer that fails at a given step, as it would if the disk were full."""

    def __init__(self, step: int):
        self._step = step

    def write(self, step, kind, metrics):
        if step == self._step:
            raise _CrashedError

    def close(self):
        """Closes nothing, because no file is open."""


def _write_sentences(path, seed):
    """Writes 120 documents of made-up words, enough for a tokenizer and some batches."""
    draw = np.random.default_rng(seed)
    words = ["".join(draw.choice(list("abdegilmnorstu"), draw.integers(2, 7))) for _ in range(80)]

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(120):
            for _ in range(draw.integers(2, 8)):
                file.write(" ".join(draw.choice(words, draw.integers(4, 9))) + ".\n")
            file.write("\n")
