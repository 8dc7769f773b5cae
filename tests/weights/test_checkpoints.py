# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by themselves: under any name of a folder, with any damage, nothing else is read."""

import errno
import gc
import itertools
import json
import os
import pathlib
import random
import shutil
import sys
import threading
import types
import unicodedata

import jax
import numpy as np
import pytest
from etils import epath
from jax import numpy as jnp
from orbax.checkpoint import v1 as ocp

from electra_jax import config as config_lib
from electra_jax.core import trees
from electra_jax.finetuning.tuning import kept_weights
from electra_jax.host import buckets, error_causes, safe_files
from electra_jax.weights import checkpoint, checkpoint_series, save_time
from electra_jax.workdir import metadata, saved_config

# What orbax began to read when it met damage is reported when the collector finds it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TREE = {"params": {"a": np.arange(6.0, dtype=np.float32)}, "step": np.int32(1)}
ABOUT = {"config": {"seed": 1, "rates": (0.5, 1e-3)}, "stage": 0, "rows_by_stage": [3, 4]}
ODD = (
    "lr=1e-3,bs=[8]", "[a-z]", "a*b", "a?b", "{a,b}", "%41", "%", "#x", "a:b", "s3:", "a b", "a'b",
    'a"b', "a\nb", "a\tb", "-x", "~", "$HOME", "a|b;c&d", "..x", "7", "_x", "x.corrupt",
    "x.orbax-checkpoint-tmp", unicodedata.normalize("NFD", "é"), "日本", "s" * 200,
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_for_other_tests():
    """Collects it before other files of tests begin, where it would be an error."""
    yield
    heard, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = heard


def tree(step):
    return jax.tree.map(lambda x: jnp.asarray(x + step), TREE)


def like():
    return trees.shapes_like(tree(0))


def saved(directory, *steps):
    with checkpoint_series.Checkpoints(str(directory), keep_last=9) as checkpoints:
        for step in steps:
            checkpoints.save(step, tree(step), ABOUT | {"at": step})
    return directory


def newest(directory):
    with checkpoint_series.Checkpoints(str(directory), keep_last=9) as checkpoints:
        return checkpoints.restore_latest(like())


def is_step(restored, step):
    """Whether all of it is what was saved at that step: arrays and metadata."""
    about = json.loads(json.dumps(ABOUT | {"at": step, "step": step}))
    same = jax.tree.map(lambda x, y: bool((x == y).all()), restored.tree, tree(step))
    return all(jax.tree.leaves(same)) and about.items() <= restored.metadata.items()


@pytest.mark.parametrize("name", ODD)
def test_a_folder_of_any_name_gives_back_what_was_saved(name, tmp_path):
    """Orbax looks for its files by a pattern, in which it takes the path for one too."""
    (tmp_path / "ab").mkdir()
    directory = saved(tmp_path / name / "checkpoints", 1, 2)
    assert metadata.steps(str(directory)) == [1, 2]
    assert is_step(newest(directory), 2)


def test_the_best_checkpoint_stays_until_another_one_is_better(tmp_path):
    """Step and best of each save -> the steps on the disk, of which the newest two stay anyway."""
    kept = []
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=2) as checkpoints:
        for step, best in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 5), (7, 5), (8, None)):
            checkpoints.save(step, tree(step), ABOUT | {"at": step}, lambda best=best: best)
            checkpoints.wait()
            kept.append(metadata.steps(str(tmp_path)))
    assert kept == [[1], [1, 2], [1, 2, 3], [1, 3, 4], [4, 5], [5, 6], [5, 6, 7], [7, 8]]


def test_the_best_is_looked_for_among_all_earlier_saves_and_not_while_one_hangs(
    tmp_path, monkeypatch, answers, caplog
):
    """A save that hangs is waited for once by the next one, and not again for its best step."""
    monkeypatch.setattr(save_time, "AT_LEAST", 0.0)
    checkpoints, seen = checkpoint_series.Checkpoints(str(tmp_path), keep_last=9), []

    def save(step):
        checkpoints.save(
            step, tree(step), ABOUT, lambda: seen.append(metadata.steps(str(tmp_path)))
        )

    save(1)
    save(2)
    monkeypatch.setattr(save_time, "SECONDS", 0.0)
    save(3)
    answers.clear()
    save(4)
    assert seen == [[], [1], [1, 2]]
    assert caplog.text.count("step 3 was not saved within 0 s") == 1
    answers.set()
    checkpoints.close(quiet=True)


