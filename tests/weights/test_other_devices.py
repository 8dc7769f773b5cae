# SPDX-License-Identifier: Apache-2.0
"""What a run on TPUs or GPUs leaves behind is read where there are none."""

import jax
import pytest

from electra_jax import config as config_lib
from electra_jax.core import meshes, trees
from electra_jax.data import vocabulary
from electra_jax.step import plans
from electra_jax.weights import card_facts, reading_workdir, trained_weights
from support.corpus import small_run

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "sun", "moon")).encode(), True, True)


@pytest.mark.parametrize("attention", ["splash", "blockwise"])
def test_a_kind_of_attention_that_is_not_here_is_no_obstacle(attention):
    given = {"model__attention": attention, "model__attention_dropout": 0.0}
    config = config_lib.parse(small_run("builtin", "", **given))
    with pytest.raises(config_lib.ConfigError, match=f"attention='{attention}' needs a"):
        plans.make_plan(config, WORDS)

    shapes = plans.make_plan(trained_weights.portable(config), WORDS).state_shapes.params
    digest = {f"params/{path}": "" for path in trees.flat(shapes)}
    found = reading_workdir.stored_shapes(config, WORDS, digest, "params")
    assert jax.tree.map(lambda x: x.shape, found) == jax.tree.map(lambda x: x.shape, shapes)

    networks = plans.networks_config(trained_weights.portable(config), WORDS.size)
    weights = trained_weights.Weights("run", 2, networks, {}, WORDS, config)
    assert card_facts.training_facts(weights)["steps"] == "2"


def test_networks_of_a_gpu_have_no_kernels_where_they_are_exported(monkeypatch):
    monkeypatch.setattr(meshes, "runs_triton", lambda _: True)
    config = config_lib.parse(small_run("builtin", ""))
    found = plans.networks_config(trained_weights.portable(config), WORDS.size)
    assert found.discriminator.norms_in_kernel
    portable = trained_weights.portable_shape(found)
    assert not (portable.discriminator.norms_in_kernel or portable.generator.norms_in_kernel)
