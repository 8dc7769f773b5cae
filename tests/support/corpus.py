# SPDX-License-Identifier: Apache-2.0
"""A small corpus and a small configuration for tests of whole runs, and the folder ROOT."""

import importlib.util
import os
import pathlib
import random
import signal

ROOT = pathlib.Path(__file__).parents[2]

_SUBJECTS = "the cat|a dog|my sister|the old man|every child|a bird|the teacher|our neighbour"
_VERBS = "sees|likes|follows|remembers|paints|finds|calls|forgets"
_OBJECTS = "the river|a red house|the blue door|an apple|her book|the small garden|a letter"
_TAILS = "in the morning|after dinner|near the station|without a word|every day|at night"


def write_corpus(path: pathlib.Path, documents: int = 300, seed: int = 0) -> pathlib.Path:
    """Writes documents of simple sentences, one per line, with a blank line between documents."""
    draw = random.Random(seed)
    parts = [part.split("|") for part in (_SUBJECTS, _VERBS, _OBJECTS, _TAILS)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(documents):
            for _ in range(draw.randint(2, 12)):
                file.write(" ".join(draw.choice(part) for part in parts) + ".\n")
            file.write("\n")
    return path


def load_config(name: str, *argument: str):
    """The settings that configs/NAME.py returns; an argument is the text after the colon."""
    path = ROOT / "configs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"config_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*argument)


def text_settings(source: str, vocab: str, length: int, **changes):
    """How configs/base.py prepares text, but from this source and with these changes."""
    from electra_jax.data import planning  # noqa: PLC0415 - after conftest.py has set up jax

    data, seed = load_config("base").data, changes.pop("seed", 0)
    data.update({"source": source, "vocab": vocab, "sequence_length": length} | changes)
    return planning.DataSettings.of(data, seed)


def small_run(source: str, data_dir: str, **overrides):
    """configs/base.py with sizes for which a step takes milliseconds.

    Overrides are named by their path, with __ for dots.
    """
    config = load_config("base")
    config.name = "test"
    config.data.update(
        source=source,
        dir=data_dir,
        vocab="train:sentencepiece:64",
        heldout_fraction=0.05,
        sequence_length=32,
        batch_size=8,
        workers=1,
    )
    config.model.update(embedding_size=16, max_positions=32)
    config.model.discriminator.update(layers=2, width=32, heads=2, feed_forward=64)
    config.model.generator.update(layers=1, width=16, heads=2, feed_forward=32)
    config.optimizer.learning_rate = 1e-3
    config.schedule.update(steps=6, warmup_steps=2)
    config.checkpoint.update(every=2, keep_last=3)
    config.evaluation.update(every=6, rows=16)
    config.logging.update(every=2, report_every=0)  # drawing takes longer than the run
    for path, value in overrides.items():
        node = config
        *sections, name = path.split("__")
        for section in sections:
            node = node[section]
        node[name] = value
    return config


def finished_config(text):
    """The settings of the run that the fixture `finished` of conftest.py holds."""
    return small_run(*text, logging__report_every=1000)


class StopAt:
    """A writer that sends this process SIGTERM when a step is logged."""

    def __init__(self, step):
        self._step = step

    def write(self, step, kind, metrics):
        if step == self._step and kind == "train":
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        pass
