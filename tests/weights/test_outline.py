# SPDX-License-Identifier: Apache-2.0
"""`configs/continued.py`: a run goes on from weights of every kind with their shapes and words."""

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from electra_jax import config as config_lib
from electra_jax.data import planning
from electra_jax.step import plans, train_step
from electra_jax.weights import (
    exporting,
    importing,
    outline,
    reading,
    starting_checks,
    starting_weights,
    warm_start,
)
from electra_jax.workdir import saved_config
from support import bert_folder, commands, corpus, odd, workdirs

ONE_SHAPE = dict(layers=2, width=32, heads=2, feed_forward=64)  # as the discriminator's
MODERN = {f"model__{name}": value for name, value in odd.MODERN.items()}
PREDICTS = dict(objective__name="masked_lm")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return workdirs.small_vocabulary(tmp_path_factory.mktemp("words"))


def workdir(folder, words, **overrides):
    workdirs.made(folder / "run", words, **overrides)
    return folder / "run"


def export(kind, only=None, **overrides):
    def write(folder, words):
        found = reading.open(workdir(folder, words, **overrides))
        out = folder / "out"
        out.mkdir()
        getattr(exporting, kind)(found, str(out), only)
        return out

    return write


def run_of(**overrides):
    return lambda folder, words: workdir(folder, words, **overrides)


def checkpoint(folder, words):
    return workdir(folder, words) / "checkpoints" / str(workdirs.STEP)


def bert(form):
    return lambda folder, _: bert_folder.write(folder / "bert", form)


def google(folder, _):
    for path in (corpus.ROOT / "tests" / "golden").glob("google_tiny.*"):
        shutil.copy(path, folder)
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg")
    (folder / "vocab.txt").write_text("\n".join(pieces))
    return folder


NOTHING, HEAD, GENERATORS = set(), {"discriminator/head"}, {"generator/head"}
SELECTION = {"discriminator/selection"}
KINDS = {  # name -> (writes the weights, what begins fresh)
    "a run": (run_of(), NOTHING),
    "a checkpoint": (checkpoint, NOTHING),
    "a modern run": (run_of(**MODERN), NOTHING),
    "one trunk": (run_of(model__sharing="all", model__generator=ONE_SHAPE), NOTHING),
    "two tables": (run_of(model__sharing="none"), NOTHING),
    "differences": (run_of(model__sharing="gdes", model__generator=ONE_SHAPE), NOTHING),
    "a masked language model": (run_of(**PREDICTS), HEAD),
    "one with settings of another method": (
        run_of(**PREDICTS, model__sharing="gdes", model__shared_layers=1),
        HEAD,
    ),
    "one that shares no layers whatever its settings say": (
        run_of(
            **workdirs.TEAMS
            | {"model__discriminator_head": "token", "model__sharing": "gdes"}
            | {"objective__name": "decoupled_detection"},
        ),
        NOTHING,
    ),
    "one without such a head": (run_of(**PREDICTS, model__discriminator_head="own_layer"), HEAD),
    "selection and shared layers": (run_of(**workdirs.TEAMS), NOTHING),
    "correction": (run_of(objective__name="corrective_lm"), NOTHING),
    "correction beside a layer for detection": (
        run_of(objective__name="corrective_lm", model__discriminator_head="own_layer"),
        NOTHING,
    ),
    "an export of these": (export("to_orbax", **workdirs.TEAMS), NOTHING),
    "their discriminator": (
        export("to_orbax", "discriminator", **workdirs.TEAMS),
        GENERATORS | SELECTION,
    ),
    "Hugging Face's folders of these": (export("to_hugging_face", **workdirs.TEAMS), HEAD),
    "an export": (export("to_orbax"), NOTHING),
    "a modern export": (export("to_orbax", **MODERN), NOTHING),
    "an exported discriminator": (export("to_orbax", "discriminator"), GENERATORS),
    "Hugging Face's folders": (export("to_hugging_face"), NOTHING),
    "modern ones": (export("to_hugging_face", **MODERN), NOTHING),
    "a discriminator of theirs": (export("to_hugging_face", "discriminator"), GENERATORS),
    "a BERT": (bert("with all heads"), HEAD),
    "an encoder": (bert("the encoder alone"), HEAD | GENERATORS),
    "Google's": (google, NOTHING),
}


def config_of(path):
    tree = importlib.import_module("configs.continued").get_config(str(path))
    tree.data.sequence_length = min(32, tree.data.sequence_length)
    return config_lib.parse(tree)


def begun_fresh(config, vocabulary):
    """Which parts of a run's networks are not taken from `init.from`."""
    objective = plans.make_objective(config, vocabulary, np.ones(vocabulary.size))
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)), seed=4)
    fresh = train_step.state_of(objective, plans.make_optimizer(config), params)
    run = starting_weights.FreshRun(
        config.init, config.optimizer.name, fresh, objective.phases, vocabulary,
        plans.make_mesh(config), objective.networks.shared_layers,
    )  # fmt: skip
    before, after = odd.flat(params), odd.flat(warm_start.state(run).params)
    kept = {path for path in after if np.array_equal(before[path], after[path])}
    return {"/".join(path.split("/")[:2]) for path in kept}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_weights_of_every_kind(tmp_path, words, kind):
    write, expected = KINDS[kind]
    path = write(tmp_path, words)
    config = config_of(path)
    assert config.init.from_ == str(path)
    assert config_lib.unread(config) == []
    starting_checks.check_shapes(config)
    starting_checks.check_vocabularies(config)

    found = reading.open(path)
    vocabulary = planning.load_vocabulary(planning.DataSettings.of(config.data, 0))
    assert vocabulary.sha256 == found.vocabulary.sha256

    assert begun_fresh(config, vocabulary) == expected


