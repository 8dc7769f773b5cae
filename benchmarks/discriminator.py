# SPDX-License-Identifier: Apache-2.0
"""What limits the discriminator at the size of two cores: one change at a time, one yardstick.

    python benchmarks/discriminator.py --source='text:wiki/*.txt.xz'
    python benchmarks/discriminator.py --report

A generator that is trained jointly changes the task during the measurement. So generators of three
strengths are trained first, by themselves, and frozen. Against the middle one discriminators
are trained that differ from the reference in one setting; a few learn along with their generators.
The reference has the size and the trunk of `configs/tiny.py`, and Muon. All then read the same
held-out rows, which each of the generators, and draws by frequency, have corrupted. The yardstick
is the AUC over words on the rows of a fourth generator, which has the strength of the middle one
and which none of them has met.

    WORKDIR/experiment.json          what all runs share
    WORKDIR/data                     prepared text
    WORKDIR/seedS/generator_NAME     a generator by itself
    WORKDIR/seedS/rows_ARM           a step with an arm's generator, which corrupts the rows
    WORKDIR/seedS/ARM                an ordinary workdir
    WORKDIR/seedS/ARM/finished.json  trained and measured: never trained again
    docs/experiments/discriminator.json  all of these; `kept_runs.py`

The same command continues where it stopped. `discriminator_questions.py` has what is asked, and
`discriminator_page.py` writes the page.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

import jax
import ml_collections

from benchmarks import discriminator_page, discriminator_questions, equal_compute, kept_runs
from benchmarks.discriminator_questions import REFERENCE, UNMET
from electra_jax import config as config_lib
from electra_jax.checks import finished_runs, scoring
from electra_jax.configs import tiny, tiny_paper

FIRST = "weak"  # the generator of the first run, whose vocabulary all runs have
# name -> steps of a generator by itself, as a share of the reference discriminator's: after 1, 4
# and 16 million places in rows.
GENERATORS = {FIRST: 1 / 4, REFERENCE: 1, "strong": 4, UNMET: 1}
HELD_OUT = 2048  # rows that all discriminators read: some 40,000 chosen words
# The arms whose generators corrupt these rows.
CORRUPTED_BY = tuple(discriminator_questions.CORRUPTED_BY)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One discriminator: how it differs from the reference."""

    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # by path, a.b
    generator: str = REFERENCE  # of GENERATORS; '': none that was trained before
    share: float = 1.0  # of the reference's steps
    draw: int = 0  # added to the seed: other first weights, order and masks, the same generator


