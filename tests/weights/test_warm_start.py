# SPDX-License-Identifier: Apache-2.0
"""Two-stage training and Fast-ELECTRA with real runs: weights move from one to the next."""

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.report import writers
from electra_jax.speed import dry_run
from electra_jax.weights import exporting, reading, starting_checks
from electra_jax.workdir import metadata
from support.corpus import small_run
from support.workdirs import begin

SHAPE = dict(layers=1, width=32, heads=2, feed_forward=64)


def stage(text, **overrides):
    config = small_run(*text, schedule__steps=2, evaluation__every=2, **overrides)
    config.model.discriminator.update(**SHAPE)
    config.model.generator.update(**SHAPE)
    return config


@pytest.fixture(scope="module")
def first(text, tmp_path_factory):
    """A masked language model of two steps: (workdir, final metrics)."""
    workdir = tmp_path_factory.mktemp("first")
    config = stage(
        text, objective__name="masked_lm", objective__random_token_rate=0.1,
        logging__report_every=1000,
    )  # fmt: skip
    return workdir, electra_jax.train(config, workdir)


@pytest.fixture(scope="module")
def second(text, first, tmp_path_factory):
    """Its weights in both networks, the generator frozen, no rate: (workdir, final metrics)."""
    workdir = tmp_path_factory.mktemp("second")
    config = stage(
        text, objective__name="frozen_generator", model__sharing="none",
        init__generator_from=str(first[0]), optimizer__learning_rate=0.0,
    )  # fmt: skip
    config.init["from"] = str(first[0])
    return workdir, electra_jax.train(config, workdir)


def leaves(workdir):
    """{path: digest} of the parameters of the last checkpoint."""
    digest = metadata.read(f"{workdir}/checkpoints/2")["digest"]
    return {path[7:]: x for path, x in digest.items() if path.startswith("params/")}


def test_a_run_without_discriminator_has_its_own_metrics(first):
    workdir, final = first
    assert final["mlm_masked_loss"] > 0 and "unigram_entropy" in final
    assert not [name for name in final if name.startswith(("disc_", "gen_"))]
    rows = writers.read(f"{workdir}/metrics.jsonl")
    assert {"mlm_loss", "mlm_accuracy", "loss"} <= set(rows[0])
    assert rows[0]["loss"] == pytest.approx(rows[0]["mlm_loss"])
    page = (workdir / "report.html").read_text()
    assert "mlm_masked_loss" in page


def test_the_second_stage_begins_with_the_first_ones_weights_in_both_networks(first, second):
    before, after = leaves(first[0]), leaves(second[0])
    for path, digest in before.items():
        part, _, rest = path.partition("/")
        if part == "embeddings":
            assert after[f"embeddings/{rest}"] == after[f"generator/embeddings/{rest}"] == digest
        elif rest.startswith(("encoder/", "projection/")):
            assert after[f"discriminator/{rest}"] == after[f"generator/{rest}"] == digest
        else:
            assert after[f"generator/{rest}"] == digest  # the head that predicts
            assert rest.startswith("head/")


def test_the_frozen_generator_is_as_good_as_it_was(first, second):
    """Its samples come from the network that was trained; masks alone differ in 80/10/10."""
    was, now = first[1]["mlm_masked_loss"], second[1]["gen_masked_loss"]
    assert now == pytest.approx(was, rel=0.02)


def test_a_generator_of_another_shape_is_refused(text, first, tmp_path):
    config = stage(
        text, objective__name="frozen_generator", model__sharing="none",
        init__generator_from=str(first[0]),
    )  # fmt: skip
    config.model.generator.width = 16
    with pytest.raises(config_lib.ConfigError, match="has no generator of this shape: generator/"):
        electra_jax.train(config, tmp_path)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("a workdir", {"model__discriminator__feed_forward": 48}),
        ("a checkpoint", {"model__discriminator__feed_forward": 48}),
        ("orbax", {"model__discriminator__feed_forward": 48}),
        ("hugging_face", {"model__discriminator__layers": 2}),
        ("a workdir", {"model__sharing": "all"}),  # one encoder for both stands elsewhere
    ],
)
def test_an_encoder_of_another_shape_is_refused_before_text_is_prepared(
    text, first, tmp_path, kind, change
):
    weights = {"a workdir": first[0], "a checkpoint": first[0] / "checkpoints" / "2"}.get(kind)
    if weights is None:
        weights = tmp_path / "export"
        exporting.write(reading.open(first[0]), str(weights), kind)

    config = stage(text, data__dir=str(tmp_path / "data"))
    for path, value in change.items():
        section, *fields = path.split("__")
        node = config[section] if len(fields) == 1 else config[section][fields[0]]
        node[fields[-1]] = value
    config.init["from"] = str(weights)
    with pytest.raises(config_lib.ConfigError, match="no encoder of this shape: .* give model"):
        electra_jax.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists() and not (tmp_path / "data").exists()