def test_part_of_a_generator_is_never_taken_for_a_whole_one(tmp_path, words):
    """Of two layers one is shared, so what is the generator's own has the shape of one of one."""
    alike = dict(model__embedding_size=32)  # no projection, whose lack would tell them apart
    shared = workdirs.made(tmp_path / "shared", words, **workdirs.TEAMS | alike)[0]
    whole = workdirs.TEAMS | dict(model__shared_layers=0)
    whole["model__generator"] = ONE_SHAPE | dict(layers=1)
    apart = workdirs.made(tmp_path / "apart", words, **whole | alike)[0]

    generators = {"generator/encoder"}, {"generator/upper_layers"}
    for config, path, fresh in (
        (apart, tmp_path / "shared", generators[0]),
        (shared, tmp_path / "apart", generators[1]),
    ):
        init = dataclasses.replace(config.init, from_=str(path))
        began = begun_fresh(dataclasses.replace(config, init=init), words)
        assert began == fresh | {"generator/head"}


WITHOUT_DEVICES = """
import sys
from configs import continued
from jax._src import xla_bridge
for path in sys.argv[1:]:
    continued.get_config(path)
    assert not xla_bridge.backends_are_initialized(), path
"""


def test_no_device_is_touched_which_would_be_too_early_for_several_processes(tmp_path, words):
    paths = []
    for kind in ("a run", "a modern export", "Hugging Face's folders", "a BERT", "Google's"):
        (tmp_path / kind).mkdir()
        paths.append(str(KINDS[kind][0](tmp_path / kind, words)))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DEVICES, *paths],
        cwd=corpus.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_generator_of_a_lone_network_is_its_lowest_third(tmp_path, words):
    six = dict(model__discriminator=ONE_SHAPE | {"layers": 6})
    config = config_of(workdir(tmp_path, words, **PREDICTS, **six))
    assert config.model.discriminator.layers == 6
    assert vars(config.model.generator) == vars(config.model.discriminator) | {"layers": 2}


def test_with_rotary_positions_rows_may_be_as_long_as_those_of_the_first_training(tmp_path, words):
    path = export("to_hugging_face", **MODERN, data__sequence_length=48)(tmp_path, words)
    assert config_of(path).model.max_positions == 48


@pytest.mark.parametrize(
    ("write", "rows", "batch"),
    [
        (run_of(model__max_positions=64), 32, 1024),  # more positions than its rows had tokens
        (run_of(**MODERN, data__sequence_length=24), 24, 1360),  # which eight devices can share
        (bert("with all heads"), 16, 2048),  # of which only the table of positions is known
    ],
)
def test_rows_are_as_long_as_those_of_the_first_training(tmp_path, words, write, rows, batch):
    path = write(tmp_path, words)
    data = importlib.import_module("configs.continued").get_config(str(path)).data
    assert (data.sequence_length, data.batch_size) == (rows, batch)


def test_a_cased_vocab_txt_is_read_as_cased(tmp_path):
    folder = bert_folder.write(tmp_path / "bert")
    assert outline.read(folder).data == {
        "vocab": os.path.join(folder, "vocab.txt"), "lower_case": True, "strip_accents": True,
    }  # fmt: skip
    (tmp_path / "bert" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert outline.read(folder).data["lower_case"] is False


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("", "name the weights: --config=configs/continued.py:WEIGHTS"),
        (":nowhere", "nowhere holds no weights that can be read; give a workdir"),
        (":empty", "empty holds no weights that can be read; give a workdir"),
    ],
)
def test_what_holds_no_weights_is_one_line(tmp_path, monkeypatch, weights, message):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    file = corpus.ROOT / "configs" / "continued.py"
    line = commands.complaint(f"--config={file}{weights}", "--workdir=run", "--dry_run")
    assert line.startswith(f"error: {message}")
    assert not (tmp_path / "run").exists()


def test_a_bert_becomes_a_workdir_by_the_configuration_that_goes_on_from_it(tmp_path):
    """So what it knew is measured (docs/evaluation.md): it then has no generator to be made."""
    folder = bert_folder.write(tmp_path / "bert")
    config = config_of(folder)
    assert config.init.missing_generator == "discriminator"
    importing.to_workdir(folder, config, str(tmp_path / "before"))
    made = saved_config.read(str(tmp_path / "before"))
    assert (made.objective.name, made.init.missing_generator) == ("masked_lm", "fresh")


def test_a_workdir_of_weights_has_their_vocabulary_without_further_pieces(tmp_path):
    folder = bert_folder.write(tmp_path / "bert")
    config = config_of(folder)
    longer = dataclasses.replace(config, data=dataclasses.replace(config.data, added_pieces=3))
    with pytest.raises(config_lib.ConfigError, match="added_pieces=3 makes another vocabulary"):
        importing.to_workdir(folder, longer, str(tmp_path / "before"))
