# SPDX-License-Identifier: Apache-2.0
"""Checks that need runs of their own beside the micro-run: each is `check(runs) -> Result`.

    9    uniform and unigram generators          2 runs
    10   text whose tokens are shuffled          1 run of 3/4 the steps and twice the length
    14   one corrupted batch for ever            300 steps
    16   ELECTRA 15 %                            1 run
    18   frozen generator, two temperatures      3 runs of a quarter of the steps
    19   MLM, for a probe                        1 run

A run is an ordinary one through `training.train`, of the same configuration with the settings that
the check names (`trained.Runs`); it is kept and never trained twice.
"""

import dataclasses
import json
import math
import os
import shutil
import zlib

import jax
import numpy as np
from absl import logging
from jax import lax
from jax import numpy as jnp

from electra_jax.checks import made_up, trained
from electra_jax.checks.result import (
    ABOVE_ZERO,
    FOR_SCALE,
    NOT_CALIBRATED,
    SOFT,
    Measure,
    Result,
)
from electra_jax.core import batch as batch_lib
from electra_jax.data import planning, preparation, records, totals, vocabulary
from electra_jax.host import safe_files
from electra_jax.model import networks
from electra_jax.objectives import corruption, scoring
from electra_jax.objectives import replaced_token_detection as rtd
from electra_jax.step import optimizer, train_step

STEPS = 300  # of check 14
PROBE_ROWS = 512  # of check 19, half to fit and half to try
FREQUENT = 50  # words of check 19's class of function words

_ENTROPY = "entropy.json"  # written last, beside shuffled records


def order_of_generators(runs: trained.Runs) -> Result:
    """9: how easily replaced words are found when nobody, or only frequency, chose them."""
    learned = runs.micro().judged.auc()
    uniform, unigram = (
        runs.run(name, objective__name=f"{name}_generator").judged.auc()
        for name in ("uniform", "unigram")
    )
    return Result(
        9,
        "uniform draws are found more easily than a learned generator's",
        "a generator that is not wired to the corruption",
        (
            Measure("uniform less learned, AUC over words", uniform - learned, 0.15),
            Measure("unigram less learned", unigram - learned, why=f"{SOFT}: table >= 0"),
            Measure("uniform", uniform, why=FOR_SCALE),
            Measure("learned", learned, why=FOR_SCALE),
        ),
    )


def nothing_leaks(runs: trained.Runs) -> Result:
    """10: tokens shuffled over the whole corpus leave frequencies and nothing else to learn.

    Whatever beats chance here leaks: a [MASK], a position, padding, a type, a generator that does
    not sample from what it believes.
    """
    changes, entropy = leak_control(runs)
    run = runs.run("leak", **changes)
    return Result(
        10,
        "on shuffled tokens there is nothing to find",
        "a leak: everything else would pass with one",
        (
            Measure(
                "generator's loss on [MASK] less H1",
                run.evaluations[-1]["gen_masked_loss"] - entropy,
                -0.05,
                0.05,
            ),
            Measure("held-out AUC, words", run.judged.auc(), 0.47, 0.53),
        ),
    )


def leak_control(runs: trained.Runs) -> tuple[dict, float]:
    """(the settings of check 10's run, the entropy of its held-out tokens); makes its data.

    Twice as long rows, so that [CLS] and [SEP], which are never replaced, are fewer; a tenth held
    out, so that the entropy is not biased; a high rate: frequencies are all there is to learn.
    """
    c = runs.config
    changes = dict(
        data__sequence_length=2 * c.data.sequence_length,
        data__batch_size=c.data.batch_size // 2,
        data__heldout_fraction=0.1,
        model__max_positions=2 * c.data.sequence_length,
        schedule__steps=c.schedule.steps * 3 // 4,
        optimizer__learning_rate=3 * c.optimizer.learning_rate,
        evaluation__rows=2048,
    )
    config = runs.changed("leak", **changes)
    settings = planning.Settings.from_config(config)
    ordered = preparation.prepare(settings, config.data.dir, logging.info)
    root = os.path.join(runs.workdir, "shuffled")
    folder = os.path.join(root, os.path.basename(ordered))
    kept = os.path.join(root, _ENTROPY)
    if not (os.path.exists(kept) and os.path.isdir(folder)):  # or of text that changed since
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(ordered, folder)
        entropy = shuffle_tokens(folder)
        safe_files.write(kept, json.dumps(entropy).encode())
    with open(kept, encoding="utf-8") as file:
        return changes | {"data__dir": root}, json.load(file)


