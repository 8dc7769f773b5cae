# SPDX-License-Identifier: Apache-2.0
"""What `init.from` takes of one objective's weights for another's follows from names, at any size.

Embeddings as wide as the networks make many shapes equal that have nothing to do with each other.
"""

import functools
import itertools
import re

import jax
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.data import vocabulary
from electra_jax.host import error_causes, processes
from electra_jax.model import networks
from electra_jax.step import plans, train_step
from electra_jax.weights import reading, reading_foreign, starting_weights, warm_start
from electra_jax.workdir import metadata
from support import odd, workdirs
from support.corpus import small_run

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = vocabulary.Vocabulary("wordpiece", "\n".join((*ROLES, "sun", "moon")).encode(), True, True)
SHAPE = dict(layers=1, width=32, heads=2, feed_forward=48)
SIZES = {"embeddings as wide as the networks": 32, "embeddings of another width": 16}

DETECTS = ("adversarial_generator", "replaced_token_detection", "electric", "uniform_generator")
PREDICTS = ("masked_lm", "replace_mlm", "all_tokens_mlm")
GENERATES = ("replaced_token_detection", "replace_mlm", "all_tokens_mlm", "adversarial_generator")
QUICK = (("masked_lm", "uniform_generator"), ("electric", "replaced_token_detection"))
OBJECTIVES = (*DETECTS, *PREDICTS)


def settings(name, size, **changes):
    return dict(
        objective__name=name, model__embedding_size=size, model__discriminator=SHAPE,
        model__generator=SHAPE,
    ) | changes  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """(objective, embedding size) -> a workdir with random weights, made at its first use."""

    @functools.cache
    def source(name, size):
        workdir = tmp_path_factory.mktemp(f"{name}_{size}")
        workdirs.made(workdir, WORDS, **settings(name, size))
        return workdir

    return source


def start(source, name, size, generator_from="", **changes):
    """(taken paths, fresh paths) of a run that begins with a source; by its values, not its log."""
    tree = small_run(workdirs.NO_SOURCE, "", **settings(name, size, **changes))
    tree.init["from"] = str(source)
    tree.init.generator_from = str(generator_from)
    config = config_lib.parse(tree)
    objective = plans.make_objective(config, WORDS, np.ones(WORDS.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)), seed=4)
    before = odd.flat(params)
    fresh = train_step.state_of(objective, plans.make_optimizer(config), params)
    mesh, optimizer = plans.make_mesh(config), config.optimizer.name
    shared = objective.networks.shared_layers
    run = starting_weights.FreshRun(
        config.init, optimizer, fresh, objective.phases, WORDS, mesh, shared
    )
    after = odd.flat(warm_start.state(run).params)
    unchanged = {path for path in before if np.array_equal(before[path], after[path])}
    return set(after) - unchanged, unchanged


def parts(paths):
    """Without projections, which only one of the sizes has."""
    return {path for path in paths if "/projection/" not in path}


PAIRS = [
    pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.exhaustive)
    for pair in itertools.product(OBJECTIVES, OBJECTIVES)
]


def test_an_array_as_long_as_the_padded_vocabulary_is_no_table_by_token():
    """100 tokens are padded to 128, which is here the size of everything else as well."""
    shape = odd.trunk(1, 128, 2, 128)
    config = odd.pair(100, 128, 8, generator=shape, discriminator=shape)
    params = jax.eval_shape(lambda: networks.init(config, jax.random.key(0)))
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), params)
    params["embeddings"]["token"] = params["embeddings"]["token"][:100]
    params["generator"]["head"]["bias"] = params["generator"]["head"]["bias"][:100]
    reading_foreign._check_parameters("FOLDER", config, params)

    params["discriminator"]["head"]["dense"]["bias"] = np.zeros(100, np.float32)
    with pytest.raises(config_lib.ConfigError, match=r"head/dense/bias is \(100,\) there"):
        reading_foreign._check_parameters("FOLDER", config, params)


@pytest.mark.parametrize(
    "error",
    [
        metadata.CheckpointError("is damaged"),
        error_causes.MayPass("no server"),
        ValueError("no text"),
    ],
)
def test_weights_that_one_process_cannot_read_end_all_of_them(monkeypatch, error):
    """Without that the others wait for it, and end in an error of jax."""
    told = []

    def fail(*_):
        raise error

    monkeypatch.setattr(reading, "is_foreign", fail)
    monkeypatch.setattr(processes, "is_alone", lambda: False)
    monkeypatch.setattr(processes, "gather", lambda text, *_: told.append(text) or [text, text])
    monkeypatch.setattr(processes, "of_first", lambda look: [])  # there are no checkpoints
    with pytest.raises(type(error), match=str(error)):
        start("weights", "masked_lm", 32)
    assert str(error) in told[0]