def test_nothing_is_saved_or_deleted_while_the_best_cannot_be_told(tmp_path, caplog):
    """As where a bucket does not list its checkpoints; the next save is tried as usual."""

    def silent():
        raise buckets.BucketError("gs://bucket/run: no answer")

    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=1) as checkpoints:
        for step, best in ((1, lambda: 1), (2, lambda: 1), (3, silent), (4, lambda: 1)):
            checkpoints.save(step, tree(step), ABOUT | {"at": step}, best)
            assert checkpoints.wait() == (step != 3)
            assert metadata.steps(str(tmp_path)) == [[1], [1, 2], [1, 2], [1, 4]][step - 1]
    assert "checkpoint not saved (BucketError: gs://bucket/run: no answer)" in caplog.text


def test_a_metric_that_came_later_has_summed_nothing_and_one_that_is_gone_is_left(tmp_path):
    first = {"loss": jnp.ones(2), "gone": jnp.ones(2)}
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=9) as checkpoints:
        checkpoints.save(1, tree(1) | {"interval": first}, ABOUT)
    sums = trees.shapes_like({"loss": jnp.ones(2), "new/wiki": jnp.ones(2)})
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=9) as checkpoints:
        found = checkpoints.restore_latest(like() | {"interval": sums}).tree["interval"]
        assert {name: [*x] for name, x in found.items()} == {"loss": [1, 1], "new/wiki": [0, 0]}
        assert found["new/wiki"].sharding == found["loss"].sharding

        # Other parts must be there, and one without any of these sums is no checkpoint of a run.
        with pytest.raises(metadata.CheckpointError, match="none of the 1 checkpoints"):
            checkpoints.restore_latest(like() | {"more": jax.ShapeDtypeStruct((2,), "float32")})
        with pytest.raises(metadata.CheckpointError, match="none of the 1 checkpoints"):
            checkpoints.restore_latest(like() | {"interval": {"new": sums["loss"]}})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s3://bucket/run", "is an address"),
        ("file:///tmp/run", "is an address"),
        (str(pathlib.Path("s3://bucket/run")), "is an address"),
        (str(pathlib.Path("gs://bucket/run")), "lacks a slash: gs://BUCKET/FOLDER"),
        ("runs/a\\b", "backslash"),
        ("/s3/bucket/run", "takes for the bucket s3://bucket"),
        ("runs/\udcff", "not UTF-8"),
        ("runs/a\0b", "NUL"),
    ],
)
def test_a_folder_that_checkpoints_would_be_lost_in_is_refused(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(config_lib.ConfigError, match=words) as error:
        safe_files.check_path(name, "--workdir", config_lib.ConfigError)
    assert "--workdir=" in str(error.value)
    with pytest.raises(metadata.CheckpointError, match=words):
        checkpoint_series.Checkpoints(name, keep_last=1)
    with pytest.raises(metadata.CheckpointError, match=words):
        checkpoint.save_arrays(name, TREE)
    assert os.listdir(tmp_path) == []


def test_a_first_save_that_cannot_be_read_back_stops_the_run(tmp_path, monkeypatch):
    """The path is a pattern again, as it was: orbax then saves no arrays and says nothing."""
    monkeypatch.setattr(checkpoint.LiteralPath, "glob", type(epath.Path()).glob)
    with pytest.raises(metadata.CheckpointError) as error:
        saved(tmp_path / "bs=[8]", 1)
    assert "first checkpoint of this run cannot be read back" in str(error.value)
    assert str(tmp_path / "bs=[8]" / "1") in str(error.value)
    assert "choose a --workdir" in str(error.value)


def test_a_first_save_that_cannot_be_written_stops_the_run(tmp_path):
    directory = tmp_path / "checkpoints"
    with pytest.raises(metadata.NotSaved, match="could not be saved in .*checkpoints"):
        with checkpoint_series.Checkpoints(str(directory), keep_last=9) as checkpoints:
            checkpoints._open()
            shutil.rmtree(directory)
            directory.write_text("a file")
            checkpoints.save(1, tree(1), ABOUT)


def test_what_is_read_back_is_read_in_parts(tmp_path, monkeypatch):
    """So that beside the state of a large run only a few of its arrays are in memory."""
    directory = saved(tmp_path, 1)
    whole = tree(1) | {"moments": ({"a": jnp.ones(3)}, jnp.zeros(2)), "none": {}}
    with checkpoint_series.Checkpoints(str(tmp_path / "other"), keep_last=1) as checkpoints:
        checkpoints.save(1, whole, {})
    monkeypatch.setattr(checkpoint, "_READ_BACK_BYTES", 16)
    for folder, there in ((directory, tree(1)), (tmp_path / "other", whole)):
        found = checkpoint.digest_on_disk(str(folder / "1"), there)
        assert found == checkpoint.digest(there)


def test_any_flipped_bit_of_the_metadata_is_found(tmp_path):
    path = saved(tmp_path, 1) / "1" / "_CHECKPOINT_METADATA"
    whole = path.read_bytes()
    draw, own = random.Random(0), whole.index(b"custom_metadata")
    for place in range(own, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            found = metadata.read(str(tmp_path / "1"))
        except metadata.CheckpointError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError((place, bytes(damaged), found))


def test_metadata_are_those_that_orbax_gives(tmp_path):
    path = str(saved(tmp_path, 1) / "1")
    by_orbax = ocp.metadata(path).custom_metadata
    assert metadata.read(path).items() <= by_orbax.items()
    assert by_orbax.keys() - metadata.read(path).keys() == {"metadata_digest"}


def test_a_checkpoint_whose_arrays_have_another_name_is_set_aside(tmp_path):
    """One bit of `state/_METADATA`: orbax answered with what is no array, and the start ended."""
    saved(tmp_path, 1, 2)
    path = tmp_path / "2" / "state" / "_METADATA"
    path.write_bytes(path.read_bytes().replace(b'"key": "params"', b'"key": "papams"', 1))
    assert is_step(newest(tmp_path), 1)
    assert sorted(os.listdir(tmp_path)) == ["1", "2.corrupt"]


def test_where_none_can_be_read_all_are_left_as_they_are(tmp_path):
    """What is wrong may be another thing than they: memory, a right, another version."""
    saved(tmp_path, 1, 2)
    for step in (1, 2):
        shutil.rmtree(tmp_path / str(step) / "state")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(metadata.CheckpointError, match="none of the 2 checkpoints"):
        newest(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


def fail_reads(monkeypatch, failures):
    """The metadata of a step cannot be read as often as `failures` says, {'2': [an error, ...]}."""
    plain = metadata._content

    def read(file):
        if errors := failures.get(pathlib.Path(file).parent.name):
            raise errors.pop(0)
        return plain(file)

    monkeypatch.setattr(metadata, "_content", read)


def test_a_disk_that_stammers_does_not_make_a_checkpoint_a_damaged_one(tmp_path, monkeypatch):
    saved(tmp_path, 1, 2)
    # Once where it is asked what it holds, and once where it is restored.
    fail_reads(monkeypatch, {"2": [OSError(errno.EIO, "Input/output error")] * 2})
    assert is_step(newest(tmp_path), 2)
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


@pytest.mark.parametrize(
    "error, passes",
    [
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (TimeoutError("no answer"), True),
        (buckets.BucketError("gs://b cannot be reached"), True),
        (buckets.NotAllowed("gs://b may not be read"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
    ],
)
def test_where_none_can_be_read_it_is_said_whether_that_may_pass(
    tmp_path, monkeypatch, error, passes
):
    """Launchers begin again what may pass, and leave what does not."""
    saved(tmp_path, 1, 2)
    fail_reads(monkeypatch, {"1": [error] * 3, "2": [FileNotFoundError("gone")] * 3})
    with pytest.raises(metadata.CheckpointError) as raised:
        newest(tmp_path)
    assert error_causes.may_pass(raised.value) == passes
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


class ServerError(Exception):
    """As gcsfs raises it: no OSError, with the code that the server has answered."""

    code = 503


def test_a_server_that_is_busy_may_answer_later_and_a_save_to_it_is_a_failed_one(monkeypatch):
    assert isinstance(metadata.not_read("gs://b/1", ServerError()), metadata.NotRead)
    assert not isinstance(metadata.not_read("gs://b/1", ValueError("torn")), metadata.NotRead)

    monkeypatch.setattr(buckets, "check", lambda *_: None)
    saved = checkpoint_series.Checkpoints("gs://bucket/run/checkpoints", keep_last=1)
    saved._orbax = FailingOrbax(last=ServerError(), earlier=None)
    assert not saved.wait()
    with pytest.raises(metadata.NotSaved, match="could not be saved in gs://bucket"):
        saved.close()


def test_a_file_in_place_of_a_checkpoint_is_set_aside(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / "2").write_text("no folder")
    (tmp_path / "03").mkdir()  # no step of ours: it would be looked for as 3
    assert is_step(newest(tmp_path), 1)
    assert sorted(os.listdir(tmp_path)) == ["03", "1", "2.corrupt"]


def test_damaged_tuned_weights_are_taken_the_place_of_and_never_read(tmp_path, caplog):
    """Only the best are kept, so that there is no one before."""
    where = str(tmp_path / "cola" / "weights")

    def better(seed, score):
        about = {"main": "mcc", "score": score, "seed": seed, "vocabulary": "x"}
        kept_weights.save_if_better(where, {"head": jnp.full(2, seed)}, about, range(3))
        return kept_weights.best_weights(str(tmp_path / "cola"))

    assert better(0, 0.9)[1]["seed"] == better(1, 0.5)[1]["seed"] == 0
    path, _ = better(0, 0.9)
    about = os.path.join(path, "_CHECKPOINT_METADATA")
    with open(about, "r+b") as file:
        whole = file.read()
        file.seek(0)
        file.write(whole.replace(b'"score": 0.9', b'"score": 0.8'))
    with pytest.raises(metadata.CheckpointError, match="move .*cola away and run the same"):
        kept_weights.best_weights(str(tmp_path / "cola"))
    path, found = better(2, 0.4)
    assert found["seed"] == 2 and "not what was saved" in caplog.text
    shutil.rmtree(os.path.join(path, "state"))
    with pytest.raises(metadata.CheckpointError, match="move .*cola away and run the same"):
        kept_weights.restore(path, {"head": jax.ShapeDtypeStruct((2,), np.int32)})


DAMAGED = {
    "empty": (b"", "it is empty"),
    "cut": (b'{"name": "te', "no JSON"),
    "binary": (bytes(range(128, 256)), "no JSON"),
    "list": (b"[1, 2]", "holds a list"),
    "number": (b"3", "holds a int"),
    "deep": (b"[" * 100_000, "no JSON"),
    "unknown field": (b'{"nme": "test"}', "unknown field nme"),
    "folder": (None, "it is a folder"),
}


def damage(path, content):
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_config_json_is_one_line_with_the_remedy(kind, tmp_path):
    content, words = DAMAGED[kind]
    damage(tmp_path / "config.json", content)
    with pytest.raises(saved_config.DamagedError, match=words) as error:
        saved_config.of_run(str(tmp_path))
    assert "\n" not in str(error.value)
    assert "delete it and give --config=FILE" in str(error.value)


def test_what_is_written_is_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "file"
    for data in (b"old", b"new"):
        safe_files.write(path, data)
        assert path.read_bytes() == data
    assert safe_files.move_aside(str(path), "before") == f"{path}.before"
    safe_files.write(path, b"again")
    assert safe_files.move_aside(str(path), "before") == f"{path}.before.1"
    assert sorted(os.listdir(tmp_path)) == ["file.before", "file.before.1"]


class FailingOrbax:
    """Orbax where the last save failed, or the metadata of an earlier one, or both."""

    def __init__(self, last, earlier):
        self._last, self._earlier = last, earlier

    def wait(self):
        if self._last:
            raise self._last

    def close(self):
        if self._earlier:
            raise self._earlier


def test_waiting_says_whether_the_save_is_on_disk(tmp_path):
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=1) as saved:
        assert saved.wait()  # nothing was to be saved
    saved = checkpoint_series.Checkpoints(str(tmp_path), keep_last=1)
    saved._orbax = FailingOrbax(last=OSError(errno.ENOSPC, "no space left"), earlier=None)
    assert not saved.wait()


@pytest.mark.parametrize("last", [OSError(errno.ENOSPC, "no space left"), None])
def test_what_orbax_tells_when_it_is_closed_is_a_failed_save(last, tmp_path):
    saved = checkpoint_series.Checkpoints(str(tmp_path), keep_last=1)
    saved._orbax = FailingOrbax(last, earlier=PermissionError("of 14/_CHECKPOINT_METADATA"))
    with pytest.raises(metadata.NotSaved, match="the last checkpoint could not be saved"):
        saved.close()
    saved._orbax = FailingOrbax(last, earlier=PermissionError("of 14/_CHECKPOINT_METADATA"))
    with pytest.raises(ValueError, match="of the run"), saved:
        raise ValueError("of the run")


@pytest.fixture
def answers(monkeypatch):
    """While this event is not set, orbax waits for a server that answers with errors."""
    answers, wait = threading.Event(), ocp.training.Checkpointer.wait
    monkeypatch.setattr(
        ocp.training.Checkpointer, "wait", lambda self: answers.wait() and wait(self)
    )
    answers.set()
    yield answers
    answers.set()


def test_a_save_that_takes_too_long_has_failed_and_none_is_begun_before_it_ends(
    tmp_path, caplog, monkeypatch, answers
):
    checkpoints = checkpoint_series.Checkpoints(str(tmp_path), keep_last=9)
    checkpoints.save(1, tree(1), ABOUT | {"at": 1})

    monkeypatch.setattr(save_time, "SECONDS", 0.0)
    monkeypatch.setattr(save_time, "AT_LEAST", 0.0)
    checkpoints.save(2, tree(2), ABOUT | {"at": 2})
    answers.clear()
    assert not checkpoints.wait()
    assert "step 2 was not saved within 0 s" in caplog.text
    assert "training continues and the next one is tried at its step" in caplog.text
    checkpoints.save(3, tree(3), ABOUT | {"at": 3})
    assert checkpoints.time.hangs()
    monkeypatch.undo()
    answers.set()
    checkpoints.time._call.result()
    assert not checkpoints.wait()  # step 3 is not saved
    assert metadata.steps(str(tmp_path)) == [1, 2]

    checkpoints.save(4, tree(4), ABOUT | {"at": 4})
    assert checkpoints.wait()
    checkpoints.close()
    assert is_step(newest(tmp_path), 4)


def test_a_run_does_not_go_on_for_ever_with_a_save_that_hangs(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(save_time, "AT_LEAST", 0.0)
    checkpoints = checkpoint_series.Checkpoints(str(tmp_path), keep_last=9)
    checkpoints.save(1, tree(1), ABOUT | {"at": 1})
    monkeypatch.setattr(save_time, "SECONDS", 0.0)
    checkpoints.save(2, tree(2), ABOUT | {"at": 2})
    answers.clear()
    checkpoints.save(3, tree(3), ABOUT | {"at": 3})
    checkpoints.save(4, tree(4), ABOUT | {"at": 4})
    with pytest.raises(metadata.NotSaved, match="step 2 was not saved .* to be complete is .* 1;"):
        checkpoints.save(5, tree(5), ABOUT | {"at": 5})
    answers.set()
    checkpoints.close(quiet=True)
    assert metadata.steps(str(tmp_path)) == [1, 2]


def test_saves_leave_no_thread(tmp_path):
    """Each would keep three open files for ever; many machines allow a process 1024."""
    before = set(threading.enumerate())
    with checkpoint_series.Checkpoints(str(tmp_path), keep_last=1) as saved:
        for step in range(3):
            saved.save(step, tree(step), ABOUT | {"at": step})
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("last", [None, OSError(errno.ENOSPC, "no space left")])
def test_closed_checkpoints_leave_no_thread(tmp_path, last):
    before = threading.enumerate()
    saved = checkpoint_series.Checkpoints(str(tmp_path), keep_last=1)
    saved._orbax = FailingOrbax(last, earlier=None)
    assert saved.wait() == (last is None)
    (thread,) = (t for t in threading.enumerate() if t.name == "checkpoint" and t not in before)
    saved.close(quiet=True)
    thread.join(20)
    assert not thread.is_alive()


def test_a_call_long_after_its_save_has_half_a_minute(monkeypatch):
    """Its time is over at 0 s; a call at 100 s that ends at 120 s is no failure, at 131 s it is."""
    ready = threading.Event()

    def call(end):
        times = itertools.chain([0.0, 100.0, end], itertools.repeat(end))

        def monotonic():
            now = next(times)
            if now == end:
                ready.set()
            return now

        monkeypatch.setattr(save_time, "time", types.SimpleNamespace(monotonic=monotonic))
        limit = save_time.SaveTime("here")
        limit.begins(1, {})
        try:
            return limit.run(lambda: ready.wait(60))
        finally:
            limit.end()

    monkeypatch.setattr(save_time, "SECONDS", 0.0)
    monkeypatch.setattr(save_time, "_LOOK_SECONDS", 0.0)
    assert call(120.0)
    ready.clear()
    with pytest.raises(save_time.NotInTime, match="step 1 was not saved"):
        call(131.0)


def test_a_last_save_that_takes_too_long_is_one_line(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(save_time, "AT_LEAST", 0.0)
    checkpoints = checkpoint_series.Checkpoints(str(tmp_path), keep_last=9)
    for step, seconds in ((4, 600.0), (5, 0.0)):
        monkeypatch.setattr(save_time, "SECONDS", seconds)
        checkpoints.save(step, tree(step), ABOUT | {"at": step})
    answers.clear()
    with pytest.raises(metadata.NotSaved) as error:
        checkpoints.close()
    assert str(error.value) == (
        f"step 5 was not saved within 0 s in {tmp_path}; the newest known to be complete is that of"
        " step 4; the same command continues"
    )