UNIGRAM = {"objective.name": "unigram_generator", "objective.mask_token_rate": 0.85}
ALONG = {"model.sharing": "none", "objective.name": "replaced_token_detection"}
SHARED = ALONG | {"model.sharing": "embeddings"}
ONE_TRUNK = ALONG | {
    "model.sharing": "all",
    "model.generator": {"layers": 2, "width": 128, "heads": 4, "feed_forward": 512},
}
ADAMW = {"optimizer.name": "adamw", "optimizer.muon_learning_rate": 0.0}
HALF = {"optimizer.muon_learning_rate": 0.01}
SHARED_HALF = SHARED | HALF | {"objective.disc_weight": 5.0}
WIDTH_64 = {"model.discriminator": {"width": 64, "heads": 2, "feed_forward": 256}}
WIDTH_256 = {"model.discriminator": {"width": 256, "heads": 8, "feed_forward": 1024}}
ARMS = {
    "unigram": Arm(UNIGRAM, generator=""),
    "weak": Arm(generator="weak"),
    REFERENCE: Arm(),
    "strong": Arm(generator="strong"),
    UNMET: Arm(generator=UNMET),
    "another_draw": Arm(draw=500),
    # Samples that are easy to tell at first (arXiv:2310.07347).
    "heated": Arm({"objective.first_temperature": 2.0}),
    "heated_strong": Arm({"objective.first_temperature": 2.0}, generator="strong"),
    "warm": Arm({"objective.temperature": 1.5}),
    "hot": Arm({"objective.temperature": 2.0}),
    # Steps, each number with a schedule of its own.
    "steps_fourfold": Arm(share=4),
    # A generator that learns along.
    "along": Arm(ALONG, generator=""),
    "gdes": Arm(
        {"model.sharing": "gdes", "objective.name": "decoupled_detection"}, generator=""
    ),
    "shared_5": Arm(SHARED | {"objective.disc_weight": 5.0}, generator=""),
    "shared_50": Arm(SHARED | {"objective.disc_weight": 50.0}, generator=""),
    "one_trunk": Arm(ONE_TRUNK, generator=""),
    "one_trunk_50": Arm(ONE_TRUNK | {"objective.disc_weight": 50.0}, generator=""),
    # At the reference's rate, which is too high for so few steps.
    "width_256": Arm(WIDTH_256),
    "layers_4": Arm({"model.discriminator": {"layers": 4}}),
    # Rates and decay.
    "adamw": Arm(ADAMW),
    "rate_half": Arm(HALF),
    "half_again": Arm(HALF),  # for arms that another kind of machine has trained
    "half_third": Arm(HALF),  # for arms of a later day
    "rate_quarter": Arm({"optimizer.muon_learning_rate": 0.005}),
    "rate_eighth": Arm({"optimizer.muon_learning_rate": 0.0025}),
    "rate_double": Arm({"optimizer.muon_learning_rate": 0.04}),
    "tables_rate_quarter": Arm({"optimizer.learning_rate": 1e-3}),
    "decay_tenth": Arm({"optimizer.weight_decay": 0.01}),
    "weak_decay_tenth": Arm({"optimizer.weight_decay": 0.01}, generator="weak"),
    # All below at half the rate. Against the generators that are easiest and hardest to tell.
    "half_unigram": Arm(HALF | UNIGRAM, generator=""),
    "half_weak": Arm(HALF, generator="weak"),
    "half_strong": Arm(HALF, generator="strong"),
    "half_steps_quarter": Arm(HALF, share=1 / 4),
    "half_steps_fourfold": Arm(HALF, share=4),
    "half_strong_fourfold": Arm(HALF, generator="strong", share=4),
    # Size.
    "half_width_64": Arm(HALF | WIDTH_64),
    "half_width_256": Arm(HALF | WIDTH_256),
    "half_layers_1": Arm(HALF | {"model.discriminator": {"layers": 1}}),
    "half_layers_4": Arm(HALF | {"model.discriminator": {"layers": 4}}),
    # Rows, corruption and context.
    "half_rows_16": Arm(HALF | {"data.batch_size": 16}, share=4),
    "half_rows_256": Arm(HALF | {"data.batch_size": 256}, share=1 / 4),
    "half_mask_15": Arm(HALF | {"objective.mask_rate": 0.15}),
    "half_mask_50": Arm(HALF | {"objective.mask_rate": 0.5}),
    "half_keeps": Arm(HALF | {"objective.mask_token_rate": 0.85}),
    "half_length_32": Arm(HALF | {"data.sequence_length": 32, "data.batch_size": 128}),
    "half_length_128": Arm(
        HALF
        | {"data.sequence_length": 128, "data.batch_size": 32, "model.max_positions": 128}
    ),
    "half_cls_context": Arm(HALF | {"model.discriminator_head": "cls_context"}),
    "half_gdes_frozen": Arm(HALF | {"model.sharing": "gdes"}),
    # Of generators that learn along.
    "along_adamw": Arm(ALONG | ADAMW, generator=""),
    "along_half": Arm(ALONG | HALF, generator=""),
    "shared_5_half": Arm(SHARED_HALF, generator=""),
    "shared_5_half_mask_50": Arm(SHARED_HALF | {"objective.mask_rate": 0.5}, generator=""),
    "shared_5_half_keeps": Arm(SHARED_HALF | {"objective.mask_token_rate": 0.85}, generator=""),
    "one_trunk_half": Arm(ONE_TRUNK | HALF, generator=""),
    "along_keeps": Arm(ALONG | {"objective.mask_token_rate": 0.85}, generator=""),
    "along_15": Arm(ALONG | {"objective.mask_rate": 0.15}, generator=""),
    "one_trunk_warm": Arm(ONE_TRUNK | {"objective.temperature": 1.5}, generator=""),
    "one_trunk_adamw": Arm(ONE_TRUNK | ADAMW, generator=""),
}  # fmt: skip


