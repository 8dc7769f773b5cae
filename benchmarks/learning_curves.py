# SPDX-License-Identifier: Apache-2.0
"""Learning curves of this trainer beside those of an independent one, from the same start.

    python benchmarks/learning_curves.py --source='text:wiki/*.txt'
    python benchmarks/learning_curves.py --report

The other trainer is `learning_curves_peer.py`: PyTorch, Hugging Face's ELECTRA modules, and masks,
samples, losses, optimizer, schedule and evaluation of its own. It gets our initial weights, our
rows in our order and the numbers of the recipe, and shares nothing else, no random number either.
If something in our step held a network back, the curves would part.

    WORKDIR/experiment.json           what all runs share
    WORKDIR/data                      prepared text
    WORKDIR/seedS/SIZE/ours           an ordinary workdir
    WORKDIR/seedS/SIZE/for_the_peer   rows, first and last weights as Hugging Face folders, recipe
    WORKDIR/seedS/SIZE/peer.json      the peer's curves, written when it has finished
    WORKDIR/seedS/SIZE/judged.json    our last weights, evaluated by the peer as its own
    WORKDIR/seedS/SIZE/finished.json  what the page needs of all these: never trained again
    docs/experiments/learning_curves.json  all of these; `kept_runs.py`

The same command continues where it stopped; of the peer, a run that was cut off begins again. Needs
the extras `parity` and `test`.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

import jax
import numpy as np

from benchmarks import equal_compute, kept_runs, learning_curves_page
from electra_jax import config as config_lib
from electra_jax.checks import finished_runs
from electra_jax.configs import tiny_paper
from electra_jax.data import pipeline
from electra_jax.weights import exporting, reading

PEER = pathlib.Path(__file__).with_name("learning_curves_peer.py")
EVERY, EVALUATE = 25, 125  # steps between two values of a curve, and between two evaluations
HELD_OUT = 2048  # rows of an evaluation; with 512, luck alone moves the AUC by 0.005


def main():
    """Trains what is missing, and writes the page of what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", default="runs/learning_curves")
    parser.add_argument("--source", default="builtin", help="as data.source")
    parser.add_argument("--corpus", default="the built-in text", help="what the page calls it")
    parser.add_argument("--vocab", default="train:sentencepiece:2048", help="as data.vocab")
    parser.add_argument("--sizes", default="2,4", help="layers of both networks")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", action="store_true", help="train nothing, write the page")
    parser.add_argument("--page", default="docs/experiments/learning_curves.md")
    arguments = parser.parse_args()

    sizes = [int(layers) for layers in arguments.sizes.split(",")]
    kept_runs.unpack(arguments.page, arguments.workdir)
    if not arguments.report:
        kept_runs.begin(arguments, {"corpus": arguments.corpus})
        for seed in range(arguments.seeds):
            for layers in sizes:
                run(arguments, layers, seed)
                kept_runs.pack(arguments.workdir, arguments.page)
    found = learning_curves_page.collect(arguments.workdir)
    learning_curves_page.write(found, arguments.page)
    print(f"{arguments.page}: {', '.join(f'{len(one.pairs)} of {one.name}' for one in found)}")


def run(arguments, layers: int, seed: int) -> None:
    """Trains both sides of one size and seed, as far as that is not done."""
    folder = pathlib.Path(arguments.workdir, f"seed{seed}", learning_curves_page.size(layers))
    if (folder / kept_runs.FINISHED).exists():
        return

    parsed = config(arguments, layers, seed)
    if not (folder / "peer.json").exists():
        ours = equal_compute.finished_run(parsed, str(folder / "ours"))
        write_for_the_peer(ours, folder, arguments)
        jax.clear_caches()  # the next size is another program

        subprocess.run([sys.executable, str(PEER), str(folder)], check=True)
    if not (folder / "judged.json").exists():
        final = folder / "for_the_peer" / "final"
        if not final.exists():
            exporting.to_hugging_face(reading.open(folder / "ours"), str(final))
        subprocess.run([sys.executable, str(PEER), str(folder), "--judge"], check=True)
    kept_runs.write(folder, learning_curves_page.gathered(folder))
    print(f"finished: {folder}", flush=True)


def config(arguments, layers: int, seed: int) -> config_lib.Config:
    """tiny_paper with that many layers in both networks, and metrics often enough for a curve."""
    tree = tiny_paper.get_config()
    tree.seed = seed
    data = os.path.join(arguments.workdir, "data")
    tree.data.update(
        source=arguments.source, vocab=arguments.vocab, dir=data, min_document_characters=300
    )
    tree.model.discriminator.layers = tree.model.generator.layers = layers
    tree.schedule.update(steps=arguments.steps, warmup_steps=arguments.steps // 10)
    tree.checkpoint.update(every=max(1, arguments.steps // 4), keep_last=1)
    tree.evaluation.update(every=min(EVALUATE, arguments.steps), rows=HELD_OUT)
    tree.logging.update(
        every=min(EVERY, arguments.steps), report_every=arguments.steps, tensorboard=False
    )
    return config_lib.parse(tree)


def write_for_the_peer(run: finished_runs.FinishedRun, folder: pathlib.Path, arguments) -> None:
    """Writes all that the peer gets from us: rows, initial weights, and the recipe's numbers."""
    parsed, out = run.config, folder / "for_the_peer"
    if not (out / "initial").exists():
        out.mkdir(parents=True, exist_ok=True)
        ours = reading.open(run.workdir)
        initial = dataclasses.replace(ours, params=run.first_params, step=0)
        exporting.to_hugging_face(initial, str(out / "initial"))

    order = pipeline.Order(run.trained.records, parsed.seed)
    rows = order.take(0, parsed.schedule.steps * parsed.data.batch_size)
    heldout_ids, heldout_marks = run.heldout
    np.savez(
        out / "rows.npz", ids=rows.ids, marks=rows.marks,
        heldout_ids=heldout_ids, heldout_marks=heldout_marks,
    )  # fmt: skip

    words, manifest = run.trained.vocabulary, run.trained.records.manifest
    objective, optimizer, schedule = parsed.objective, parsed.optimizer, parsed.schedule
    recipe = {
        "seed": parsed.seed,
        "pad_id": words.pad_id,
        "mask_id": words.mask_id,
        "special_ids": list(words.special_ids),
        "rows": parsed.data.batch_size,
        "steps": schedule.steps,
        "warmup_steps": schedule.warmup_steps,
        "learning_rate": optimizer.learning_rate,
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "epsilon": optimizer.epsilon,
        "weight_decay": optimizer.weight_decay,
        "clip_norm": optimizer.clip_norm,
        "mask_rate": objective.mask_rate,
        "mask_token_rate": objective.mask_token_rate,
        "gen_weight": objective.gen_weight,
        "disc_weight": objective.disc_weight,
        "log_every": parsed.logging.every,
        "evaluate_every": parsed.evaluation.every,
        "corpus": arguments.corpus,
        "source": arguments.source,
        "characters": manifest.totals["characters"],
        "tokens": int((rows.ids != words.pad_id).sum()),
        "heldout_rows": len(heldout_ids),
        "unigram_entropy": manifest.unigram_entropy,
    }
    (out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n")


if __name__ == "__main__":
    main()
