# SPDX-License-Identifier: Apache-2.0
"""`config.READS` against the traced programs: what it lists changes them, what it leaves out never
does; and what a run is told of settings that change nothing."""

import dataclasses
import functools
import importlib
import re

import jax
import pytest
from jax import numpy as jnp

from electra_jax import config as config_lib
from electra_jax.checks import tiny_networks
from electra_jax.configs import base, tiny_paper
from electra_jax.core import batch as batch_lib
from electra_jax.core import streams, trees
from electra_jax.objectives import unigram_probe
from electra_jax.step import optimizer, plans
from support import tracing
from support.corpus import ROOT

NAMES = tuple(plans.OBJECTIVES)
FLOATS = [field.name for field in dataclasses.fields(config_lib.Objective) if field.type is float]
PATHS = sorted({path for paths in config_lib.READS.values() for path in paths})
OTHER = {  # a value that is no configuration's own
    "objective.mask_rate": 0.2,
    "objective.first_mask_rate": 0.4,
    "objective.mask_token_rate": 0.5,
    "objective.random_token_rate": 0.15,
    "objective.mask_unit": "word",
    "objective.span_words": 2.0,
    "objective.temperature": 0.7,
    "objective.first_temperature": 3.0,
    "objective.temperature_decay": 0.3,
    "objective.disallow_correct": True,
    "objective.gen_weight": 2.0,
    "objective.disc_weight": 0.0,
    "objective.mlm_weight": 3.0,
    "objective.selection_weight": 3.0,
    "objective.selection_size": 7,
    "model.generator": config_lib.Network(1, 16, 2, 48),
    "model.sharing": "none",
    "model.discriminator_head": "cls_context",
    "model.shared_layers": 1,
    "optimizer.gen_learning_rate": 3e-4,
    "optimizer.disc_learning_rate": 3e-4,
    "optimizer.disc_muon_learning_rate": 3e-4,
    "optimizer.clip": "per_network",
}


@functools.cache
def config(name):
    """Tiny networks with all that some settings need to be read: spans, a falling temperature."""
    needed = {}
    if name == "frozen_generator":
        needed = dict(model__sharing="none", init__generator_from="runs/generator")
    plain = tiny_networks.config(config_lib.parse(tiny_paper.get_config()), name, **needed)
    plain = with_(plain, "optimizer.name", "muon")
    plain = with_(plain, "objective.mask_unit", "span")
    return with_(plain, "objective.first_temperature", 2.0)


def with_(config, path, value):
    """A configuration with one field or network changed, unchecked."""
    section, field = path.split(".")
    part = dataclasses.replace(getattr(config, section), **{field: value})
    return dataclasses.replace(config, **{section: part})


def program(of, evaluation=False):
    """(a function of parameters and lanes, its arguments): what a step or an evaluation says."""
    params = jax.eval_shape(of.init, jax.random.key(0))
    lanes = tiny_networks.lanes(2, 0)

    def run(params, lanes, progress, objective=of):
        row_B = jnp.arange(2, dtype=jnp.uint32)
        batch = batch_lib.from_lanes(
            lanes["ids"], lanes["marks"], row_B, tiny_networks.VOCABULARY.pad_id
        )
        keys = streams.keys(jax.random.key(0), 0, row_B, dropout=False)
        knobs, handover = objective.knobs(progress), None
        if evaluation:
            probe = unigram_probe.of(jax.random.key(0), row_B, jnp.ones(128))
            return objective.evaluate(params, batch, keys, knobs, probe)

        denominators, found = objective.denominators(batch, knobs), []
        for phase in objective.phases:
            sums, measured, handover = phase.loss(params, batch, keys, knobs, handover)
            found.append((objective.total({x: sums[x] / denominators[x] for x in sums}), measured))
        return found

    return run, (params, lanes, jnp.float32(0.5))


@functools.cache
def traced(config, evaluation=False):
    """The program of a configuration and the shapes of its first weights, as text."""
    run, arguments = program(tiny_networks.objective(config), evaluation)
    return tracing.text(run, *arguments), str(arguments[0])


