# SPDX-License-Identifier: Apache-2.0
"""A pre-training workdir with random weights, and small files of fine-tuning tasks."""

import json
import pathlib
import random

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.data import vocabulary_training
from electra_jax.step import plans
from electra_jax.weights import checkpoint_series

from . import corpus

GOOD = "good fine lovely warm kind bright".split()
BAD = "bad poor ugly cold rude dark".split()
THINGS = "the cat|a dog|my sister|the old man|every child|a bird".split("|")
NAMES = "Ann Bob Carla Dirk Emil Fay".split()


def make(workdir: pathlib.Path, **overrides) -> str:
    """Writes config.json, one checkpoint and the vocabulary of a tiny run that never trained."""
    text = corpus.write_corpus(workdir / "corpus.txt", 40)
    lines = text.read_text().splitlines() + [" ".join(GOOD + BAD + NAMES)] * 40
    words = vocabulary_training.train("wordpiece", 150, iter(lines))
    words.save(str(workdir / "data" / "made" / "vocab"))
    tree = corpus.small_run(f"text:{text}", "", **overrides)
    tree.model.max_positions = 48
    config = config_lib.parse(tree)
    (workdir / "config.json").write_text(config_lib.to_json(config))
    objective = plans.make_objective(config, words, np.ones(words.size))
    params = jax.jit(objective.init)(jax.random.key(3))
    with checkpoint_series.Checkpoints(str(workdir / "checkpoints"), 1) as saved:
        about = {"config": config_lib.to_tree(config), "vocabulary": words.sha256}
        saved.save(2, {"params": params}, about)
    return str(workdir)


def write_tasks(folder: pathlib.Path, rows: int = 96) -> pathlib.Path:
    """Writes sentences whose label depends on one word, in every kind of file."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def sentence(label):
        return f"{draw.choice(THINGS)} is {draw.choice((BAD, GOOD)[label])}"

    for split, count in (("train", rows), ("dev", 40), ("test", 12)):
        labels = [draw.randint(0, 1) for _ in range(count)]
        with open(folder / f"{split}.csv", "w") as file:
            print("text,label,score,both", file=file)
            for label in labels:
                both = "warm,good" if label else "good"
                print(f'{sentence(label)},{label},{2.0 + 3 * label},"{both}"', file=file)
        with open(folder / f"{split}.conll", "w") as file:
            for label in labels:
                name = draw.choice(NAMES)
                tagged = [(name, "B-PER" if label else "B-DOG"), ("is", "O")]
                tagged.append((draw.choice((BAD, GOOD)[label]), "O"))
                print(*(f"{word} {tag}" for word, tag in tagged), "", sep="\n", file=file)
        (folder / f"{split}.json").write_text(json.dumps(_squad(draw, labels)))
    _write_pairs(folder, draw)
    return folder


def _write_pairs(folder, draw):
    """Writes MNLI, RTE, STS-B and the diagnostic set in the form of their official files."""
    inference = ("entailment", "neutral", "contradiction")
    sets = (
        ("MNLI", "gold_label", ("train", "dev_matched", "dev_mismatched"), inference),
        ("MNLI", None, ("test_matched", "test_mismatched"), ()),
        ("RTE", "label", ("train", "dev"), ("entailment", "not_entailment")),
        ("RTE", None, ("test",), ()),
        ("STS-B", "score", ("train", "dev"), ("0.0", "2.5", "5.0")),
        ("STS-B", None, ("test",), ()),
        ("diagnostic", None, ("diagnostic",), ()),
    )
    for name, label, splits, labels in sets:
        (folder / name).mkdir(exist_ok=True)
        for split in splits:
            rows = 40 if split == "train" else 12 if labels else 8
            with open(folder / name / f"{split}.tsv", "w") as file:
                print(
                    "index", "sentence1", "sentence2", *([label] * bool(label)), sep="\t", file=file
                )
                for number in range(rows):
                    texts = [f"{draw.choice(THINGS)} is {draw.choice(GOOD + BAD)}" for _ in "ab"]
                    said = [labels[number % len(labels)]] if labels else []
                    print(number, *texts, *said, sep="\t", file=file)


def _squad(draw, labels):
    """SQuAD 2.0: who is bad? Only rows with label 1 have an answer."""
    paragraphs = []
    for number, label in enumerate(labels):
        first, second = draw.sample(NAMES, 2)
        context = f"{first} is good . {second} is {'bad' if label else 'good'} ."
        start = context.rindex(second)
        answers = [{"text": second, "answer_start": start}] if label else []
        qa = dict(
            id=f"q{number}", question="who is bad ?", answers=answers, is_impossible=not label
        )
        paragraphs.append({"context": context, "qas": [qa]})
    return {"version": "v2.0", "data": [{"title": "people", "paragraphs": paragraphs}]}
