# SPDX-License-Identifier: Apache-2.0
"""A configuration becomes a plan; what a plan without a mesh can give, and what it cannot."""

import types

import jax
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.core import compilers
from electra_jax.speed import synthetic
from electra_jax.step import plans
from support.corpus import load_config

VOCABULARY = synthetic.MadeUpVocabulary(100)


def plan(**optimizer):
    tree = load_config("tiny_paper")
    tree.optimizer.update(optimizer)
    return plans.make_plan(config_lib.parse(tree), VOCABULARY)


def test_what_both_networks_share_comes_from_the_model_section_by_name():
    tree = load_config("tiny_paper")
    tree.model.update(norm_kind="rms", positions="rotary", dropout=0.25, scan="on")
    networks = plans.make_plan(config_lib.parse(tree), VOCABULARY).networks
    for network in (networks.generator, networks.discriminator):
        found = network.norm_kind, network.positions, network.dropout, network.scan
        assert found == ("rms", "rotary", 0.25, True)
    assert networks.max_positions == 0  # no table of them


def test_a_plan_without_a_mesh_has_shapes_and_no_places():
    made = plan()
    assert made.state_shapes.params["embeddings"]["token"].shape == (
        128,
        made.networks.embedding_size,
    )
    length = made.stages[0].sequence_length
    for part in (lambda: made.state_shardings, lambda: made.make_update(length)):
        with pytest.raises(ValueError, match="this plan was made without a mesh"):
            part()


def test_the_rate_is_that_of_the_network_with_the_highest_peak():
    rate = plan(gen_learning_rate=1e-3, disc_learning_rate=4e-3).rate
    tree = load_config("tiny_paper").schedule
    at = tree.warmup_steps  # counted from 0: the first step at the full warmup
    expected = 4e-3 * (1 - at / tree.steps)
    np.testing.assert_allclose(rate(np.int32(at), None), expected, rtol=1e-5)
    assert float(rate(np.int32(0), None)) == 0


def options(text):
    tree = load_config("tiny_paper")
    tree.mesh.compiler_options = text
    return config_lib.parse(tree)


def test_an_option_that_the_compiler_does_not_have_is_refused_before_the_step_is_compiled():
    with pytest.raises(config_lib.ConfigError, match="'xla_foo=1' is refused by .* 'xla_foo'; cor"):
        plans.make_mesh(options("xla_foo=1"))
    with pytest.raises(config_lib.ConfigError, match="'maybe' is not a valid bool value"):
        plans.make_mesh(options("xla_cpu_enable_fast_math=maybe"))
    assert plans.make_mesh(options("xla_cpu_enable_fast_math=false")).size == 1


def test_only_the_compiler_that_fails_gets_an_option_by_itself(monkeypatch):
    kind = types.SimpleNamespace
    for version, of_v6e in (((0, 10, 2), {"xla_tpu_dot_dot_fusion": False}), ((0, 12, 0), {})):
        monkeypatch.setattr(jax, "__version_info__", version)
        assert compilers.needed(kind(device_kind="TPU v6 lite")) == of_v6e
        for other in ("TPU v5 lite", "NVIDIA H100 80GB HBM3", "cpu"):
            assert compilers.needed(kind(device_kind=other)) == {}

    mesh = plans.make_mesh(options("auto"))
    assert plans.make_plan(options("auto"), VOCABULARY, mesh=mesh).compiler_options == {}


def test_the_step_is_compiled_with_the_options(monkeypatch):
    monkeypatch.setattr(compilers, "refused", lambda options, mesh: "")
    ready = synthetic.prepare(options("xla_foo=1"), 100)
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_foo'"):
        ready.update.lower(ready.plan.state_shapes, ready.lanes()).compile()


def test_a_slot_is_offered_no_more_tokens_than_there_are():
    tree = load_config("tiny_paper")
    tree.objective.update(name="multi_word_selection", selection_size=6)
    few = synthetic.MadeUpVocabulary(11)
    assert plans.make_plan(config_lib.parse(tree), few).objective.selection_size == 6

    tree.objective.selection_size = 7
    with pytest.raises(config_lib.ConfigError, match="=7 is more than the 6 tokens of the voc"):
        plans.make_plan(config_lib.parse(tree), few)
    tree.objective.name = "replaced_token_detection"  # does not read it
    assert plans.make_plan(config_lib.parse(tree), few)
