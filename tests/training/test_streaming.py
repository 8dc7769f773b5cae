# SPDX-License-Identifier: Apache-2.0
"""A run that trains while its text is prepared: the same bits as if all had been there before."""

import re
import signal

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.data import (
    background,
    pipeline,
    planning,
    preparation,
    records,
    text_remote,
)
from electra_jax.training import loop, run_data, trained_run
from electra_jax.workdir import metadata
from support import held_files
from support.commands import read_until, start
from support.corpus import small_run, write_corpus
from support.outcomes import digest, rows

FILES, STEPS = 20, 24
LATER = pipeline.shuffled_shards(FILES, 0, 0, 0)[pipeline.GROUP :]  # files of the second group


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with the files in `web/`, each a unit of text, and a vocabulary of their words."""
    base = tmp_path_factory.mktemp("streaming")
    (base / "web").mkdir()
    words = set()
    for number in range(FILES):
        path = write_corpus(base / "web" / f"{number:02d}.txt", 4, seed=number)
        words |= set(re.findall(r"\w+|\.", path.read_text()))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (base / "vocab.txt").write_text("\n".join([*special, *sorted(words)]) + "\n")
    return base


@pytest.fixture(scope="module")
def web(base):
    """The server of the files, the same address for all tests, since it is part of the plan."""
    with held_files.serving(base / "web") as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_there_yet(web, tmp_path):
    """Each test downloads anew; the files of the second group are held."""
    text_remote.files.cache_clear()
    web.held, web.broken = {f"{number:02d}.txt" for number in LATER}, set()
    web.released.clear()
    # Not the fixture `monkeypatch`, with which each test would compile its programs anew.
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("ELECTRA_JAX_CACHE", str(tmp_path / "cache"))
        yield
    text_remote.files.cache_clear()


def settings(base, web, data, streaming="on", **changes):
    return small_run(
        f"text:{web.at}/*.txt",
        str(data),
        **{
            "data__vocab": str(base / "vocab.txt"),
            "data__heldout_fraction": 0.2,
            "data__streaming": streaming,
            "schedule__steps": STEPS,
            "checkpoint__every": 5,
            "evaluation__every": 8,
        }
        | changes,
    )


@pytest.fixture(scope="module")
def prepared(base, web, tmp_path_factory):
    """(configuration, workdir) of a run whose text was all prepared before it began."""
    web.released.set()
    config = settings(base, web, base / "data")
    workdir = tmp_path_factory.mktemp("prepared")
    run_data.prepare(config_lib.parse(config), str(workdir))
    electra_jax.train(config, workdir)
    return config, workdir


def same(workdir, other):
    """Whether all but the clock and the count of epochs, not known from the first, is equal."""
    assert digest(workdir, STEPS) == digest(other, STEPS)
    one, another = ([row | {"epoch": None} for row in rows(at)] for at in (workdir, other))
    assert one == another


class Release:
    """A writer that lets the server send the held files when a step is logged."""

    def __init__(self, web, step):
        self._web, self._step = web, step
        self.held_until = None

    def write(self, step, kind, metrics):
        if step == self._step and kind == "train":
            assert not self._web.released.is_set()
            self._web.released.set()
            self.held_until = step

    def close(self):
        pass


def test_training_begins_before_all_text_is_there_and_ends_with_the_same_bits(
    base, web, prepared, tmp_path
):
    web.released.clear()
    release = Release(web, step=8)
    config = settings(base, web, tmp_path / "data")
    final = electra_jax.train(config, tmp_path / "run", [release])
    assert release.held_until == 8, "training did not begin before the last files came"
    same(tmp_path / "run", prepared[1])

    # The text is prepared to its end now, and evaluation finds the held-out rows of the run.
    read = trained_run.evaluate(trained_run.open(config_lib.parse(config), str(tmp_path / "run")))
    assert read == {name: final[name] for name in read}


@pytest.mark.slow
def test_each_unit_here_is_one_shard_so_the_weights_are_those_without_streaming(
    base, web, prepared, tmp_path
):
    web.released.set()
    off = settings(base, web, base / "data", streaming="off")
    electra_jax.train(off, tmp_path)
    (place,) = run_data.prepare(config_lib.parse(off), str(tmp_path))
    assert len(records.open(place).shard_rows("train", 0)) == FILES
    assert digest(tmp_path, STEPS) == digest(prepared[1], STEPS)


def test_text_that_cannot_be_prepared_ends_the_run_saved_and_only_the_same_text_goes_on(
    base, web, prepared, tmp_path
):
    web.released.set()
    web.broken, web.held = web.held, set()
    config = settings(base, web, tmp_path / "data", checkpoint__every=1000)
    with pytest.raises(loop.TrainingError, match="cannot be prepared") as error:
        electra_jax.train(config, tmp_path / "run")
    said = str(error.value)
    assert "\n" not in said and re.search(r"\d\d\.txt cannot be downloaded", said)
    (step,) = metadata.steps(tmp_path / "run" / "checkpoints")
    assert f"saved at step {step}" in said and 8 <= step < STEPS

    web.broken = set()
    changed = base / "web" / "00.txt"
    content = changed.read_bytes()
    try:
        changed.write_bytes(content + b"one more document.\n")
        text_remote.files.cache_clear()
        with pytest.raises(config_lib.ConfigError, match="has changed: bring the same files back"):
            electra_jax.train(config, tmp_path / "run")
    finally:
        changed.write_bytes(content)
    assert len(list((tmp_path / "data").iterdir())) == 1  # nothing was prepared of the other text

    text_remote.files.cache_clear()
    electra_jax.train(config, tmp_path / "run")
    same(tmp_path / "run", prepared[1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data__source": "builtin; builtin"}, "reads one source"),
        ({"schedule__stages": ((0.5, 16, 8),)}, "prepares rows of one length"),
        ({"data__deduplicate": True}, "compares all documents"),
    ],
)
def test_what_needs_all_text_first_is_refused(base, web, changes, said):
    with pytest.raises(config_lib.ConfigError, match=said) as error:
        config_lib.parse(settings(base, web, "", **changes))
    assert "data.streaming=off" in str(error.value)


def test_a_folder_that_another_process_finishes_meanwhile_is_opened_as_it_is(prepared, monkeypatch):
    """It was not whole at the first look, and is when this process has got its lock."""
    config = config_lib.parse(prepared[0])
    (place,) = run_data.prepare(config, str(prepared[1]))
    first, really = [False], preparation.is_whole
    monkeypatch.setattr(
        preparation, "is_whole", lambda *asked: first.pop() if first else really(*asked)
    )
    plan_settings = planning.DataSettings.of(config.data, config.seed)
    rows = background.open_rows(plan_settings, config.data.dir, lambda line: None)
    assert (rows.directory, first) == (place, [])
    assert rows.rows_per_epoch() == background.open_whole(place).rows_per_epoch()
    rows.close()


@pytest.mark.slow
def test_killed_and_stopped_while_text_is_missing_it_ends_with_the_same_bits(
    base, web, prepared, tmp_path
):
    web.released.clear()
    workdir = tmp_path / "run"
    workdir.mkdir()
    config = config_lib.parse(settings(base, web, tmp_path / "data", logging__every=1))
    (workdir / "config.json").write_text(config_lib.to_json(config))
    (place,) = run_data.prepare(config_lib.parse(prepared[0]), str(prepared[1]))
    there = background.open_whole(place)
    last = int(there.grow(pipeline.GROUP)[-1]) // 8  # the last step that needs no held file

    for ending, step in ((signal.SIGKILL, 7), (signal.SIGTERM, last)):
        process = start(workdir)
        said = read_until(process, f"step {step:>2}/{STEPS}")
        process.send_signal(ending)
        _, rest = process.communicate()
        assert process.returncode == (-signal.SIGKILL if ending == signal.SIGKILL else 0), rest
    assert f"stopped and saved at step {last}" in said + rest
    assert max(metadata.steps(workdir / "checkpoints")) == last < STEPS

    web.released.set()
    process = start(workdir)
    _, said = process.communicate()
    assert process.returncode == 0, said[-2000:]
    assert f"resuming from step {last}" in said
    assert digest(workdir, STEPS) == digest(prepared[1], STEPS)
