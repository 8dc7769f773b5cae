# SPDX-License-Identifier: Apache-2.0
"""Trains variants of the method on equal terms at a size that two cores carry, and compares them.

Every arm gets the same text, trunk, optimizer and rows per step, and the same training FLOPs in the
honest convention of `electra_jax.flops` (or a stated share of them); so the arms differ in steps.
A run goes by steps and not by the clock: what else the machine does changes no number. Seed 0 of
all arms comes first, then seed 1, so that what there is can be compared at any time.

    WORKDIR/experiment.json          what all runs share, and the steps of each arm
    WORKDIR/data                     prepared text (a seed also draws how text is cut into rows)
    WORKDIR/seedS/ARM                an ordinary workdir
    WORKDIR/seedS/ARM/finished.json  trained and measured: never trained again
    docs/experiments/X.json          all of these; `kept_runs.py`

The same command continues where it stopped; Ctrl-C or SIGTERM saves first. `table_5.py` and
`section_3.py` are two such comparisons. What is asked of the finished encoders is in
`frozen_encoder.py` and `fine_tuned.py`, and `equal_compute_blocks.py` has what both pages share.
"""

import argparse
import dataclasses
import glob
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import ml_collections

from benchmarks import equal_compute_blocks, fine_tuned, frozen_encoder, kept_runs
from electra_jax import config as config_lib
from electra_jax.checks import finished_runs
from electra_jax.host import error_causes
from electra_jax.report import drawing
from electra_jax.speed import flops_figures
from electra_jax.workdir import prepared_data, saved_config

WIDTH = 128  # of the main network, tiny_paper's
REFERENCE = equal_compute_blocks.REFERENCE
HELD_OUT = (  # of the last evaluation
    "gen_masked_loss", "gen_masked_accuracy", "gen_entropy", "mlm_masked_loss", "unigram_entropy",
    "disc_auc", "disc_auc_unigram", "disc_accuracy", "disc_majority", "disc_recall_at_2",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Arm:
    """What one arm has of its own. All else is the same for all."""

    tree: Callable[[], ml_collections.ConfigDict]  # its configuration, of tiny_paper's size
    width: int = WIDTH  # of the main network
    generator: int = WIDTH // 2  # the generator's width
    share: float = 1.0  # of the training FLOPs
    learning_rate: float = 4e-3  # its peak
    budget: str = REFERENCE  # the arm of which ELECTRA's number of steps costs as many FLOPs
    after: str = ""  # the arm that trains its generator, in as many steps and out of the same FLOPs


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A comparison: its arms, among them `electra`, and its page."""

    name: str  # of the default workdir and of the page in docs/experiments
    arms: Mapping[str, Arm]
    write: Callable[[equal_compute_blocks.CompleteSeeds, str], None]  # writes the page to a path
    titles: Mapping[str, str]  # of the arms that the page shows, in its order


def main(experiment: Experiment, description: str) -> None:
    """Trains what is missing, and writes the page of what there is."""
    given = arguments(experiment.name, experiment.arms, description)
    asked = chosen(experiment.arms, given.arms)
    kept_runs.unpack(given.page, given.workdir)
    if not given.report:
        train(experiment.arms, given, asked)

    titles = {name: title for name, title in experiment.titles.items() if name in asked}
    found = equal_compute_blocks.collect(given.workdir, titles)
    experiment.write(found, given.page)
    print(f"{given.page}: {len(found.seeds)} complete seeds")


def arguments(
    experiment: str, arms: Sequence[str] | Mapping[str, Arm], description: str, tasks: str = ""
) -> argparse.Namespace:
    """The command line of an experiment; `tasks` is the default of --tasks."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workdir", default=f"runs/{experiment}")
    parser.add_argument("--source", default="builtin", help="as data.source")
    parser.add_argument("--corpus", default="", help="what the page calls the text")
    parser.add_argument("--vocab", default="train:sentencepiece:2048", help="as data.vocab")
    parser.add_argument("--steps", type=int, default=2000, help="of ELECTRA; others by FLOPs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--arms", default="", help=f"what to train and show: some of {','.join(arms)}; '' is all"
    )
    parser.add_argument("--downstream", help="folder with conll2000.zip and subjectivity.zip")
    parser.add_argument(
        "--tasks",
        default=tasks,
        help=f"to fine-tune the encoders on, of {','.join(fine_tuned.RATES)}, whose files"
        " --downstream has too; '' is none",
    )
    parser.add_argument("--report", action="store_true", help="train nothing, write the page")
    parser.add_argument("--page", default=f"docs/experiments/{experiment}.md")
    return parser.parse_args()


