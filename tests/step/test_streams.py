# SPDX-License-Identifier: Apache-2.0
"""No two uses of randomness ever share numbers: keys are followed through real steps."""

import ast
import dataclasses
import functools
import itertools
import zlib

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.configs import tiny_paper
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.model import networks, task_heads
from electra_jax.step import plans
from support import tracing
from support.corpus import ROOT

ROWS, STEP = 2, 7
LAYERS = 2


@functools.cache
def objective(name, **changes):
    """An objective that draws wherever it can: dropout, spans, random tokens."""
    settings = dict(model__dropout=0.1, model__attention_dropout=0.1, model__scan="on")
    if name == "frozen_generator":
        settings |= dict(model__sharing="none", init__generator_from="runs/generator")
    if name == "multi_word_selection":
        settings |= dict(model__discriminator_head="own_layer")
    config = tiny_networks.config(
        config_lib.parse(tiny_paper.get_config()), name, **settings | changes
    )
    deep = {
        network: dataclasses.replace(getattr(config.model, network), layers=LAYERS)
        for network in ("generator", "discriminator")
    }
    chosen = dataclasses.replace(
        config.objective, mask_unit="span", mask_token_rate=0.8, random_token_rate=0.1
    )
    model = dataclasses.replace(config.model, **deep)
    return tiny_networks.objective(dataclasses.replace(config, model=model, objective=chosen))


@functools.cache
def of_a_step(name):
    """All keys of one step."""
    learnt = objective(name)
    params = jax.eval_shape(learnt.init, jax.random.key(0))

    def step(key, number, row_B, params, lanes):
        batch = batch_lib.from_lanes(
            lanes["ids"], lanes["marks"], row_B, tiny_networks.VOCABULARY.pad_id
        )
        keys, handover = streams.keys(key, number, row_B, dropout=True), None
        losses = []
        for phase in learnt.phases:
            sums, _, handover = phase.loss(params, batch, keys, learnt.knobs(0.5), handover)
            losses.append(sums)
        return losses

    row_B = jnp.arange(ROWS, dtype=jnp.uint32)
    known = jax.random.key(3), jnp.int32(STEP), row_B
    return tracing.derivations(step, known, (params, tiny_networks.lanes(ROWS, 0)))


def collisions(found):
    """What would make two draws share numbers, as texts."""
    twice = [draw[0] for draw in found.drawn]
    ways_from = {}
    for ways in found.made.values():
        for parent, how, _ in ways:
            ways_from.setdefault(parent, set()).add(how)

    return [
        *(f"{key} is drawn from {n} times" for key, n in _counts(twice) if n > 1),
        *(f"{key} is drawn from and a parent too" for key in {*twice} & found.parents),
        *(f"{key} is made in two ways: {w}" for key, w in found.made.items() if len(w) > 1),
        *(f"{key} is both split and folded" for key, hows in ways_from.items() if len(hows) > 1),
    ]


def _counts(keys):
    return [(key, len(list(same))) for key, same in itertools.groupby(sorted(keys))]


@pytest.mark.parametrize("name", plans.OBJECTIVES)
def test_no_two_draws_of_a_step_share_a_key(name):
    found = of_a_step(name)
    assert collisions(found) == []
    assert len(found.drawn) >= 4 * ROWS  # scores, kept, spans, dropout
    numbers = [np.asarray(_bits(*draw)).ravel() for draw in found.drawn]
    for one, other in itertools.combinations(numbers, 2):
        # Single words of 32 bits meet by chance; two in a row do not.
        pairs = [set(zip(x[:-1].tolist(), x[1:].tolist())) for x in (one, other)]
        assert not pairs[0] & pairs[1]


def _bits(words, width, shape):
    key = jax.random.wrap_key_data(jnp.array(words, jnp.uint32))
    return jax.random.bits(key, shape, f"uint{width}")


def test_a_split_beside_a_fold_is_found():
    """The mistake that this file is for, made on purpose: spans had the numbers of 'kept'."""

    def step(key):
        score_key, keep_key = jax.random.split(key)
        span_key = jax.random.fold_in(key, 1)
        return [jax.random.uniform(k, (3,)) for k in (score_key, keep_key, span_key)]

    said = collisions(tracing.derivations(step, (jax.random.key(0),)))
    for words in ("drawn from 2 times", "made in two ways", "both split and folded"):
        assert any(words in line for line in said), (words, said)