class Set:
    """A number of the program that counts as set, so that `if self.random_token_rate` is true."""

    def __init__(self, value):
        self._value = value

    def __bool__(self):
        return True

    def __sub__(self, other):
        return self._value - other

    def __radd__(self, other):
        return other + self._value


def floats_read(config, evaluation=False):
    """Which numbers of the section the program depends on, each made an input of it."""
    of = tiny_networks.objective(config)
    run, arguments = program(of, evaluation)
    optional = {"first_mask_rate", "random_token_rate", "first_temperature"}

    def with_inputs(numbers, arguments):
        settings = {
            field: Set(x) if field in optional and getattr(config.objective, field) else x
            for field, x in numbers.items()
        }
        return run(*arguments, objective=dataclasses.replace(of, **settings))

    numbers = {
        field: jnp.float32(getattr(config.objective, field))
        for field in FLOATS
        if getattr(config.objective, field) or field not in optional
    }
    used = tracing.read(with_inputs, numbers, arguments)
    return {field for field, is_used in zip(sorted(numbers), used) if is_used}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_listed_are_read_and_no_others(name):
    everything = config(name)
    for field in ("first_mask_rate", "random_token_rate"):
        everything = with_(everything, f"objective.{field}", 0.1)
    listed = {field for field in FLOATS if f"objective.{field}" in config_lib.READS[name]}
    assert floats_read(everything) == listed