@pytest.mark.parametrize(("source", "name"), PAIRS)
def test_the_same_is_taken_at_every_size(sources, source, name):
    found = {size: start(sources(source, size), name, size) for size in SIZES.values()}
    (taken, fresh), (taken_apart, fresh_apart) = found.values()
    assert (parts(taken), parts(fresh)) == (parts(taken_apart), parts(fresh_apart))

    trunk = {path for path in taken | fresh if path.startswith(("embeddings", "discriminator/enc"))}
    assert trunk <= taken
    head = {path for path in taken | fresh if path.startswith("discriminator/head/")}
    same_kind = any({source, name} <= {*kind} for kind in (DETECTS, PREDICTS))
    assert head & taken == (head if same_kind else set())
    generator = {path for path in taken | fresh if path.startswith("generator/")}
    generator -= {"generator/baseline/kernel", "generator/baseline/bias"}
    same_kind = {source, name} <= {*GENERATES} or source == name
    assert generator & taken == (generator if same_kind else set())


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_both_networks_of_the_second_stage_and_what_the_log_says(sources, size, caplog):
    """The detection head begins fresh, and the log names it and nothing else."""
    source = sources("masked_lm", size)
    caplog.set_level("INFO")
    taken, fresh = start(
        source, "frozen_generator", size, source, model__sharing="none",
    )  # fmt: skip
    assert {path for path in taken | fresh if path.startswith("discriminator/head/")} == fresh
    (line,) = [x for x in caplog.messages if x.startswith("starting from")]
    assert "discriminator/head" in line.split("; fresh: ")[1].split(", ")
    assert f"the generator is that of init.generator_from={str(source)!r}" in caplog.messages


@pytest.mark.parametrize("name", ["replaced_token_detection", "masked_lm"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_log_names_what_is_fresh_and_nothing_that_is_not(sources, size, name, caplog):
    caplog.set_level("INFO")
    changes = dict(model__discriminator_head="cls_context") if "detection" in name else {}
    _, fresh = start(sources("uniform_generator", size), name, size, **changes)
    (line,) = [x for x in caplog.messages if x.startswith("starting from")]
    named = line.split("; fresh: ")[1].split(", ")
    for path in fresh:
        assert any(path == part or path.startswith(f"{part}/") for part in named), path
    whole = "discriminator/head/norm" if changes else "discriminator/head"
    assert whole in named and len(named) == len(set(named))


def test_a_generator_of_other_depth_is_fresh_as_a_whole(sources):
    """Its head and projection would fit, but they were trained on top of another encoder."""
    size = SIZES["embeddings of another width"]
    _, fresh = start(
        sources("replaced_token_detection", size), "replaced_token_detection", size,
        model__generator=SHAPE | dict(layers=2),
    )  # fmt: skip
    assert {path.split("/")[0] for path in fresh} == {"generator"}
    assert {"generator/projection/kernel", "generator/head/bias"} <= fresh


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("uniform_generator", "its only network detects replaced tokens"),
        ("electric", "its generator guesses by two towers"),
    ],
)
def test_what_is_no_generator_is_refused_by_what_it_does(sources, source, reason):
    size = SIZES["embeddings as wide as the networks"]
    with pytest.raises(config_lib.ConfigError, match=f"no generator to take: {reason}; take a"):
        start("", "replaced_token_detection", size, sources(source, size))


def test_an_adversarial_generator_begins_as_a_trained_one(sources):
    size = SIZES["embeddings as wide as the networks"]
    taken, fresh = start("", "adversarial_generator", size, sources("masked_lm", size))
    assert {path for path in fresh if path.startswith("generator/")} == {
        "generator/baseline/kernel", "generator/baseline/bias",
    }  # fmt: skip
    assert "generator/head/bias" in taken


def test_tables_of_another_width_are_refused(sources):
    """They were left fresh under a trained encoder, which then understands nothing."""
    message = re.escape("no main network of this shape: embeddings/")
    with pytest.raises(config_lib.ConfigError, match=message) as error:
        start(sources("uniform_generator", 16), "uniform_generator", 32)
    assert "give model.* the shapes of that run" in str(error.value)
    assert reading.open(sources("uniform_generator", 16)).role("discriminator") == "judges"