def main() -> None:
    """Trains what is missing, and writes the page of what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", default="runs/discriminator")
    parser.add_argument("--source", default="builtin", help="as data.source")
    parser.add_argument("--corpus", default="the built-in text", help="what the page calls it")
    parser.add_argument("--vocab", default="train:sentencepiece:2048", help="as data.vocab")
    parser.add_argument("--steps", type=int, default=1000, help="of the reference")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--arms", default="", help=f"what to train, of {','.join(ARMS)}; '' is all of them"
    )
    parser.add_argument("--report", action="store_true", help="train nothing, write the page")
    parser.add_argument("--page", default="docs/experiments/discriminator.md")
    given = parser.parse_args()

    asked = chosen(given.arms)
    kept_runs.unpack(given.page, given.workdir)
    if not given.report:
        data = reference_config().data
        kept_runs.begin(
            given,
            {
                "corpus": given.corpus,
                "generators": GENERATORS,
                "rows": data.batch_size,
                "length": data.sequence_length,
            },
        )
        train_generator(given, 0, FIRST)
        for seed in range(given.seeds):
            train_seed(given, asked, seed)
    found = discriminator_page.collect(given.workdir)
    discriminator_page.write(found, given.page)
    print(f"{given.page}: {len(found.seeds)} seeds, {len(found.runs)} runs")


def chosen(text: str) -> list[str]:
    """The arms of --arms with those whose generators corrupt the rows. Raises SystemExit."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in ARMS:
            raise SystemExit(f"--arms={name} is no arm; there are {', '.join(ARMS)}")
    return [name for name in ARMS if not names or name in (*CORRUPTED_BY, *names)]


def train_seed(given, asked, seed: int) -> None:
    """Trains and measures all arms of one seed, as far as that is not done."""
    folder = pathlib.Path(given.workdir, f"seed{seed}")
    if all((folder / name / kept_runs.FINISHED).exists() for name in asked):
        return

    for name in GENERATORS:
        train_generator(given, seed, name)
    rows = {name: corrupting_run(given, name, seed).judged for name in CORRUPTED_BY}
    for name in asked:
        path = folder / name / kept_runs.FINISHED
        equal_compute.refuse_other_settings(str(folder / name), arm_settings(given, name, seed))
        if not path.exists():
            begun = time.monotonic()
            run = arm_run(given, name, seed)
            content = measure(run, rows) | {"seed": seed, "arm": name}
            content["seconds"] = time.monotonic() - begun
            if name in GENERATORS:
                content["generator"] = {
                    metric: run.evaluations[-1][metric]
                    for metric in ("gen_masked_loss", "gen_masked_accuracy", "unigram_entropy")
                }
            kept_runs.write(folder / name, content)
            kept_runs.pack(given.workdir, given.page, same=("characters", "vocabulary"))
            print(f"finished: seed {seed}, {name}, {json.dumps(content['auc'])}", flush=True)
            jax.clear_caches()  # the next arm is another program


def reference_config() -> ml_collections.ConfigDict:
    """What all arms differ from. It does not follow the demo, so that kept runs stay comparable."""
    tree = tiny_paper.get_config()
    tree.name = "tiny"  # as the kept runs are called
    tiny.trunk(tree.model)
    tree.objective.update(name="decoupled_detection", mask_rate=0.3, mask_token_rate=1.0)
    tree.model.sharing = "gdes"
    tree.model.generator.update(layers=1, width=64, heads=2, feed_forward=256)
    tree.model.dtype = "bfloat16"  # a step takes two thirds of float32's time (docs/LOG.md)
    # With a weight decay of 0.01 kernels grow with the steps (docs/LOG.md).
    tree.optimizer.update(
        name="muon", learning_rate=4e-3, muon_learning_rate=0.02, weight_decay=0.1
    )
    tree.schedule.update(steps=1500, warmup_steps=150)
    return tree


def generator_config() -> ml_collections.ConfigDict:
    """The reference's generator, which is trained by itself as a masked language model."""
    tree = reference_config()
    tree.objective.name, tree.model.sharing = "masked_lm", "embeddings"
    # A masked language model is the main network of its run.
    tree.model.discriminator = tree.model.generator.copy_and_resolve_references()
    return tree


def arm_config(name: str, seed_folder: pathlib.Path) -> ml_collections.ConfigDict:
    """The reference's settings with a frozen generator, and the changes of the arm."""
    arm, tree = ARMS[name], reference_config()
    if arm.generator:
        tree.objective.name, tree.model.sharing = "frozen_generator", "none"
        tree.init.generator_from = str(seed_folder / f"generator_{arm.generator}")
    else:
        tree.model.sharing = "none"

    for path, value in arm.changes.items():
        section, _, field = path.partition(".")
        if isinstance(value, Mapping):
            tree[section][field].update(value)
        else:
            tree[section][field] = value
    return tree


