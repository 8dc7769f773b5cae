# SPDX-License-Identifier: Apache-2.0
"""The picture below a cell that trains has all rows so far and does not take too much time."""

import sys

import pytest

import electra_jax
from electra_jax.host import staging
from electra_jax.report import baselines, live_picture, run_drawing, run_panels, writers
from support import folder_bucket
from support.made_runs import workdir

ROW = {"gen_masked_loss": 6.0, "unigram_entropy": 5.9, "disc_auc": 0.5}


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def drawn(monkeypatch):
    """(pictures so far, a clock that stands still): a picture is the list of (step, kind)."""
    pictures, clock = [], Clock()

    def picture(curves, panels, name, verdict):
        clock.time += 1.0  # what drawing takes
        series = {kind: curves.get(kind, "gen_masked_loss") for kind in ("train", "eval")}
        return [(int(step), kind) for kind in series for step in series[kind].steps]

    monkeypatch.setattr(run_drawing, "picture", picture)
    return pictures, clock


def live(tmp_path, drawn):
    pictures, clock = drawn
    return live_picture.LivePicture(tmp_path, pictures.append, clock)


def test_it_has_all_rows_and_is_left_alone_for_twenty_times_what_drawing_takes(tmp_path, drawn):
    pictures, clock = drawn
    picture = live(tmp_path, drawn)
    for step, clock.time in ((10, 0.0), (20, 20.9), (30, 21.0)):
        picture.write(step, "train", ROW)
    assert pictures == [[(10, "train")]]
    clock.time = 21.1
    picture.write(30, "eval", ROW)
    rows = [(10, "train"), (20, "train"), (30, "train"), (30, "eval")]
    assert pictures[1:] == [rows]

    picture.close()
    assert len(pictures) == 2, "nothing is new"
    picture.write(40, "train", ROW)
    picture.close()
    assert pictures[2] == [*rows[:3], (40, "train"), rows[3]]


def test_a_run_that_goes_on_begins_with_its_earlier_curves(tmp_path, drawn):
    pictures, _ = drawn
    run = workdir(tmp_path, "run", [6.0, 5.0, 4.0])
    picture = live(run, drawn)
    picture.write(20, "train", ROW)  # from a checkpoint before it
    assert pictures == [[(20, "train"), (10, "eval"), (20, "eval")]]
    picture.write(20, "eval", ROW)
    picture.close()
    assert pictures[1] == pictures[0]

    ended = live(run, drawn)
    ended.close()
    assert len(pictures[2]) == 3, "a run that is over is drawn as it is"


def test_so_does_one_in_a_bucket(tmp_path, drawn, monkeypatch):
    pictures, _ = drawn
    bucket = folder_bucket.FolderBucket(tmp_path / "bucket", monkeypatch)
    bucket.machine(tmp_path / "cache")
    bucket.folder.mkdir()
    workdir(bucket.folder, "run", [6.0, 5.0, 4.0])
    live("gs://lab/run", drawn).close()
    assert len(pictures[0]) == 3
    staging._own_root.cache_clear()


def test_what_cannot_be_drawn_or_shown_ends_nothing(tmp_path, caplog):
    def show(png):
        assert png.startswith(b"\x89PNG")
        raise OSError("no notebook")

    picture = live_picture.LivePicture(tmp_path, show)
    picture.write(10, "train", ROW | {"disc_auc": None})
    assert "no live picture: OSError: no notebook; the run continues" in caplog.text


def test_it_is_the_picture_of_the_report(tmp_path):
    run, pictures = workdir(tmp_path, "run", [6.0, 5.0]), []
    picture = live_picture.LivePicture(run, pictures.append)
    picture.close()
    curves = run_panels.Curves.of(writers.read(f"{run}/metrics.jsonl"))
    verdict = baselines.verdict(curves.last["eval"])
    assert pictures == [run_drawing.picture(curves, run_panels.panels(curves), "run", verdict)]


def test_without_ipython_it_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(ValueError, match="^a live picture is shown by IPython, which is not .*$"):
        electra_jax.live_picture(tmp_path)
