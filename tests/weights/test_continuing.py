# SPDX-License-Identifier: Apache-2.0
"""Going on from somebody's weights, with real runs: moments, vocabulary, positions, generator."""

import dataclasses
import json
import re
import shutil
import time
import types

import jax
import numpy as np
import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.data import pipeline
from electra_jax.step import plans
from electra_jax.training import (
    feed,
    heldout_evaluation,
    run_data,
    runs,
    speed_clock,
    trained_run,
)
from electra_jax.weights import (
    checkpoint,
    exporting,
    importing,
    reading,
    starting_weights,
    warm_start,
)
from electra_jax.weights.formats import google as google_reader
from electra_jax.workdir import metadata
from support import google_layouts, tensorflow_writer
from support.corpus import ROOT, small_run

GOLDEN = ROOT / "tests" / "golden"


def begin(tmp_path, text, source, **overrides):
    """A run before its first step, from the weights of `source`."""
    tree = small_run(*text, **overrides)
    tree.init["from"] = str(source)
    return runs.start(config_lib.parse(tree), str(tmp_path / "run"))


def refused(tmp_path, text, source, **overrides):
    with pytest.raises(config_lib.ConfigError) as error:
        begin(tmp_path, text, source, **overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def digest(path, part):
    leaves = metadata.read(path)["digest"]
    return {name: x for name, x in leaves.items() if name.startswith(f"{part}/")}


def test_restored_moments_take_the_next_steps_of_a_run_that_never_stopped(text, finished, tmp_path):
    """Rows and noise go by the counters, which begin anew; set as they were, nothing differs."""
    saved = finished[0] / "checkpoints"
    run = begin(tmp_path, text, saved / "2", init__optimizer="restored")
    assert int(run.state.step) == 0
    assert checkpoint.digest({"optimizer": run.state.optimizer}) == digest(saved / "2", "optimizer")
    rows_seen, step = 2 * run.config.data.batch_size, run.state.step + 2
    state = dataclasses.replace(
        run.state, step=step, rows_seen=run.state.rows_seen.at[0].set(rows_seen)
    )
    order, length = (
        pipeline.Order(run.stage.records, run.config.seed),
        run.config.data.sequence_length,
    )
    with feed.Feed(order, run.mesh, rows_seen, run.config.data.batch_size, length) as lanes:
        for _ in range(2):
            state, _ = run.stage.update(state, next(lanes))
    for part in ("params", "optimizer"):
        assert checkpoint.digest({part: getattr(state, part)}) == digest(saved / "4", part)


def test_by_default_the_optimizer_begins_fresh(text, finished, tmp_path):
    run = begin(tmp_path, text, finished[0])
    assert not any(np.any(x) for x in jax.tree.leaves(run.state.optimizer))
    same = digest(finished[0] / "checkpoints" / "6", "params")
    assert checkpoint.digest({"params": run.state.params}) == same


def evaluated(workdir):
    """{step: held-out metrics} of a run, as it wrote them."""
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {row.pop("step"): row for row in rows if row["kind"] == "eval"}


def test_weights_are_evaluated_before_the_first_step(text, finished, tmp_path):
    """Only beside it can be told what a run has gained and, of another text, what is forgotten."""
    tree = small_run(*text, schedule__steps=2, evaluation__every=2)
    tree.init["from"] = str(finished[0])
    electra_jax.train(config_lib.parse(tree), tmp_path)
    found = evaluated(tmp_path)
    assert list(found) == [0, 2]
    trained = evaluated(finished[0])[6]
    differ = {name for name in trained if trained[name] != found[0][name]}
    assert differ == {"tokens_seen"} and found[0]["tokens_seen"] == 0

    # Another start of the same run does not do it again.
    electra_jax.train(config_lib.parse(tree), tmp_path)
    assert list(evaluated(tmp_path)) == [0, 2]


def test_what_a_start_without_a_checkpoint_has_evaluated_is_not_kept(text, finished, tmp_path):
    """It may have been other weights: `init` may change until there is a checkpoint."""
    tmp_path.joinpath("metrics.jsonl").write_text('{"step": 0, "kind": "eval", "disc_loss": 99}\n')
    tree = small_run(*text, schedule__steps=2, evaluation__every=2)
    tree.init["from"] = str(finished[0])
    electra_jax.train(tree, tmp_path)
    assert len(tmp_path.joinpath("metrics.jsonl").read_text().splitlines()) == 3
    assert evaluated(tmp_path)[0]["disc_loss"] == evaluated(finished[0])[6]["disc_loss"]


def test_the_time_of_the_first_step_is_without_the_evaluation_before_it(
    text, finished, tmp_path, monkeypatch
):
    late = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + late[0])
    monkeypatch.setattr(speed_clock, "time", clock)
    evaluate = heldout_evaluation.HeldOutEvaluation.metrics

    def slow(self):
        late[0] += 10_000
        return evaluate(self)

    monkeypatch.setattr(heldout_evaluation.HeldOutEvaluation, "metrics", slow)
    tree = small_run(*text, schedule__steps=1)
    tree.init["from"] = str(finished[0])
    electra_jax.train(tree, tmp_path)
    log = (tmp_path / "log.txt").read_text()
    assert float(re.search(r"first step after (\S+) s", log)[1]) < 10_000