def shuffle_tokens(folder: str) -> float:
    """Permutes all text tokens of a prepared folder over all its rows; the held-out entropy."""
    manifest = records.open(folder).manifest
    words = vocabulary.load(os.path.join(folder, "vocab"))
    shards = [
        (split, shard)
        for split in records.SPLITS
        for source in manifest.sources
        for shard in source.shards[split]
    ]
    dtype = np.dtype(manifest.lanes["ids"])
    paths = [
        os.path.join(records.split_directory(folder, split), f"{shard.name}.ids")
        for split, shard in shards
    ]
    arrays = [np.fromfile(path, dtype) for path in paths]
    text = [~np.isin(array, words.special_ids) for array in arrays]
    tokens = np.concatenate([array[places] for array, places in zip(arrays, text)])
    np.random.default_rng(0).shuffle(tokens)

    heldout, changed = [], {}
    for (split, shard), path, array, places in zip(shards, paths, arrays, text):
        array[places], tokens = tokens[: places.sum()], tokens[places.sum() :]
        array.tofile(path)
        changed[shard.name, split] = zlib.crc32(array)
        if split == "heldout":
            heldout.append(array[places])

    def with_checksums(source):
        shards = {
            split: tuple(
                dataclasses.replace(shard, crc=shard.crc | {"ids": changed[shard.name, split]})
                for shard in found
            )
            for split, found in source.shards.items()
        }
        return dataclasses.replace(source, shards=shards)

    sources = tuple(map(with_checksums, manifest.sources))
    records.write_manifest(folder, dataclasses.replace(manifest, sources=sources))
    return totals.unigram_entropy(np.bincount(np.concatenate(heldout)))


def one_batch_is_learnt(runs: trained.Runs) -> Result:
    """14: the same eight rows with the same tokens replaced, again and again, without dropout."""
    gen_loss, disc_loss, before = overfit(runs.config, runs.seed)
    return Result(
        14,
        f"one corrupted batch is learnt by heart in {STEPS} steps",
        "dead layers, frozen parameters, a wrong mask",
        (
            Measure("discriminator's loss", disc_loss, 0, 0.05),
            Measure("generator's loss", gen_loss, 0, 0.2),
            Measure("both before", sum(before), why=FOR_SCALE),
        ),
    )


def overfit(config, seed: int) -> tuple[float, float, tuple[float, float]]:
    """(gen_loss, disc_loss) after `STEPS` steps on one corrupted batch, and both before."""
    objective, lanes = made_up.of_every_size(config, seed, dropout=0.0, attention_dropout=0.0)
    batch = made_up.batch(lanes)
    keys, knobs = made_up.keys(seed, 0, batch), objective.knobs(1.0)
    first = jax.jit(objective.init)(jax.random.key(seed))
    made = jax.jit(objective.generate)(first, batch, keys, knobs)
    fields = {field.name: getattr(objective, field.name) for field in dataclasses.fields(objective)}
    pinned = _Pinned(**fields, keys=keys, made=made)
    adam = optimizer.adamw(optimizer.AdamConfig(weight_decay=0.0))
    # A rate for small networks without a schedule; three times the published one of Small.
    update = train_step.make_update(
        pinned, adam, lambda *_: jnp.float32(1.5e-3), jax.random.key(seed), made_up.WORDS.pad_id
    )
    lanes = {name: jnp.asarray(lane) for name, lane in lanes.items()}

    @jax.jit
    def train(params):
        def step(state, _):
            state, measured = update(state, lanes)
            return state, (measured.checks["gen_loss"], measured.checks["disc_loss"])

        state = train_step.state_of(pinned, adam, params)
        return lax.scan(step, state, length=STEPS)[1]

    gen_losses, disc_losses = train(first)
    before = float(gen_losses[0]), float(disc_losses[0])
    return float(gen_losses[-1]), float(disc_losses[-1]), before