def test_a_key_that_is_drawn_from_and_folded_is_found():
    def step(key):
        return jax.random.bits(key), jax.random.bits(jax.random.fold_in(key, 0))

    said = collisions(tracing.derivations(step, (jax.random.key(0),)))
    assert len(said) == 1 and "a parent too" in said[0]


@pytest.mark.parametrize("name", plans.OBJECTIVES)
def test_first_weights_share_no_key(name):
    learnt = objective(name)

    def init(key):
        return learnt.init(streams.stream(key, "init"))

    found = tracing.derivations(init, (jax.random.key(3),))
    assert collisions(found) == []
    assert not {key for key, *_ in found.drawn} & {key for key, *_ in of_a_step(name).drawn}


@pytest.mark.parametrize("kind", task_heads.INITS)
def test_heads_of_fine_tuning_share_no_key(kind):
    head = task_heads.HeadConfig(kind, 8, impossible=True)
    shape = objective("replaced_token_detection").networks

    def init(key):
        trunk = networks.init_trunk(shape, streams.stream(key, "init"))
        return trunk, task_heads.init(head, streams.stream(key, "head"))

    assert collisions(tracing.derivations(init, (jax.random.key(0),))) == []


def test_every_stream_part_layer_row_and_step_has_a_key_of_its_own():
    """All keys of 5 steps and 6 rows: none is another's, at whatever level."""
    levels = {"mask": "mask", "generator_dropout": "network", "tuning_dropout": "tuning"}

    @tiny_networks.jit
    def of(step):
        found = {}
        for name in streams.STREAMS:
            parent = streams.stream(jax.random.key(1), name)
            found[name] = rows_B = streams.row_keys(parent, step, jnp.arange(6, dtype=jnp.uint32))
            for part in streams.PARTS.get(levels.get(name), ()):
                found[f"{name} {part}"] = part_B = streams.part(rows_B, levels[name], part)
                if part in ("encoder", "network"):
                    found[f"{name} {part}, layers"] = streams.layers(part_B, 3)
        return {name: jax.random.key_data(keys) for name, keys in found.items()}

    seen = {}
    for step in range(5):
        for name, words in of(step).items():
            for place, pair in enumerate(np.asarray(words).reshape(-1, 2).tolist()):
                assert seen.setdefault(tuple(pair), (step, name, place)) == (step, name, place)
    assert len(seen) == 5 * 6 * (len(streams.STREAMS) + 8 + 2 * 3)


def test_the_key_of_a_draw_is_where_it_was():
    """Spelled out, so that runs of before continue with the same slots."""
    keys = streams.keys(jax.random.key(9), 4, jnp.arange(3, dtype=jnp.uint32), dropout=True)
    key = jax.random.key(9)
    for number in (zlib.crc32(b"mask") & 0x7FFFFFFF, 4, 2):
        key = jax.random.fold_in(key, number)
    for place, part in enumerate(("scores", "kept", "random_tokens", "spans")):
        found, expected = streams.part(keys.mask_B, "mask", part)[2], jax.random.fold_in(key, place)
        assert (jax.random.key_data(found) == jax.random.key_data(expected)).all()


def test_a_stream_without_a_name_in_the_table_is_refused():
    with pytest.raises(KeyError, match="spnas"):
        streams.stream(jax.random.key(0), "spnas")
    with pytest.raises(ValueError, match="not in tuple"):
        streams.part(jax.random.split(jax.random.key(0)), "mask", "spnas")


def test_two_names_of_one_number_are_refused():
    """These two words are known to share their checksum."""
    with pytest.raises(ValueError, match="two of these streams have one number"):
        streams._numbers(("plumless", "buckeroo"))
    assert all(len(set(parts)) == len(parts) for parts in streams.PARTS.values())


def test_keys_are_derived_in_one_place():
    """Elsewhere none is folded, and first weights alone are split."""
    found = {}
    for path in sorted((ROOT / "electra_jax").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("fold_in", "split"):
                if ast.unparse(node.value) == "jax.random":
                    name = str(path.relative_to(ROOT / "electra_jax"))
                    found.setdefault(node.attr, set()).add(name)
    # The check folds in the number of an initialization.
    assert found["fold_in"] == {"core/streams.py", "checks/first_losses.py"}
    layers = ("attention", "discriminator", "feed_forward", "task_heads")
    assert found["split"] == {f"model/{name}.py" for name in layers}