def test_what_a_setting_needs_is_what_makes_it_read():
    plain = with_(config("replaced_token_detection"), "objective.mask_unit", "token")
    plain = with_(plain, "objective.first_temperature", 0.0)
    needy = {"span_words", "temperature_decay"}
    assert not floats_read(plain) & needy
    assert floats_read(config("replaced_token_detection")) >= needy
    lines = []
    for field in sorted(needy):
        changed = with_(plain, f"objective.{field}", OTHER[f"objective.{field}"])
        lines += config_lib.unread(changed)
    assert lines == [
        "objective.span_words=2.0 changes nothing: it needs objective.mask_unit='span'",
        "objective.temperature_decay=0.3 changes nothing: it needs objective.first_temperature",
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["objective.disallow_correct", "objective.mask_unit"])
def test_choices_that_are_listed_change_the_program_and_no_others(path, name):
    before, after = traced(config(name)), traced(with_(config(name), path, OTHER[path]))
    assert (before != after) == (path in config_lib.READS[name])


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_the_networks_that_are_listed_change_them_and_no_others(name):
    idle = config(name)
    deeper = with_(config(name), "model.generator", config_lib.Network(2, 32, 2, 64))
    for path in (
        "model.generator", "model.sharing", "model.discriminator_head", "model.shared_layers",
    ):  # fmt: skip
        plain = deeper if path == "model.shared_layers" else config(name)  # to share one of two
        changed = with_(plain, path, OTHER[path])
        if name == "frozen_generator" and path == "model.sharing":
            changed = with_(config(name), path, "gdes")
        if path not in config_lib.READS[name]:
            idle = with_(idle, path, OTHER[path])
        elif (name, path) != ("electric", "model.sharing"):  # of which there is one, as below
            shapes = [
                str(jax.eval_shape(tiny_networks.objective(c).init, jax.random.key(0)))
                for c in (plain, changed)
            ]
            assert shapes[0] != shapes[1], path
    if idle != config(name):
        assert traced(idle) == traced(config(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_reads_nothing_that_is_not_listed(name):
    listed = {field for field in FLOATS if f"objective.{field}" in config_lib.READS[name]}
    assert floats_read(config(name), evaluation=True) <= listed
    idle = config(name)
    for path in PATHS:
        if path.startswith(("objective.dis", "model.")) and path not in config_lib.READS[name]:
            idle = with_(idle, path, OTHER[path])
    assert traced(idle, evaluation=True) == traced(config(name), evaluation=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sharing", ["embeddings", "none", "gdes", "all"])
def test_rates_and_clipping_have_something_to_act_on_unless_they_are_named(name, sharing):
    c = with_(config(name), "model.sharing", sharing)
    if sharing == "all":
        c = with_(c, "model.generator", c.model.discriminator)
    try:
        c = config_lib.parse(config_lib.to_tree(c))
    except config_lib.ConfigError as error:
        assert "model.sharing" in str(error)
        return
    of = tiny_networks.objective(c)
    params = jax.eval_shape(of.init, jax.random.key(0))
    learning = [list(trees.flat(phase.trained(params))) for phase in of.phases]
    learns = [path for paths in learning for path in paths]
    tables = plans.peak_rates(c).tables
    networks = [{optimizer.network(path, tables) for path in paths} for paths in learning]
    acts = {
        "optimizer.gen_learning_rate": any("generator" in names for names in networks),
        "optimizer.disc_learning_rate": any("discriminator" in names for names in networks),
        "optimizer.disc_muon_learning_rate": any(
            optimizer.matrix_axes(path) and optimizer.network(path, tables) == "discriminator"
            for path in learns
        ),
        "optimizer.clip": any(len(names) == 2 for names in networks),
    }
    for path, does in acts.items():
        changed = with_(c, path, OTHER[path])
        assert bool([x for x in config_lib.unread(changed) if x.startswith(path)]) != does, path
        if path != "optimizer.clip":
            assert (plans.peak_rates(changed) == plans.peak_rates(c)) != does
        # A rate at which nothing learns would be logged as the run's.
        for rates in (changed, with_(changed, "optimizer.muon_learning_rate", 1.0)):
            peaks = plans.peak_rates(rates)
            shares = {round(peaks.share(path), 6) for path in learns}
            assert shares == {round(share, 6) for share in peaks.named().values()}, path


# What a run is told


WITHOUT_SIZE = ("continue_from_google_small", "hour", "modern_small", "tiny_paper")
OF_WEIGHTS = "continued"  # tests/weights/test_outline.py


@pytest.mark.parametrize("size", base.SIZES)
def test_a_configuration_of_the_package_is_told_nothing(size):
    known = {path.stem for path in (ROOT / "configs").glob("*.py")} - {
        "__init__",
        "continued",
        *WITHOUT_SIZE,
    }
    for file in sorted(file for file in known if not file.startswith("finetune")):
        get_config = importlib.import_module(f"configs.{file}").get_config
        arguments = {"two_stage": [f"{size},generator", f"{size},discriminator"]}.get(file, [size])
        for argument in [()] if file in base.SIZES else [(x,) for x in arguments]:
            assert config_lib.unread(config_lib.parse(get_config(*argument))) == [], file
    for file in WITHOUT_SIZE:
        whole = importlib.import_module(f"configs.{file}").get_config()
        assert config_lib.unread(config_lib.parse(whole)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_is_named_where_it_changes_nothing_and_nowhere_else(name):
    for path in PATHS:
        lines = config_lib.unread(with_(config(name), path, OTHER[path]))
        if path in config_lib.READS[name]:
            assert lines == config_lib.unread(config(name)), path
        else:
            value = f"{path}={OTHER[path]!r}"
            assert f"{value} changes nothing: {name} does not read it" in lines, path


@pytest.mark.parametrize(
    ("path", "value", "partner", "use"),
    [
        ("data.mixture_alpha", 0.5, "data.source", "text:a; text:b"),
        ("data.lower_case", False, "data.vocab", "a/vocab.txt"),
        ("data.strip_accents", False, "data.vocab", "a/spiece.model"),
        ("data.documents", "files", "data.source", "text:a"),
        ("data.single_segment_rate", 0.2, "data.rows", "pairs"),
        ("data.short_row_rate", 0.2, "data.rows", "pairs"),
        ("model.rotary_base", 500.0, "model.positions", "rotary"),
        ("model.global_every", 2, "model.local_window", 8),
        ("schedule.decay_power", 0.5, "schedule.shape", "linear"),
        ("schedule.decay_share", 0.2, "schedule.shape", "warmup_stable_decay"),
        ("schedule.spike_factor", 9.0, "schedule.on_spike", "skip"),
        ("init.weights", "raw", "init.from", "runs/a"),
        ("init.longer_positions", "fresh", "init.from", "runs/a"),
        ("model.dropout", 0.001, "model.dropout_bits", 32),
        ("model.attention_dropout", 0.0019, "model.dropout_bits", 32),
        ("logging.profile", (10**6, 10**6 + 1), "schedule.steps", 10**6),
    ],
)
def test_a_setting_that_needs_another_one_is_named_without_it(path, value, partner, use):
    without = {  # those of base are of use
        "data.rows": "packed", "data.source": "builtin", "data.vocab": "a/tokenizer.json",
        "schedule.shape": "cosine",
    }  # fmt: skip
    changed = {path: value} | {name: without[name] for name in without if name == partner}
    (line,) = config_lib.unread(_base_with(changed))
    assert line.startswith(f"{path}={value!r} changes nothing: it needs ") and partner in line
    assert config_lib.unread(_base_with({path: value, partner: use})) == []


def test_rotary_positions_are_not_made_longer():
    given = {"init.from": "runs/a", "init.longer_positions": "fresh"}
    (line,) = config_lib.unread(_base_with(given | {"model.positions": "rotary"}))
    assert "needs init.from or init.generator_from, and model.positions='learned'" in line
    assert config_lib.unread(_base_with(given)) == []


def test_the_positions_of_a_generator_that_is_taken_are_made_longer_too():
    given = {"init.generator_from": "runs/a", "init.longer_positions": "interpolated"}
    assert config_lib.unread(_base_with(given)) == []


def _base_with(values):
    tree = config_lib.to_tree(config_lib.parse(base.get_config()))
    for path, value in values.items():
        section, name = path.split(".")
        tree[section][name] = value
    return config_lib.parse(tree)


def test_a_masked_language_model_is_told_of_a_sharing_and_a_head_that_it_does_not_have():
    c = tiny_paper.get_config()
    c.objective.name = "masked_lm"
    c.model.sharing, c.model.discriminator_head = "gdes", "cls_context"
    assert sorted(config_lib.unread(config_lib.parse(c))) == [
        "model.discriminator_head='cls_context' changes nothing: masked_lm does not read it",
        "model.sharing='gdes' changes nothing: masked_lm does not read it",
    ]


def test_networks_of_one_shape_are_asked_only_of_what_has_two_networks():
    c = tiny_paper.get_config()
    c.objective.name, c.model.sharing = "unigram_generator", "all"
    c.model.generator.layers = 1
    config_lib.parse(c)
    c.objective.name = "replaced_token_detection"
    with pytest.raises(config_lib.ConfigError, match="needs networks of one shape"):
        config_lib.parse(c)


def test_the_table_of_the_page_is_reads():
    """docs/objectives.md: names in backticks; 'the same' is what the row above has."""
    page = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    of_all, table, *_ = page.split("## What each objective reads\n")[1].split("\n\n")
    every = {f"objective.{name}" for name in re.findall(r"`(\w+)`", of_all)} & {*PATHS}
    assert len(every) == 4  # which slots are chosen

    told, above = {}, ([], [])
    for line in table.splitlines()[2:]:
        names, *columns = (cell.strip() for cell in line.strip("|").split("|"))
        found = []
        for section, cell, before in zip(("objective", "model"), columns, above):
            known = {path.partition(".")[2] for path in PATHS if path.startswith(section)}
            written = [name for name in re.findall(r"`(\w+)`", cell) if name in known]
            if cell.startswith("the same"):
                written = [name for name in before if name not in written]  # "without `...`"
            found.append(written)
        above = found
        paths = {f"{s}.{name}" for s, part in zip(("objective", "model"), found) for name in part}
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), paths | every)

    assert told == {
        name: {path for path in paths if not path.startswith("optimizer.")}
        for name, paths in config_lib.READS.items()
    }