@dataclasses.dataclass(frozen=True)
class _Pinned(rtd.ReplacedTokenDetection):
    """The objective with one draw of slots and samples, whatever the step."""

    keys: object = dataclasses.field(default=None, compare=False)
    made: object = dataclasses.field(default=None, compare=False)

    def generate(self, params, batch, keys, knobs) -> corruption.Corrupted:
        """The generator's losses as they are now, what it wrote as it was."""
        now = super().generate(params, batch, self.keys, knobs)
        return dataclasses.replace(
            self.made,
            gen_losses_BN=now.gen_losses_BN,
            gen_hits_BN=now.gen_hits_BN,
            gen_entropies_BN=now.gen_entropies_BN,
        )


def loss_on_all_tokens(runs: trained.Runs) -> Result:
    """16: ELECTRA 15 % never hears that an untouched token is an original."""
    full = runs.micro().judged
    part = runs.run("electra_15", objective__name="masked_token_detection").judged

    def belief(judged):
        untouched = judged.word & ~judged.chosen
        return float((1 / (1 + np.exp(-judged.logits[untouched]))).mean())

    return Result(
        16,
        "ELECTRA 15 % suspects tokens that nobody touched",
        "an ablation switch that does nothing",
        (
            Measure("mean p(replaced) of untouched words, all tokens", belief(full), 0, 0.15),
            Measure("ELECTRA 15 % less that", belief(part) - belief(full), ABOVE_ZERO),
            Measure(
                "AUC of all tokens less ELECTRA 15 %",
                full.auc() - part.auc(),
                why=f"{NOT_CALIBRATED}: table > 0",
            ),
        ),
    )


def frozen_generator_needs_heat(runs: trained.Runs) -> Result:
    """18: a strong generator from step 0 on, at temperature 1, against the two remedies."""
    c = runs.config
    short = dict(
        model__sharing="none",
        schedule__steps=c.schedule.steps // 4,
        schedule__warmup_steps=c.schedule.warmup_steps // 4,
    )
    micro = runs.micro()
    frozen = short | dict(objective__name="frozen_generator", init__generator_from=micro.workdir)
    found = {
        "joint": runs.run("joint_short", **short).judged.auc(),
        "frozen": runs.run("frozen", **frozen).judged.auc(),
        "heated": runs.run("heated", **frozen, objective__first_temperature=2.0).judged.auc(),
    }
    why = f"{NOT_CALIBRATED}: table >= 0"
    return Result(
        18,
        "joint training and a falling temperature beat a frozen strong generator",
        "a temperature schedule that is not used",
        (
            Measure("joint less frozen, AUC over words", found["joint"] - found["frozen"], why=why),
            Measure("temperature 2 to 1 less 1", found["heated"] - found["frozen"], why=why),
            Measure("frozen at temperature 1", found["frozen"], why=FOR_SCALE),
        ),
    )