def test_fresh_weights_are_not_evaluated(finished):
    assert list(evaluated(finished[0])) == [6]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (dict(optimizer__name="adamw"), "was trained with optimizer.name='reference_adamw', not"),
        (dict(objective__name="decoupled_detection"), "was trained in the phases joint, this"),
    ],
)
def test_moments_of_something_else_are_refused(text, finished, tmp_path, overrides, message):
    run = begin(tmp_path, text, finished[0])
    tree = small_run(*text, init__optimizer="restored", **overrides)
    tree.init["from"] = str(finished[0])
    config = config_lib.parse(tree)
    phases = plans.make_objective(config, run.vocabulary, run.stage.records.unigram()[0]).phases
    other = starting_weights.FreshRun(
        config.init, config.optimizer.name, run.state, phases, run.vocabulary, run.mesh
    )
    with pytest.raises(config_lib.ConfigError, match=message) as error:
        warm_start.state(other)
    assert "init.optimizer='fresh'" in str(error.value)


@pytest.fixture(scope="module")
def alone(finished, tmp_path_factory):
    """An export of the discriminator, without a generator."""
    out = tmp_path_factory.mktemp("export") / "alone"
    exporting.to_orbax(reading.open(finished[0]), str(out), only="discriminator")
    return out


def test_weights_without_moments_are_refused(text, alone, tmp_path):
    found = refused(tmp_path, text, alone, init__optimizer="restored")
    assert found.endswith("holds no moments; use 'fresh'")


def test_a_missing_generator_is_the_discriminators_lowest_layers(text, alone, tmp_path):
    source = reading.open(alone).params["discriminator"]
    shape = dict(layers=1, width=32, heads=2, feed_forward=64)
    run = begin(
        tmp_path, text, alone, init__missing_generator="discriminator", model__generator=shape
    )
    ours = run.state.params["generator"]
    for path, x in trees.flat(ours["encoder"]).items():
        np.testing.assert_array_equal(x, trees.flat(source["encoder"])[path][:1])
    np.testing.assert_array_equal(ours["projection"]["kernel"], source["projection"]["kernel"])
    assert not np.any(ours["head"]["bias"])


def test_a_generator_of_another_shape_has_no_layers_there(text, alone, tmp_path):
    found = refused(tmp_path, text, alone, init__missing_generator="discriminator")
    assert found.startswith("init.missing_generator='discriminator': init.from=")
    assert "give model.generator the discriminator's shape and at most as many layers" in found


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (dict(init__new_tokens="mean"), "init.new_tokens='mean' changes nothing without weights"),
        (dict(init__optimizer="restored"), "init.optimizer='restored' changes nothing without"),
        (dict(init__longer_positions="both"), "is not one of 'copied', 'interpolated', 'fresh'"),
        (
            dict(init__missing_generator="discriminator", init__from="x", model__sharing="all"),
            "it has the discriminator's encoder already",
        ),
        (
            dict(
                init__missing_generator="discriminator", init__from="x", objective__name="masked_lm"
            ),
            "objective.name='masked_lm' has no generator",
        ),
    ],
)
def test_a_setting_without_anything_to_act_on_is_refused(overrides, message):
    tree = small_run("builtin", "")
    for path, value in overrides.items():
        section, _, name = path.partition("__")
        tree[section][name] = value
    if tree.model.sharing == "all":
        tree.model.generator = tree.model.discriminator
    with pytest.raises(config_lib.ConfigError, match=re.escape(message)):
        config_lib.parse(tree)


