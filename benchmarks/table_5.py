# SPDX-License-Identifier: Apache-2.0
"""The paper's comparison at a size that two cores carry: table 5, and the generator's width.

    python benchmarks/table_5.py --source='text:wiki/*.txt' --downstream=FOLDER
    python benchmarks/table_5.py --report

Every arm gets the same text, trunk, optimizer and rows a step, and the same training FLOPs in the
honest convention of `electra_jax.flops`; so the arms differ in steps. A run goes by steps and not
by the clock: what else the machine does changes no number. Seed 0 of all arms comes first, then
seed 1, so that what there is can be compared at any time.

    WORKDIR/experiment.json          what all runs share, and the steps of each arm
    WORKDIR/data                     prepared text (a seed also draws how text is cut into rows)
    WORKDIR/seedS/ARM                an ordinary workdir
    WORKDIR/seedS/ARM/finished.json  trained and measured: never trained again

The same command goes on where it stopped; Ctrl-C or SIGTERM saves first. --report trains nothing:
it reads what is there and writes the page and the picture beside it (`table_5_page.py`). What is
asked of the finished encoders is in `frozen_encoder.py`.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

import argparse
import importlib
import json
import os
import time
from collections.abc import Sequence

import jax

from benchmarks import frozen_encoder, table_5_page
from electra_jax import config as config_lib
from electra_jax.checks import trained
from electra_jax.report import drawing
from electra_jax.speed import flops_figures
from electra_jax.training import loop
from electra_jax.workdir import metadata, prepared_data

WIDTH = 128  # of the main network, tiny_paper's
FILES = {  # arm -> the file of configs/ that has its objective
    "bert": "masked_lm",
    "replace_mlm": "replace_mlm",
    "all_tokens_mlm": "all_tokens_mlm",
    "electra_15": "electra_15",
    "electra": "tiny_paper",
    "electra_quarter": "tiny_paper",
    "electra_whole": "tiny_paper",
}
GENERATOR = {"electra_quarter": WIDTH // 4, "electra_whole": WIDTH}  # its width; else half of it
HELD_OUT = (  # of the last evaluation
    "gen_masked_loss", "mlm_masked_loss", "disc_auc", "disc_auc_unigram", "unigram_entropy",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", default="runs/table_5")
    parser.add_argument("--source", default="builtin", help="as data.source")
    parser.add_argument("--corpus", default="", help="what the page calls the text")
    parser.add_argument("--vocab", default="train:sentencepiece:2048", help="as data.vocab")
    parser.add_argument("--steps", type=int, default=2000, help="of ELECTRA; others by FLOPs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default="", help=f"some of {','.join(FILES)}; '' is all")
    parser.add_argument("--downstream", help="folder with conll2000.zip and subjectivity.zip")
    parser.add_argument("--report", action="store_true", help="train nothing, write the page")
    parser.add_argument("--page", default="docs/experiments/table_5.md")
    arguments = parser.parse_args()
    asked = chosen(arguments.arms)
    if not arguments.report:
        about = begin(arguments)
        for seed in range(arguments.seeds):
            for arm in asked:
                run(arguments, about, arm, seed)
    found = table_5_page.collect(arguments.workdir)
    table_5_page.write(found, arguments.page)
    print(f"{arguments.page}: {len(found.seeds)} complete seeds")


def chosen(text: str) -> list[str]:
    """The arms of --arms in the order of the table; all without any. Raises SystemExit."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in FILES:
            raise SystemExit(f"--arms={name} is no arm; there are {', '.join(FILES)}")
    return [name for name in FILES if name in names or not names]


