# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures the run's own step, and counts what can be counted by hand."""

import json

import jax
import pytest
from jax import lax
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.model import accounting
from electra_jax.speed import measurement, step_parts, synthetic
from support.corpus import load_config

ROWS, LENGTH, WIDTH, LAYERS, SLOTS = 4, 16, 8, 2, 2


@pytest.fixture(scope="module")
def config():
    tree = load_config("tiny_paper")
    tree.data.update(batch_size=ROWS, sequence_length=LENGTH)
    tree.model.update(embedding_size=WIDTH, max_positions=LENGTH)
    for network in (tree.model.generator, tree.model.discriminator):
        network.update(layers=LAYERS, width=WIDTH, heads=1, feed_forward=WIDTH)
    return config_lib.parse(tree)


@pytest.fixture(scope="module")
def found(config):
    return measurement.measure(config, vocab_size=300, steps=2, with_parts=True)


def test_everything_is_a_number_and_adds_up(found):
    assert found["step_seconds_fastest"] <= found["step_seconds"] <= found["step_seconds_slowest"]
    assert found["padding_rate"] == 0.0  # of made-up rows
    rate = ROWS * LENGTH / found["step_seconds"]
    assert found["tokens_per_second"] == pytest.approx(rate)
    assert found["flops_per_second"] == found["flops_per_step"] / found["step_seconds"]
    headroom = found["pipeline_rows_per_second"] * found["step_seconds"] / ROWS
    assert found["pipeline_headroom"] == pytest.approx(headroom)
    assert all(f"    {name}  " in step_parts.__doc__ for name in found["parts"])
    assert min(found["parts"].values()) > 0
    assert json.loads(json.dumps(found)) == found


def test_the_table_names_every_part(found):
    text = measurement.table(found)
    for name in ("tokens/s", "compiling", "random bits", "data pipeline", *found["parts"]):
        assert name in text


def test_the_table_recommends_a_dtype_in_which_this_cpu_multiplies_faster(found):
    """On a CPU the product is measured in both; which is faster depends on the CPU."""
    measured = found["product_flops_per_second_in"]
    assert set(measured) == {"bfloat16", "float32"} and min(measured.values()) > 0
    assert found["product_flops_per_second"] == measured["float32"]  # in which it trains

    def line(bfloat16):
        rates = {"product_flops_per_second_in": {"float32": 2e11, "bfloat16": bfloat16}}
        shown = measurement.table(found | rates | {"product_flops_per_second": 2e11})
        (line,) = (line for line in shown.splitlines() if line.startswith("in bfloat16"))
        return line.removeprefix("in bfloat16").strip()

    assert line(1.5e11) == "1.5e+11 FLOP/s, 0.75 x that product"
    assert line(2.1e11) == "2.1e+11 FLOP/s, 1.05 x that product"  # which may be chance
    assert line(4e11) == ("4e+11 FLOP/s, 2.00 x that product; try --config.model.dtype=bfloat16")


def test_the_table_says_that_later_stages_are_not_timed(found):
    """One stage has no line of its own."""
    assert found["later_stages"] == [] and "the first of" not in measurement.table(found)
    later = [{"share": 0.5, "sequence_length": 512, "batch_size": 32}]
    shown = measurement.table(found | {"later_stages": later})
    assert "the first of 2; not timed: 32 rows of 512 tokens" in shown


def test_the_stages_that_are_not_timed_are_those_after_the_first(config):
    tree = config_lib.to_tree(config)
    tree["schedule"]["stages"] = ((0.5, LENGTH, 2 * ROWS),)
    staged = config_lib.parse(tree)
    about = measurement._settings(staged, synthetic.prepare(staged, 300), 300)
    assert (about["batch_size"], about["later_stages"]) == (
        ROWS,
        [{"share": 0.5, "sequence_length": LENGTH, "batch_size": 2 * ROWS}],
    )


@pytest.mark.parametrize("sharing", ["none", "gdes", "all"])
def test_parts_of_networks_that_share_more_or_less(config, sharing):
    """With `all` the generator's and the discriminator's trunk is one, outside of both."""
    tree = config_lib.to_tree(config)
    tree["model"]["sharing"] = sharing
    parts = step_parts.programs(synthetic.prepare(config_lib.parse(tree), 300))
    for network in ("generator", "discriminator"):
        function, (weights, rows_BLE) = parts[network]
        gradients, _ = jax.eval_shape(function, weights, rows_BLE)
        assert {"encoder", "head"} <= set(gradients)


def test_random_bits_of_a_step_by_hand(found):
    """Without dropout: a score a token; a slot has one for its mask and two for its draw."""
    assert found["random_bits_per_step"] == 32 * ROWS * (LENGTH + SLOTS + 2 * SLOTS)


@pytest.mark.parametrize(("bits", "each"), [(8, 8), (32, 32)])
def test_random_bits_with_dropout_by_hand(config, bits, each):
    tree = config_lib.to_tree(config)
    tree["model"] |= {"dropout": 0.1, "attention_dropout": 0.1, "dropout_bits": bits}
    rehearsed = synthetic.prepare(config_lib.parse(tree), 300)
    program = jax.make_jaxpr(rehearsed.update)(rehearsed.plan.state_shapes, rehearsed.lanes())
    layer = LENGTH * LENGTH + 2 * LENGTH * WIDTH  # probabilities, two outputs
    decisions = 2 * (LENGTH * WIDTH + LAYERS * layer)  # of two networks, with their embeddings
    plain = 32 * ROWS * (LENGTH + 3 * SLOTS)
    assert accounting.random_bits(program) == plain + each * ROWS * decisions


def test_random_bits_are_counted_through_loops_and_calls():
    @jax.jit
    def draw(key):
        return jax.random.bits(key, (3,)).sum()

    def program(key):
        return lax.scan(lambda total, key: (total + draw(key), None), jnp.uint32(0), key)[0]

    keys = jax.random.split(jax.random.key(0), 5)
    assert accounting.random_bits(jax.make_jaxpr(program)(keys)) == 5 * 3 * 32
    assert accounting.random_bits(jax.make_jaxpr(lambda x: x + 1)(1.0)) == 0


def test_made_up_rows_are_rows_as_records_hold_them(config, tmp_path):
    vocabulary = synthetic.MadeUpVocabulary(300)
    ids, marks = synthetic.rows(vocabulary, 3, 8, seed=1)
    assert ids[:, [0, 3, 7]].tolist() == [[synthetic.CLS, synthetic.SEP, synthetic.SEP]] * 3
    opened = synthetic.write_records(vocabulary, 100, 8, str(tmp_path))
    assert opened.rows("train", 0) == 100


def test_the_rehearsed_step_trains(config):
    rehearsed = synthetic.prepare(config, 300)
    state, measured = rehearsed.update(rehearsed.state(), rehearsed.lanes())
    assert int(state.step) == 1 and int(state.tokens_seen[0]) == ROWS * LENGTH
    assert float(measured.checks["gen_loss"]) == pytest.approx(5.7, abs=0.2)  # log 300
