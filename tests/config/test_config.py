# SPDX-License-Identifier: Apache-2.0
"""Settings are checked before anything is compiled or written, each error one line."""

import json

import pytest

from electra_jax import config as config_lib
from electra_jax.config import compiler_options, stages
from electra_jax.configs import finetune
from electra_jax.finetuning import config as finetuning_config
from support import workdirs
from support.corpus import ROOT, load_config, small_run

EVERY = (
    "base", "small", "large", "tiny", "tiny_paper", "modern_small", "continue_from_google_small",
    "hour",
)  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_every_config_file_is_complete_and_valid(name):
    config = config_lib.parse(load_config(name))
    assert config.name == name
    assert config_lib.parse(config_lib.to_tree(config)) == config


VARIANTS = {  # configs/NAME.py -> what makes it different, by path
    "masked_lm": {"objective.name": "masked_lm", "objective.random_token_rate": 0.1},
    "replace_mlm": {"objective.name": "replace_mlm"},
    "all_tokens_mlm": {"objective.name": "all_tokens_mlm"},
    "teams": {"objective.name": "multi_word_selection", "model.discriminator_head": "own_layer"},
    "corrective_lm": {"objective.name": "corrective_lm"},
    "electra_15": {"objective.name": "masked_token_detection"},
    "uniform_generator": {"objective.name": "uniform_generator"},
    "unigram_generator": {"objective.name": "unigram_generator"},
    "adversarial": {"objective.name": "adversarial_generator"},
    "generator_alone": {"objective.name": "masked_lm"},
    "fast_electra": {"objective.name": "frozen_generator", "objective.first_temperature": 2.0},
    "electric": {"objective.name": "electric"},
    "deberta_v3": {"objective.name": "decoupled_detection", "model.sharing": "gdes"},
}


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_config_of_every_size(name, size):
    config = config_lib.parse(load_config(name, size))
    flat = config_lib.flatten(config)
    assert {path: flat[path] for path in VARIANTS[name]} == VARIANTS[name]
    assert config.name == f"{name}_{size}"
    assert config.data.batch_size == load_config(size).data.batch_size


TUNING = ("finetune", "finetune_custom", "finetune_hour")


@pytest.mark.parametrize("name", TUNING)
def test_the_files_of_fine_tuning_are_complete_and_valid(name):
    config = finetuning_config.parse(load_config(name))
    assert config.name == name.removeprefix("finetune_")


def test_no_config_file_is_forgotten():
    names = {path.stem for path in (ROOT / "configs").glob("*.py")}
    assert names == {*EVERY, *VARIANTS, *TUNING, "two_stage", "continued"}


def test_the_modern_recipe_ends_with_longer_rows_and_as_many_tokens_a_step():
    """BERT's share, which is where the rate begins to fall."""
    config = config_lib.parse(load_config("modern_small"))
    short, long = stages.of(config)
    assert (short.sequence_length, long.sequence_length) == (128, 512)
    assert short.batch_size * 128 == long.batch_size * 512
    assert long.share == 1 - config.schedule.decay_share == 0.9
    assert stages.steps(config.schedule, (short, long)) == [900_000, 100_000]
    assert stages.begins(config.schedule)[1] % config.checkpoint.keep_every == 0  # to continue from
    assert config.model.positions == "rotary"  # so that no table would begin untrained there


def test_the_two_stages_are_one_shape():
    first, second = (
        config_lib.parse(load_config("two_stage", f"small,{stage}"))
        for stage in ("generator", "discriminator")
    )
    assert [first.objective.name, second.objective.name] == ["masked_lm", "frozen_generator"]
    assert first.model.discriminator == second.model.generator == second.model.discriminator


def test_an_unknown_size_is_named():
    with pytest.raises(ValueError, match="no size 'huge'; there are tiny, small, base, large"):
        load_config("masked_lm", "huge")