def train(arms: Mapping[str, Arm], given: argparse.Namespace, asked: Sequence[str]) -> None:
    """Trains and measures the arms that are asked for, as far as that is not done, by seeds."""
    about, tasks = begin(arms, given), fine_tuned.named(given.tasks, given.downstream)
    for seed in range(given.seeds):
        for name in asked:
            run(arms, given, about, name, seed, tasks)
            kept_runs.pack(given.workdir, given.page)


def chosen(arms: Mapping[str, Arm], text: str) -> list[str]:
    """The arms of --arms in the order of the experiment; all without any. Raises SystemExit."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in arms:
            raise SystemExit(f"--arms={name} is no arm; there are {', '.join(arms)}")

    # A generator that is trained first belongs to the arms that come after it.
    needed = {arms[name].after for name in names} | set(names)
    return [name for name in arms if name in needed or not names]


def config(
    arm: Arm, name: str, seed: int, steps: int, source: str, vocab: str, workdir: str
) -> ml_collections.ConfigDict:
    """The tree of one run: tiny_paper's, with the arm's objective; the rest is the same for all."""
    tree = arm.tree()
    tree.name, tree.seed = name, seed
    data, vocab = os.path.join(workdir, "data"), vocabulary(vocab, seed, workdir)
    tree.data.update(source=source, vocab=vocab, dir=data, min_document_characters=300)
    for network, width in (("discriminator", arm.width), ("generator", arm.generator)):
        shape = {"width": width, "heads": max(1, width // 32), "feed_forward": 4 * width}
        tree.model[network].update(shape)
    # The trunk that leaves the unigram plateau early; the rate was tried on ELECTRA: docs/LOG.md.
    tree.model.update(positions="rotary", norm_place="pre", embedding_size=arm.width)
    tree.optimizer.learning_rate = arm.learning_rate
    tree.schedule.update(steps=steps, warmup_steps=steps // 10)
    tree.checkpoint.update(every=max(1, steps // 4), keep_last=1)
    tree.evaluation.update(every=max(1, steps // 4), rows=1024)
    tree.logging.update(every=max(1, steps // 40), report_every=steps, tensorboard=False)

    first = _folder(workdir, seed, arm.after)
    for field in ("from", "generator_from"):
        tree.init[field] = first if arm.after and tree.init[field] else ""
    return tree


def vocabulary(vocab: str, seed: int, workdir: str) -> str:
    """--vocab for seed 0; for other seeds the vocabulary that a run of seed 0 has got from it.

    So a vocabulary is trained once, and all seeds have the same. It is trained again where no run
    of seed 0 has left one, as on a machine that only knows what was kept beside the page.
    """
    trained_already = sorted(glob.glob(os.path.join(workdir, "seed0", "*", "vocab", "vocab.*")))
    return trained_already[0] if seed and trained_already else vocab


def equal_compute(
    arms: Mapping[str, Arm], source: str, vocab: str, steps: int
) -> dict[str, dict[str, float]]:
    """arm -> what a row costs in training, and its steps for its share of `steps` of ELECTRA."""
    rows = {}
    for name, arm in arms.items():
        parsed = config_lib.parse(config(arm, name, 0, steps, source, vocab, ""))
        found = flops_figures.of_config(
            parsed, prepared_data.vocabulary_size(prepared_data.RunData.of(parsed, ""))
        )
        rows[name] = found["train_per_row"]["honest"]

    counts = {}
    for name, arm in arms.items():
        total = steps * arm.share * rows[arm.budget]
        counts[name] = round(total / (rows[name] + rows.get(arm.after, 0)))

    # A generator that is trained first gets as many steps as the arm that comes after it.
    for name, arm in arms.items():
        if arm.after:
            counts[arm.after] = counts[name]
    return {name: {"flops_per_row": rows[name], "steps": counts[name]} for name in arms}


def begin(arms: Mapping[str, Arm], given) -> dict:
    """experiment.json, written by the first call; another one with other settings is refused."""
    path = os.path.join(given.workdir, kept_runs.EXPERIMENT)
    asked = {name: getattr(given, name) for name in ("source", "vocab", "steps")}
    kept = asked | {"source": kept_runs.short(given.source)}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        kept_runs.same_settings(found, kept, given.workdir)

        # An experiment may have been begun before one of the arms was thought of.
        if missing := arms.keys() - found["arms"].keys():
            counted = equal_compute(arms, **asked)
            found["arms"] |= {name: counted[name] for name in missing}
            _write(path, found)
        return found

    shape = config(arms[REFERENCE], REFERENCE, 0, **asked, workdir="").data
    found = kept | {
        "corpus": given.corpus,
        "rows": shape.batch_size,
        "length": shape.sequence_length,
        "arms": equal_compute(arms, **asked),
    }
    os.makedirs(given.workdir, exist_ok=True)
    _write(path, found)
    return found


def run(
    arms: Mapping[str, Arm], given, about: dict, name: str, seed: int, tasks: Sequence[str]
) -> None:
    """Trains and measures one run, as far as that is not done. SystemExit where it was stopped."""
    folder = _folder(given.workdir, seed, name)
    path = os.path.join(folder, kept_runs.FINISHED)
    steps = about["arms"][name]["steps"]
    tree = config(arms[name], name, seed, steps, given.source, given.vocab, given.workdir)
    parsed = config_lib.parse(tree)
    refuse_other_settings(folder, parsed)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            measured = json.load(file)["measures"]
        if not given.downstream or {"chunk_accuracy", *tasks} <= measured.keys():
            return

    # The run before it may have come from another machine, without its weights (kept_runs.py).
    if first := arms[name].after:
        count = about["arms"][first]["steps"]
        tree = config(arms[first], first, seed, count, given.source, given.vocab, given.workdir)
        finished_run(config_lib.parse(tree), _folder(given.workdir, seed, first))

    begun = time.monotonic()
    finished = finished_run(parsed, folder)
    seconds = time.monotonic() - begun
    last = finished.evaluations[-1]
    found = {metric: last[metric] for metric in HELD_OUT if metric in last}
    found |= frozen_encoder.measure(finished, finished.params, given.downstream)
    found |= fine_tuned.measure(folder, given.downstream, tasks, seed)
    content = {"seed": seed, "steps": steps, "seconds": seconds, "measures": found}
    if name == arms[name].budget:  # the floor: the same encoder as it was before training
        first = frozen_encoder.measure(finished, finished.first_params, given.downstream)
        first |= fine_tuned.measure(folder, given.downstream, tasks, seed, fresh=True)
        content["untrained"] = first
    content["text"] = _text(finished, about["corpus"])
    _write(path, content)
    jax.clear_caches()  # the next arm is another program
    print(f"finished: seed {seed}, {name}, {seconds:.0f} s, {json.dumps(found)}", flush=True)


def _folder(workdir: str, seed: int, name: str) -> str:
    """The workdir of one run."""
    return os.path.join(workdir, f"seed{seed}", name)


def finished_run(asked: config_lib.Config, folder: str) -> finished_runs.FinishedRun:
    """The run of these settings, trained to its end first. SystemExit where it was stopped."""
    try:
        return finished_runs.FinishedRun.of(asked, folder)
    except error_causes.MayPass as stopped:
        raise SystemExit(str(stopped)) from None


def refuse_other_settings(folder: str, asked: config_lib.Config) -> None:
    """Raises SystemExit if the run in a folder, finished or not, was made with other settings."""
    saved = saved_config.read(folder)
    if saved is not None and saved != asked:
        allowed, forbidden = config_lib.differences(saved, asked)
        raise SystemExit(
            f"{folder} was trained with other settings ({'; '.join([*forbidden, *allowed])});"
            " delete it to train it again, or choose another --workdir"
        )


def _text(finished: finished_runs.FinishedRun, corpus: str) -> dict:
    """What the page says of the text that was trained on."""
    manifest = finished.trained.records.manifest
    return {
        "corpus": corpus,
        "documents": manifest.totals["documents"],
        "characters": manifest.totals["characters"],
        "tokens": manifest.totals["tokens"],
        "vocabulary": manifest.vocabulary["size"],
    }


def _write(path: str, content: Sequence | dict) -> None:
    drawing.write_whole(path, json.dumps(content, indent=1).encode())