FROZEN = {"objective__name": "frozen_generator", "model__sharing": "none"}


@pytest.mark.parametrize(
    ("named", "width", "settings", "message"),
    [
        ("generator_from", 16, FROZEN, "has no generator of this shape: generator/encoder/"),
        (
            "from",
            16,
            {"init__missing_generator": "discriminator"},
            "init.missing_generator='discriminator': .* give model.generator the discriminator's",
        ),
        ("from", 32, {"init__weights": "ema"}, "init.weights='ema', but .* holds no averages"),
        (
            "from",
            32,
            {"init__optimizer": "restored", "optimizer__name": "adamw"},
            "was trained with optimizer.name='reference_adamw', not 'adamw'",
        ),
        (None, 32, {"model__attention": "fused"}, "model.attention='fused'"),
    ],
)
def test_what_settings_and_metadata_tell_is_refused_before_text_is_prepared(
    text, first, tmp_path, named, width, settings, message
):
    config = stage(text, data__dir=str(tmp_path / "data"), **settings)
    config.model.generator.width = width
    if named:
        config.init[named] = str(first[0])
        with pytest.raises(config_lib.ConfigError, match=message):
            dry_run.text(config_lib.parse(config), str(tmp_path / "run"))
    with pytest.raises(config_lib.ConfigError, match=message):
        electra_jax.train(config, tmp_path / "run")
    assert not (tmp_path / "data").exists()


def test_a_generator_that_the_discriminator_can_become_is_not_refused(text, first):
    config = stage(text, init__missing_generator="discriminator")
    config.init["from"] = str(first[0])
    starting_checks.check_shapes(config_lib.parse(config))
    config.model.generator.layers = 4  # more than the discriminator has
    with pytest.raises(config_lib.ConfigError, match="at most as many layers"):
        starting_checks.check_shapes(config_lib.parse(config))


def test_weights_of_other_text_need_their_vocabulary(text, first, tmp_path):
    """Known before that text is read: another vocabulary would be trained on it."""
    for source, refused in ((text[0], False), ("text:elsewhere/*.txt", True)):
        config = small_run(source, str(tmp_path), init__from=str(first[0]))
        try:
            starting_checks.check_vocabularies(config_lib.parse(config))
        except config_lib.ConfigError as error:
            assert refused and f"give data.vocab='{first[0]}/vocab', or" in str(error)
        else:
            assert not refused


def test_a_workdir_without_a_checkpoint_is_no_beginning(tmp_path):
    begin(tmp_path / "run", small_run("builtin", ""))
    init = config_lib.parse(small_run("builtin", "", init__from=str(tmp_path / "run"))).init
    with pytest.raises(config_lib.ConfigError, match="is a workdir without a checkpoint; train it"):
        starting_checks.check_paths(init)


def test_a_step_is_asked_of_a_workdir_alone(first, tmp_path):
    exporting.write(reading.open(first[0]), str(tmp_path / "export"), "orbax")
    assert reading.open(first[0], step=2).step == 2
    assert reading.open(first[0] / "checkpoints" / "2", step=2).step == 2
    for path, step in ((tmp_path / "export", 2), (first[0] / "checkpoints" / "2", 1)):
        with pytest.raises(config_lib.ConfigError, match=f"step={step}.* leave it out"):
            reading.open(path, step=step)


def test_a_folder_without_weights_is_refused(text, tmp_path):
    config = stage(text, init__generator_from=str(tmp_path / "nowhere"))
    with pytest.raises(config_lib.ConfigError, match="init.generator_from='.*nowhere' is neither"):
        electra_jax.train(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective__name": "frozen_generator"}, "model.sharing='embeddings' does not go with"),
        (
            {"objective__name": "frozen_generator", "model__sharing": "none"},
            "needs a trained generator; give init.generator_from",
        ),
        ({"objective__random_token_rate": 0.5}, "make 1.35, more than 1"),
        ({"objective__name": "bert"}, "objective.name='bert' is not one of"),
    ],
)
def test_what_does_not_go_together_is_refused(text, settings, message):
    with pytest.raises(config_lib.ConfigError, match=message):
        config_lib.parse(stage(text, **settings))


def test_one_encoder_needs_one_shape(text):
    config = stage(text, model__sharing="all")
    config_lib.parse(config)
    config.model.generator.layers = 2
    with pytest.raises(config_lib.ConfigError, match="needs networks of one shape"):
        config_lib.parse(config)


def test_a_setting_that_the_objective_does_not_read_is_named(text):
    config = stage(text, objective__name="masked_lm", objective__disc_weight=7.0)
    assert config_lib.unread(config_lib.parse(config)) == [
        "objective.disc_weight=7.0 changes nothing: masked_lm does not read it"
    ]
    assert config_lib.unread(config_lib.parse(stage(text))) == []