@pytest.mark.parametrize(
    ("name", "layers", "width", "generator", "length", "batch", "mask", "rate", "steps"),
    [  # table 6 of the paper
        ("small", 12, 256, 64, 128, 128, 0.15, 5e-4, 1_000_000),
        ("base", 12, 768, 256, 512, 256, 0.15, 2e-4, 766_000),
        ("large", 24, 1024, 256, 512, 2048, 0.25, 2e-4, 400_000),
    ],
)
def test_published_sizes(name, layers, width, generator, length, batch, mask, rate, steps):
    c = config_lib.parse(load_config(name))
    d, g = c.model.discriminator, c.model.generator
    assert (d.layers, d.width, d.heads, d.feed_forward) == (layers, width, width // 64, 4 * width)
    assert (g.layers, g.width, g.heads, g.feed_forward) == (
        layers,
        generator,
        generator // 64,
        4 * generator,
    )
    assert (c.data.sequence_length, c.data.batch_size) == (length, batch)
    assert (c.objective.mask_rate, c.optimizer.learning_rate) == (mask, rate)
    assert (c.schedule.steps, c.schedule.warmup_steps) == (steps, 10_000)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("data.sequence_length", 4, "data.sequence_length=4 is outside [8, 65536]"),
        ("data.rows", "pares", "data.rows='pares' is not one of 'pairs', 'packed'"),
        ("data.heldout_fraction", 0.9, "data.heldout_fraction=0.9 is outside [1e-06, 0.5]"),
        ("data.source", " ", "data.source is empty"),
        ("model.dtype", "float16", "model.dtype='float16' is not one of"),
        ("model.discriminator.heads", 5, "width=32 is not divisible by heads=5; try width=30"),
        (
            "model.max_positions",
            16,
            "data.sequence_length=32 is longer than model.max_positions=16",
        ),
        ("objective.mask_rate", 0.0, "objective.mask_rate=0.0 is outside [0.001, 0.9]"),
        ("optimizer.name", "adam", "optimizer.name='adam' is not one of"),
        ("optimizer.learning_rate", float("nan"), "optimizer.learning_rate=nan is outside [0, 10]"),
        ("schedule.steps", 0, "schedule.steps=0 is outside [1, 2147483647]"),
        ("schedule.accumulation", 3, "data.batch_size=8 is not divisible by schedule.accumulation"),
        ("mesh.fsdp", 0, "mesh.fsdp=0 must be positive"),
        ("mesh.slices", -1, "mesh.slices=-1 is outside [0, 65536]"),
        (
            "mesh.compiler_options",
            "fast",
            "mesh.compiler_options='fast': 'fast' is not NAME=VALUE with a name of XLA's; try",
        ),
        (
            "mesh.compiler_options",
            "xla_a=1 xla_a=2",
            "mesh.compiler_options='xla_a=1 xla_a=2' names xla_a twice",
        ),
        ("checkpoint.keep_last", 0, "checkpoint.keep_last=0 is outside [1, 10000]"),
        ("seed", "1", "seed='1' is of type str, not of type int"),
        ("data.lower_case", 1, "data.lower_case=1 is of type int, not of type bool"),
        ("data", 3, "data is a section, not 3"),
    ],
)
def test_a_bad_value_is_named_with_its_bound(path, value, message):
    tree = small_run("builtin", "").to_dict()
    *sections, name = path.split(".")
    node = tree
    for section in sections:
        node = node[section]
    node[name] = value
    with pytest.raises(config_lib.ConfigError) as error:
        config_lib.parse(tree)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_best_checkpoint_is_told_by_a_metric_that_each_of_them_has():
    for path, value, message in (
        ("checkpoint__keep_best", "gen_loss", "'gen_loss' is not one of '', 'loss', 'gen_masked"),
        ("checkpoint__keep_best", "mlm_masked_loss", "is no metric of objective.name='replaced_"),
        ("evaluation__every", 15, "every=100 is no multiple of evaluation.every=15; try eval"),
    ):
        settings = {"checkpoint__keep_best": "disc_auc", "checkpoint__every": 100}
        tree = small_run("builtin", "", **settings | {"evaluation__every": 50, path: value})
        with pytest.raises(config_lib.ConfigError, match=message):
            config_lib.parse(tree)


