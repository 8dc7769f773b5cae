# SPDX-License-Identifier: Apache-2.0
"""Configurations that together contain every pair of settings, made from the choices of `config`.

    triples   objective x sharing x optimizer, all of them
    axes      every other setting that changes what a step computes: each choice of `config`, each
              bool, each number that 0 switches off, and whether the networks project embeddings
    rows      one for each triple that is accepted, and as many more as it takes until every two
              settings that go together stand in one row (pairwise covering, greedily)

`config.parse` alone decides which settings are refused.
"""

import dataclasses
import functools
import itertools
import random

from electra_jax import config as config_lib

from .corpus import small_run

VOCAB = 200
FIRST = ("objective.name", "model.sharing", "optimizer.name")

NOT_IN_A_STEP = {  # choices that change no program, or that other tests hold for each platform
    "model.attention",  # test_modern_trunk.py: needs a chip
    "model.residual_norm",  # test_residual_norm.py: likewise
    "schedule.on_spike",  # 'roll_back' is the loop's; 'skip' is in the axes by spike_skip below
}
SECTIONS = ("model.", "objective.", "optimizer.", "schedule.")
SWITCHES = {  # numbers that 0 switches off -> what they are when on
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "model.local_window": 3,
    "model.shared_layers": 1,
    "objective.first_mask_rate": 0.3,
    "objective.random_token_rate": 0.1,
    "objective.first_temperature": 2.0,
    "optimizer.gen_learning_rate": 2e-3,
    "optimizer.disc_learning_rate": 3e-3,
    "optimizer.muon_learning_rate": 4e-3,
    "optimizer.disc_muon_learning_rate": 5e-3,
    "optimizer.weight_decay": 0.01,
    "optimizer.clip_norm": 1.0,
    "optimizer.ema_decay": 0.9,
}
ALWAYS_ON = {  # 0 means nothing learns, or makes a term vanish; what they weigh is data
    "objective.mask_token_rate", "objective.gen_weight", "objective.disc_weight",
    "objective.mlm_weight", "objective.selection_weight", "optimizer.learning_rate",
    "optimizer.beta1", "optimizer.beta2",
    "schedule.tokens", "schedule.minutes", "schedule.warmup_steps",
}  # fmt: skip
OTHERS = {  # what is neither a choice nor a switch
    "projects": ("both", "discriminator", "generator", "none"),
    "schedule.accumulation": (1, 2),
    "schedule.on_spike": ("go_on", "skip"),
}
WIDTHS = {  # embeddings, discriminator, generator
    "both": (16, 32, 32), "discriminator": (16, 32, 16), "generator": (32, 32, 16),
    "none": (32, 32, 32),
}  # fmt: skip

Row = dict  # {axis: value}; what is not there has its default


def axes() -> dict[str, tuple]:
    """{axis: its values}, beginning with FIRST."""
    found = {
        path: field.metadata["choices"]
        for path, field in config_lib.declared(config_lib.Config).items()
        if "choices" in field.metadata and path.startswith(SECTIONS) and path not in NOT_IN_A_STEP
    }
    found["model.dtype"] = ("float32", "bfloat16")
    found["model.scan"] = ("on", "off")
    for section in ("model", "objective"):
        kind = next(f.type for f in dataclasses.fields(config_lib.Config) if f.name == section)
        found |= {
            f"{section}.{field.name}": (False, True)
            for field in dataclasses.fields(kind)
            if field.type is bool
        }
    found |= {path: (0.0 if type(on) is float else 0, on) for path, on in SWITCHES.items()}
    return {name: found[name] for name in FIRST} | found | OTHERS


def unlisted_switches() -> set[str]:
    """Settings that may be 0 and are in neither SWITCHES nor ALWAYS_ON."""
    zero = {
        path
        for path, field in config_lib.declared(config_lib.Config).items()
        if field.metadata.get("bounds", (1,))[0] == 0 and path.startswith(SECTIONS)
    }
    return zero - SWITCHES.keys() - ALWAYS_ON