def test_held_out_metrics_are_the_same_after_there_and_back(text, finished, tmp_path):
    """Evaluated, converted to Hugging Face, back to a workdir, evaluated again."""
    workdir, final = (
        finished[0],
        {name: x for name, x in finished[1].items() if name != "tokens_seen"},
    )
    exporting.to_hugging_face(reading.open(workdir), str(tmp_path / "folder"))
    recipe = config_lib.parse(small_run(*text))
    importing.to_workdir(str(tmp_path / "folder"), recipe, str(tmp_path / "back"))
    config = reading.open(tmp_path / "back").config
    run_data.prepare(config, str(tmp_path / "back"))
    again = trained_run.evaluate(trained_run.open(config, str(tmp_path / "back")))
    assert set(again) == set(final) and "disc_auc" in again
    assert {name: again[name] for name in final if final[name] != again[name]} == {}


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg")
MORE = (*WORDS, "ab", "##b", "hat")  # a and ##b; nothing of these is in WORDS but a and b


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    """A folder as Google's archives have it, and text of its letters: (folder, source, data)."""
    base = tmp_path_factory.mktemp("google")
    for path in GOLDEN.glob("google_tiny.*"):
        shutil.copy(path, base)
    (base / "vocab.txt").write_text("\n".join(WORDS))
    (base / "more.txt").write_text("\n".join(MORE))
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(list("abcdefg") + ["ab", "hat"], 12)) for _ in range(200)]
    (base / "text").write_text("\n\n".join(lines))
    return base, f"text:{base}/text", str(base / "data")


def tiny(google, **overrides):
    """The settings of google_tiny."""
    base, source, data = google
    tree = small_run(source, data, schedule__steps=2, evaluation__every=2)
    tree.data.update(vocab=str(base / "vocab.txt"), sequence_length=8)
    tree.model.update(embedding_size=4, max_positions=8)
    tree.model.discriminator.update(layers=2, width=8, heads=1, feed_forward=32)
    tree.model.generator.update(layers=2, width=4, heads=1, feed_forward=16)
    tree.init["from"] = str(base)
    for path, value in overrides.items():
        section, _, name = path.partition("__")
        tree[section][name] = value
    return tree


def table(name, slot=""):
    shape = google_layouts.pretraining(**google_layouts.TINY)[name + slot][1]
    return tensorflow_writer.value_of(name + slot, "float32", shape)


@pytest.fixture(scope="module")
def grown(google):
    """Settings that continue with more words, more positions and Google's moments."""
    base = google[0]
    return tiny(
        google,
        data__vocab=str(base / "more.txt"), data__sequence_length=16, model__max_positions=16,
        init__new_tokens="mean", init__optimizer="restored",
    )  # fmt: skip


def test_googles_tables_grow(grown, tmp_path):
    run = runs.start(config_lib.parse(grown), str(tmp_path))
    token, old = (
        run.state.params["embeddings"]["token"],
        table("electra/embeddings/word_embeddings"),
    )
    np.testing.assert_array_equal(token[:12], old)
    np.testing.assert_allclose(token[13], old[6])  # ##b is the text b
    np.testing.assert_allclose(token[12], old[5:].mean(0), rtol=1e-6)  # ab, hat: nothing of them
    np.testing.assert_allclose(token[14], old[5:].mean(0), rtol=1e-6)
    position = run.state.params["embeddings"]["position"]
    old = table("electra/embeddings/position_embeddings")
    np.testing.assert_array_equal(position, np.concatenate([old, old]))
    bias, old = (
        run.state.params["generator"]["head"]["bias"],
        table("generator_predictions/output_bias"),
    )
    np.testing.assert_array_equal(bias[:12], old)
    assert bias[13] == old[6]
    moments = trees.flat(run.state.optimizer)
    old = table("electra/embeddings/word_embeddings", "/adam_v")
    np.testing.assert_array_equal(moments["1/nu/embeddings/token"][:12], old)
    assert not np.any(moments["1/nu/embeddings/token"][12:])
    assert not np.any(moments["1/mu/embeddings/position"][8:])
    old = table("discriminator_predictions/dense/kernel", "/adam_m")
    np.testing.assert_array_equal(moments["1/mu/discriminator/head/dense/kernel"], old)


def test_a_run_goes_on_from_google_with_more_words(grown, tmp_path):
    final = electra_jax.train(grown, tmp_path)
    assert np.isfinite(final["loss"]) and np.isfinite(final["gen_masked_loss"])
    log = (tmp_path / "log.txt").read_text()
    for line in (
        "of 15 tokens here 12 tokens keep their rows, 1 begin as the mean of their old sub-tokens,"
        " 2 as the mean of all; 0 old ones are gone",
        "embeddings/position: 8 positions become 16, copied",
        "the optimizer continues with the moments of init.from=",
    ):
        assert line in log
    assert "; fresh:" not in log