TALLER = dict(layers=2, width=32, heads=2, feed_forward=64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(model__sharing="none"), "needs model.sharing='embeddings', not 'none'; set it to 0"),
        (dict(model__shared_layers=2), "=2 is more than 1: a generator of 2 layers needs one of"),
        (
            dict(model__discriminator=TALLER | dict(width=48)),
            r"number of layers alone, not Network\(layers=2, width=32, .* and .*48, .*; give model",
        ),
        (
            dict(init__from="runs/a", init__missing_generator="discriminator"),
            "no place for a generator's own lowest layers, which init.generator_from and",
        ),
        (
            dict(objective__name="replaced_token_detection"),
            "own_layer' leaves the encoder's last layer untrained with objective.name='replaced_",
        ),
        (
            dict(objective__selection_weight=0.0),
            "own_layer' leaves the encoder's last layer untrained with objective.selection_weight",
        ),
    ],
)
def test_what_does_not_go_with_shared_layers_or_a_layer_for_detection_alone(settings, message):
    tree = small_run("builtin", "", **workdirs.TEAMS | settings)
    with pytest.raises(config_lib.ConfigError, match=message):
        config_lib.parse(tree)


def test_copies_of_the_model_are_shared_out_evenly_over_slices():
    tree = small_run("builtin", "", mesh__data=3, mesh__slices=2)
    with pytest.raises(config_lib.ConfigError, match="mesh.data=3 copies .* mesh.slices=2; set"):
        config_lib.parse(tree)


def test_compiler_options_have_the_types_that_the_compiler_takes():
    found = compiler_options.parse("xla_a=true  xla_b=False xla_c=-3 xla_d=a=b")
    assert found == {"xla_a": True, "xla_b": False, "xla_c": -3, "xla_d": "a=b"}
    assert compiler_options.parse("") == {}


def test_an_unknown_field_gets_the_nearest_name():
    tree = small_run("builtin", "").to_dict()
    tree["optimizer"]["learnin_rate"] = 1e-3
    with pytest.raises(config_lib.ConfigError, match="did you mean 'learning_rate'"):
        config_lib.parse(tree)


def test_a_missing_field_is_named():
    tree = small_run("builtin", "").to_dict()
    del tree["model"]["generator"]["width"]
    with pytest.raises(config_lib.ConfigError, match="field model.generator.width is missing"):
        config_lib.parse(tree)


def test_what_a_saved_tree_lacks_came_later_and_is_as_in_base():
    tree = small_run("builtin", "", model__scan="on").to_dict()
    config = config_lib.parse(tree)
    del tree["model"]["residual_norm"], tree["data"]["documents"], tree["init"]
    assert config_lib.parse_saved(tree) == config
    tree["model"]["scna"] = tree["model"].pop("scan")  # not a field that came later
    with pytest.raises(config_lib.ConfigError, match="did you mean 'scan'"):
        config_lib.parse_saved(tree)


def test_the_same_of_a_fine_tuning():
    tree = finetune.get_config().to_dict()
    config = finetuning_config.parse(tree)
    del tree["run"]["remat"], tree["span"]
    assert finetuning_config.parse_saved(tree) == config


@pytest.mark.parametrize("steps", [(3,), (0, 2), (5, 4), (1.0, 2.0), ("1", "2")])
def test_a_profile_is_a_first_and_a_last_step(steps):
    tree = small_run("builtin", "", logging__profile=steps)
    with pytest.raises(config_lib.ConfigError, match="logging.profile=.* try"):
        config_lib.parse(tree)


def test_a_profile_survives_config_json():
    config = config_lib.parse(small_run("builtin", "", logging__profile=(2, 3)))
    assert config_lib.parse(json.loads(config_lib.to_json(config))) == config


def test_what_a_continuation_may_change():
    old = config_lib.parse(small_run("builtin", ""))
    new = config_lib.parse(
        small_run("builtin", "", schedule__steps=9, mesh__fsdp=2, optimizer__beta1=0.8)
    )
    allowed, refused = config_lib.differences(old, new)
    assert allowed == ["schedule.steps: 6 -> 9", "mesh.fsdp: 1 -> 2"]
    assert refused == ["optimizer.beta1: 0.9 -> 0.8"]