def encoder_is_worth_something(runs: trained.Runs) -> Result:
    """19: a linear probe for the class of the next token, on the discriminator's hidden states.

    Classes: continues a word, has no letter, one of the 50 most frequent words, other words.
    """
    micro = runs.micro()
    mlm = runs.run("masked_lm", objective__name="masked_lm")
    # The same encoder under the head of a discriminator: the probe reads what is below heads.
    own = mlm.params["discriminator"]
    trunk = {part: own[part] for part in own if part in ("projection", "encoder")}
    borrowed = micro.first_params | {
        "embeddings": mlm.params["embeddings"],
        "discriminator": micro.first_params["discriminator"] | trunk,
    }
    hits = {
        name: _probe(micro, params)
        for name, params in (
            ("trained", micro.params), ("random", micro.first_params), ("mlm", borrowed),
        )
    }  # fmt: skip
    gain, error = _paired(hits["trained"], hits["random"])
    errors = gain / error if error else 0.0  # where every answer is the same
    over_mlm, _ = _paired(hits["trained"], hits["mlm"])
    return Result(
        19,
        "a linear probe finds more in the trained encoder than in a random one",
        "an encoder that is not loaded or not trained",
        (
            Measure("gain over random first weights, in standard errors", errors, 3.0),
            Measure("the same in points", 100 * gain, why=f"{NOT_CALIBRATED}: table >= 5"),
            Measure("gain over MLM at equal steps, in points", 100 * over_mlm, why=SOFT),
        ),
    )


CHECKS = {
    9: order_of_generators,
    10: nothing_leaks,
    14: one_batch_is_learnt,
    16: loss_on_all_tokens,
    18: frozen_generator_needs_heat,
    19: encoder_is_worth_something,
}


def _probe(run: trained.Run, params: dict) -> list[np.ndarray]:
    """Of each row that was tried: whether the probe was right, [tokens]."""
    ids, marks = run.training_rows(PROBE_ROWS)
    words = run.opened.vocabulary

    @jax.jit
    def encode(params, ids, marks):
        row_B = jnp.arange(len(ids), dtype=jnp.uint32)
        batch = batch_lib.from_lanes(ids, marks, row_B, run.pad_id)
        return networks.encode(run.objective.networks, params, batch)[0]

    hidden_BLD = np.asarray(encode(params, ids.astype(np.int32), marks), np.float64)
    class_V = _token_classes(words, run.opened.records.unigram()[0])
    word_BL = ~np.isin(ids, run.special_ids)
    asked_BL = word_BL & np.pad(word_BL[:, 1:], ((0, 0), (0, 1)))  # its next is a word too
    next_BL = class_V[np.roll(ids, -1, axis=1)]
    half = PROBE_ROWS // 2
    x = hidden_BLD[:half][asked_BL[:half]]
    mean, spread = x.mean(0), x.std(0) + 1e-6

    def features(hidden):
        scaled = (hidden - mean) / spread
        return np.concatenate([scaled, np.ones((*scaled.shape[:-1], 1))], -1)

    x, y = features(x), np.eye(4)[next_BL[:half][asked_BL[:half]]]
    kernel = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(x.shape[1]), x.T @ y)
    right_BL = scoring.highest(features(hidden_BLD[half:]) @ kernel) == next_BL[half:]
    return [right[asked] for right, asked in zip(right_BL, asked_BL[half:]) if asked.any()]


def _token_classes(words: vocabulary.Vocabulary, counts_V: np.ndarray) -> np.ndarray:
    """0 continues a word, 1 has no letter, 2 a frequent word, 3 any other."""
    letters_V = np.array([any(map(str.isalpha, words.piece(id_))) for id_ in range(words.size)])
    frequent = np.argsort(-np.where(letters_V & words.starts_word_V, counts_V, -1))[:FREQUENT]
    class_V = np.where(words.starts_word_V, 3, 0)
    class_V[frequent] = 2
    class_V[~letters_V] = 1
    return class_V


def _paired(one: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float]:
    """Mean difference per token, and its standard error with rows as the unit."""
    differences = np.array([a.sum() - b.sum() for a, b in zip(one, other)], np.float64)
    tokens = np.array([len(a) for a in one])
    mean = differences.sum() / tokens.sum()
    rest = differences - mean * tokens
    return float(mean), float(math.sqrt((rest**2).sum()) / tokens.sum())