def tree(row: Row) -> dict:
    """The configuration of a row, with one layer per network.

    Settings that a choice requires are set too, e.g. the tokens of a budget of tokens.
    """
    row = dict(row)
    embeddings, main, generator = WIDTHS[row.pop("projects", "discriminator")]
    if row.get("model.sharing") == "all" or row.get("model.shared_layers"):
        generator = main
    shape = dict(layers=1, heads=2, feed_forward=32)
    deep = 1 + row.get("model.shared_layers", 0)  # one layer of its own
    made = _plain().copy()
    made = {name: dict(x) if isinstance(x, dict) else x for name, x in made.items()}
    made["model"] |= dict(
        embedding_size=embeddings,
        discriminator=shape | dict(width=main),
        generator=shape | dict(width=generator, layers=deep),
    )
    budget = row.get("schedule.budget", "steps")
    made["schedule"] |= {"tokens": dict(tokens=10_000), "minutes": dict(minutes=1.0)}.get(
        budget, {}
    )
    if row.get("objective.name") == "frozen_generator":
        made["init"]["generator_from"] = "a run before this one"
    for path, value in row.items():
        section, _, name = path.partition(".")
        made[section][name] = value
    return made


@functools.cache
def _plain():
    config = small_run("text:nowhere/*.txt", "")
    config.data.update(batch_size=4, sequence_length=16)
    config.model.update(scan="off", dtype="float32", dropout=0.0, attention_dropout=0.0)
    config.schedule.update(steps=4, warmup_steps=0)
    return config.to_dict()


def refusal(row: Row) -> str | None:
    """The error of `config.parse` for a row; None if the row is accepted."""
    try:
        config_lib.parse(tree(row))
    except config_lib.ConfigError as error:
        return str(error)
    return None


def triples() -> list[Row]:
    """Objective x sharing x optimizer."""
    every = axes()
    return [dict(zip(FIRST, x)) for x in itertools.product(*(every[name] for name in FIRST))]


def pairs() -> list[tuple]:
    """Every pair of settings of two different axes: ((axis, value), (axis, value))."""
    every = axes()
    return [
        ((a, x), (b, y))
        for a, b in itertools.combinations(every, 2)
        for x in every[a]
        for y in every[b]
    ]


@functools.cache
def rows() -> tuple[tuple[Row, ...], dict[frozenset, str]]:
    """(accepted rows that cover all pairs, {refused triple or pair: the error})."""
    refused, begun = {}, []
    for row in triples():
        reason = refusal(row)
        if reason is None:
            begun.append(row)
        else:
            refused[frozenset(row.items())] = reason
    open_pairs = {}
    for pair in pairs():
        reasons = []
        for row in completed(dict(pair)):
            reasons.append(refusal(row))
            if reasons[-1] is None:
                open_pairs[frozenset(pair)] = row
                break
        else:
            refused[frozenset(pair)] = reasons[0]
    draw, made = random.Random(0), []
    while begun or open_pairs:
        # A pair that no triple had room for begins a row of its own.
        row = begun.pop(0) if begun else open_pairs[min(open_pairs, key=sorted_pair)]
        row = _filled(row, open_pairs, draw)
        made.append(row)
        for pair in itertools.combinations(row.items(), 2):
            open_pairs.pop(frozenset(pair), None)
    return tuple(made), refused


def completed(row: Row):
    """Yields the row with every choice of objective, sharing and optimizer that it leaves open.

    The defaults come first.
    """
    every = axes()
    default = {
        "objective.name": "replaced_token_detection",
        "model.sharing": "embeddings",
        "optimizer.name": "reference_adamw",
    }
    yield default | row
    for values in itertools.product(*(every[name] for name in FIRST)):
        yield dict(zip(FIRST, values)) | row


def sorted_pair(pair):
    """A sort key that does not depend on hashes."""
    return sorted(map(str, pair))


def _filled(row, open_pairs, draw):
    """The row with a value for every axis, each the one that covers the most open pairs."""
    every = axes()
    others = [axis for axis in every if axis not in row]
    draw.shuffle(others)
    for axis in others:
        values = list(every[axis])
        draw.shuffle(values)

        def gain(value, axis=axis, row=row):
            return -sum(frozenset(((axis, value), had)) in open_pairs for had in row.items())

        for value in sorted(values, key=gain):
            here = row | {axis: value}
            if refusal(here) is None:
                row = here
                break
        else:
            raise ValueError(f"no value of {axis} goes with {row}")
    return row


def named(row: Row) -> str:
    """A row as one line, for messages."""
    return ", ".join(f"{axis}={value!r}" for axis, value in row.items())