@pytest.mark.parametrize("has_generator", [True, False])
def test_a_converted_workdir_goes_on_as_the_folder_does(
    google, tmp_path, monkeypatch, has_generator
):
    """With Google's moments: the first state and that after two steps are the same."""
    if not has_generator:
        read = google_reader.read
        monkeypatch.setattr(
            google_reader,
            "read",
            lambda tensors: read({n: tensors[n] for n in tensors if not n.startswith("generator")}),
        )
    recipe = config_lib.parse(tiny(google, init__optimizer="restored"))
    importing.to_workdir(str(google[0]), recipe, str(tmp_path / "run"))
    config = reading.open(tmp_path / "run").config
    init = dataclasses.replace(config.init, from_=str(google[0]))
    ends = []
    for settings, name in (
        (config, "run"), (dataclasses.replace(config, init=init), "straight")
    ):  # fmt: skip
        state = runs.start(settings, str(tmp_path / name)).state
        moments = trees.flat(state.optimizer)
        old = table("discriminator_predictions/dense/kernel", "/adam_m")
        np.testing.assert_array_equal(moments["1/mu/discriminator/head/dense/kernel"], old)
        assert np.any(moments["1/nu/generator/head/bias"]) == has_generator
        electra_jax.train(settings, tmp_path / name)
        last = tmp_path / name / "checkpoints" / "2"
        ends.append(
            checkpoint.digest({"params": state.params, "optimizer": state.optimizer})
            | {"after": digest(last, "params") | digest(last, "optimizer")}
        )
    assert ends[0] == ends[1]


def test_moments_that_are_not_there_cannot_be_converted(google, finished, tmp_path):
    exporting.to_hugging_face(reading.open(finished[0]), str(tmp_path / "folder"))
    recipe = config_lib.parse(tiny(google, init__optimizer="restored"))
    for source, settings, message in (
        (tmp_path / "folder", recipe, "holds no moments; use 'fresh'$"),
        (google[0], other_optimizer(recipe), "was trained with optimizer.name='reference_adamw'"),
    ):
        with pytest.raises(config_lib.ConfigError, match=message) as error:
            importing.to_workdir(str(source), settings, str(tmp_path / "run"))
        assert f"--from={source}" in str(error.value) and "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def other_optimizer(config):
    return dataclasses.replace(
        config, optimizer=dataclasses.replace(config.optimizer, name="adamw")
    )


def test_another_vocabulary_is_refused_and_the_setting_is_offered(grown, tmp_path):
    tree = config_lib.parse(grown)
    tree = dataclasses.replace(tree, init=dataclasses.replace(tree.init, new_tokens="refuse"))
    with pytest.raises(config_lib.ConfigError, match="another vocabulary: init.new_tokens='mean'$"):
        runs.start(tree, str(tmp_path))


def test_a_workdir_whose_vocabulary_is_gone_cannot_grow(text, finished, tmp_path):
    """Its hash is in the checkpoint, its pieces are not."""
    shutil.copytree(finished[0] / "checkpoints", tmp_path / "old" / "checkpoints")
    overrides = dict(data__vocab="train:sentencepiece:66", init__new_tokens="mean")
    kept = begin(tmp_path, text, tmp_path / "old", **overrides)  # data.dir still has it
    assert kept.state.params["embeddings"]["token"].shape == (128, 16)
    shutil.move(text[1], tmp_path / "elsewhere")
    try:
        found = refused(tmp_path, (text[0], str(tmp_path / "new")), tmp_path / "old", **overrides)
    finally:
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        shutil.move(tmp_path / "elsewhere", text[1])
    assert "which is gone; copy the folder vocab of its prepared data to" in found


def test_a_generator_of_googles_is_taken_alone(google, grown, tmp_path):
    """Its tables grow; the discriminator begins fresh."""
    tree = config_lib.parse(grown)
    init = dataclasses.replace(
        tree.init, from_="", generator_from=str(google[0]), optimizer="fresh"
    )
    params = runs.start(dataclasses.replace(tree, init=init), str(tmp_path)).state.params
    token, old = params["embeddings"]["token"], table("electra/embeddings/word_embeddings")
    np.testing.assert_array_equal(token[:12], old)
    scale = "layer_1/output/LayerNorm/gamma"
    generator, main = (params[name]["encoder"]["feed_forward"]["norm"]["scale"][1]
                       for name in ("generator", "discriminator"))  # fmt: skip
    np.testing.assert_array_equal(generator, table(f"generator/encoder/{scale}"))
    np.testing.assert_array_equal(main, np.ones(8))