def arm_run(given, name: str, seed: int) -> finished_runs.FinishedRun:
    """The run of an arm, which is trained first if it is not finished. SystemExit if stopped."""
    folder = os.path.join(given.workdir, f"seed{seed}", name)
    return equal_compute.finished_run(arm_settings(given, name, seed), folder)


def corrupting_run(given, name: str, seed: int) -> finished_runs.FinishedRun:
    """A run with the generator of one of `CORRUPTED_BY`, which corrupts the rows that all read.

    A frozen generator is the same after one step, so no discriminator is trained for its sake.
    """
    tree = arm_config(name, pathlib.Path(given.workdir, f"seed{seed}"))
    short = settings(given, tree, f"rows_{name}", seed, seed, 1 / given.steps)
    return equal_compute.finished_run(
        short, os.path.join(given.workdir, f"seed{seed}", f"rows_{name}")
    )


def arm_settings(given, name: str, seed: int) -> config_lib.Config:
    """The settings of an arm's run."""
    tree = arm_config(name, pathlib.Path(given.workdir, f"seed{seed}"))
    return settings(given, tree, name, seed, seed + ARMS[name].draw, ARMS[name].share)


def train_generator(given, seed: int, name: str) -> None:
    """Trains a generator by itself if that is not done."""
    folder = os.path.join(given.workdir, f"seed{seed}", f"generator_{name}")
    # Of seeds of their own: no discriminator shares first tables or masks with its generator.
    own = seed + (2000 if name == UNMET else 1000)
    tree, share = generator_config(), GENERATORS[name]
    asked = settings(given, tree, f"generator_{name}", seed, own, share)
    equal_compute.refuse_other_settings(folder, asked)
    equal_compute.finished_run(asked, folder)


def settings(given, tree, name: str, seed: int, own: int, share: float) -> config_lib.Config:
    """The settings of one run with its share of the steps."""
    folder = os.path.join(given.workdir, f"seed{seed}", name)
    steps = max(1, round(share * given.steps))
    tree.name, tree.seed = name, own
    data = os.path.join(given.workdir, "data")
    tree.data.update(
        source=given.source, vocab=vocabulary(given, folder), dir=data, min_document_characters=300
    )
    tree.schedule.update(steps=steps, warmup_steps=steps // 10)
    tree.checkpoint.update(every=max(1, steps // 2), keep_last=1)
    tree.evaluation.update(every=max(1, steps // 4), rows=HELD_OUT)
    tree.logging.update(every=max(1, steps // 40), report_every=steps, tensorboard=False)
    return config_lib.parse(tree)


def vocabulary(given, folder: str) -> str:
    """--vocab for the first run; for all others the vocabulary that it has got.

    Rows of other lengths and seeds would have vocabularies of their own, and a frozen generator
    must have that of its discriminator.
    """
    first = os.path.join(given.workdir, "seed0", f"generator_{FIRST}")
    if folder == first:
        return given.vocab
    (kept,) = (
        path for path in os.listdir(os.path.join(first, "vocab")) if path.startswith("vocab.")
    )
    return os.path.join(first, "vocab", kept)


def measure(run: finished_runs.FinishedRun, rows: Mapping[str, scoring.Judged]) -> dict:
    """AUC over words of a run's discriminator, on rows that several generators have corrupted."""
    manifest = run.trained.records.manifest
    found = {by: run.judge.judged_again(run.params, judged) for by, judged in rows.items()}
    return {
        "auc": {by: judged.auc() for by, judged in found.items()},
        "own_auc": run.judged.auc(),
        # What an id says by itself: how often it was replaced in other rows.
        "identity_auc": {
            by: scoring.identity_auc(judged, run.objective.networks.vocab_size)
            for by, judged in rows.items()
        },
        "replaced": {by: judged.rate for by, judged in found.items()},
        "steps": run.config.schedule.steps,
        "text": {
            "characters": manifest.totals["characters"],
            "tokens": manifest.totals["tokens"],
            "vocabulary": manifest.vocabulary["sha256"],
        },
    }


if __name__ == "__main__":
    main()