def config(arm: str, seed: int, steps: int, source: str, vocab: str, data_dir: str):
    """The tree of one run: tiny_paper's, with the arm's objective; the rest is the same for all."""
    module = importlib.import_module(f"configs.{FILES[arm]}")
    tree = module.get_config() if FILES[arm] == "tiny_paper" else module.get_config("tiny")
    tree.name, tree.seed = arm, seed
    tree.data.update(source=source, vocab=vocab, dir=data_dir, min_document_characters=300)
    width = GENERATOR.get(arm, WIDTH // 2)
    tree.model.generator.update(width=width, heads=width // 32, feed_forward=4 * width)
    # The trunk that leaves the unigram plateau early; the rate was tried on ELECTRA: docs/LOG.md.
    tree.model.update(positions="rotary", norm_place="pre")
    tree.optimizer.learning_rate = 4e-3
    tree.schedule.update(steps=steps, warmup_steps=steps // 10)
    tree.checkpoint.update(every=max(1, steps // 4), keep_last=1)
    tree.evaluation.update(every=max(1, steps // 4), rows=1024)
    tree.logging.update(every=max(1, steps // 40), report_every=steps, tensorboard=False)
    return tree


def equal_compute(source: str, vocab: str, steps: int) -> dict[str, dict[str, float]]:
    """arm -> what a row costs in training, and its steps for what `steps` of ELECTRA cost."""
    rows = {}
    for arm in FILES:
        parsed = config_lib.parse(config(arm, 0, steps, source, vocab, ""))
        found = flops_figures.of_config(
            parsed, prepared_data.vocabulary_size(prepared_data.RunData.of(parsed, ""))
        )
        rows[arm] = found["train_per_row"]["honest"]
    total = steps * rows[table_5_page.REFERENCE]
    return {arm: {"flops_per_row": row, "steps": round(total / row)} for arm, row in rows.items()}


def begin(arguments) -> dict:
    """experiment.json, written by the first call; another one with other settings is refused."""
    path = os.path.join(arguments.workdir, table_5_page.EXPERIMENT)
    asked = {name: getattr(arguments, name) for name in ("source", "vocab", "steps")}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        for name, value in asked.items():
            if found[name] != value:
                raise SystemExit(
                    f"{arguments.workdir} holds an experiment with --{name}={found[name]}, not"
                    f" {value}; choose another --workdir"
                )
        return found
    shape = config(table_5_page.REFERENCE, 0, **asked, data_dir="").data
    found = asked | {
        "corpus": arguments.corpus,
        "rows": shape.batch_size,
        "length": shape.sequence_length,
        "arms": equal_compute(**asked),
    }
    os.makedirs(arguments.workdir, exist_ok=True)
    _write(path, found)
    return found


def run(arguments, about: dict, arm: str, seed: int) -> None:
    """Trains and measures one run, as far as that is not done. SystemExit where it was stopped."""
    folder = os.path.join(arguments.workdir, f"seed{seed}", arm)
    path = os.path.join(folder, table_5_page.FINISHED)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            measured = json.load(file)["measures"]
        if not arguments.downstream or "chunk_accuracy" in measured:
            return
    data = os.path.join(arguments.workdir, "data")
    steps = about["arms"][arm]["steps"]
    tree = config(arm, seed, steps, about["source"], about["vocab"], data)
    parsed = config_lib.parse(tree)
    begun = time.monotonic()
    if _newest(folder) < steps:
        loop.train(parsed, folder)
    if _newest(folder) < steps:
        raise SystemExit(f"{folder} was stopped; the same command goes on")
    seconds = time.monotonic() - begun
    opened = trained.FinishedRun.open(parsed, folder)
    last = opened.evaluations[-1]
    found = {name: last[name] for name in HELD_OUT if name in last}
    found |= frozen_encoder.measure(opened, opened.params, arguments.downstream)
    content = {"seed": seed, "steps": steps, "seconds": seconds, "measures": found}
    if arm == table_5_page.REFERENCE:  # the floor: the same encoder as it was before training
        first = frozen_encoder.measure(opened, opened.first_params, arguments.downstream)
        content["untrained"] = first
    content["text"] = _text(opened, about["corpus"])
    _write(path, content)
    jax.clear_caches()  # the next arm is another program
    print(f"finished: seed {seed}, {arm}, {seconds:.0f} s, {json.dumps(found)}", flush=True)


def _newest(folder: str) -> int:
    """The step of the newest checkpoint; -1 where there is none."""
    return max(metadata.steps(os.path.join(folder, "checkpoints")), default=-1)


def _text(opened: trained.FinishedRun, corpus: str) -> dict:
    """What the page says of the text that was trained on."""
    manifest = opened.opened.records.manifest
    return {
        "corpus": corpus,
        "documents": manifest.totals["documents"],
        "characters": manifest.totals["characters"],
        "tokens": manifest.totals["tokens"],
        "vocabulary": manifest.vocabulary["size"],
    }


def _write(path: str, content: Sequence | dict) -> None:
    drawing.write_whole(path, json.dumps(content, indent=1).encode())


if __name__ == "__main__":
    main()
