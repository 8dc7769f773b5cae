# SPDX-License-Identifier: Apache-2.0
"""The page of a run is there from its start, follows the run, and says what the run cost."""

import errno
import json
import logging
import math
import re
import types

import pytest
from orbax.checkpoint import v1 as ocp

import electra_jax
from electra_jax.report import run_cost, writers
from electra_jax.training import output, report_page
from electra_jax.workdir import metadata, saved_config, starts
from support.corpus import small_run


class _Seen:
    """A writer that keeps what the page says when a step is logged, and may end the run."""

    def __init__(self, workdir, fails_at=None):
        self.pages, self._workdir, self._fails_at = {}, workdir, fails_at

    def write(self, step, kind, metrics):
        if kind == "train":
            page = (self._workdir / "report.html").read_text()
            self.pages[step] = " ".join(re.sub("<[^>]*>", " ", page).split())
        if step == self._fails_at:
            raise RuntimeError("no power <left>")

    def close(self):
        pass


def test_the_page_is_there_before_the_first_step_and_says_why_a_run_ended(
    text, tmp_path, monkeypatch
):
    monkeypatch.setattr(report_page, "LIVE_SECONDS", 0.0)
    monkeypatch.setattr(report_page, "LIVE_SHARE", math.inf)
    seen = _Seen(tmp_path, fails_at=6)
    with pytest.raises(RuntimeError, match="no power"):
        electra_jax.train(small_run(*text, logging__report_every=1000), tmp_path, [seen])

    assert "Nothing to draw yet" in seen.pages[2]  # drawn at the start
    assert "step 2 of 6" in seen.pages[4]  # drawn at the log line of step 2
    assert all("running" in page for page in seen.pages.values())
    page = (tmp_path / "report.html").read_text()
    assert '<span class="status stopped">' in page and "no power &lt;left&gt;" in page
    assert "data-refresh=" not in page


def test_the_page_of_a_run_whose_last_save_failed_does_not_call_it_finished(
    text, tmp_path, monkeypatch
):
    save = ocp.training.Checkpointer.save_async

    def save_async(self, step, *arguments, **options):
        if step == 4:
            raise OSError(errno.ENOSPC, "no space")
        return save(self, step, *arguments, **options)

    monkeypatch.setattr(ocp.training.Checkpointer, "save_async", save_async)
    config = small_run(*text, schedule__steps=4, checkpoint__every=2, logging__report_every=1000)
    with pytest.raises(metadata.NotSaved, match="last checkpoint could not be saved"):
        electra_jax.train(config, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert '<span class="status stopped">' in page and "last checkpoint could not be saved" in page


def test_a_page_that_was_just_drawn_is_left_alone(text, tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "LIVE_SECONDS", math.inf)
    seen = _Seen(tmp_path)
    config = small_run(*text, logging__report_every=1000, schedule__steps=4, evaluation__every=4)
    electra_jax.train(config, tmp_path, [seen])
    assert "Nothing to draw yet" in seen.pages[4]


def test_each_start_is_noted_and_the_cost_is_theirs(finished):
    workdir, _ = finished
    (start,) = starts.read(workdir)
    assert start["step"] == 0 and start["device_count"] >= 1
    assert {"python", "jax", "jaxlib", "flax", "devices", "processes"} <= start.keys()

    page = " ".join(re.sub("<[^>]*>", " ", (workdir / "report.html").read_text()).split())
    for name in ("python", "jax", "jaxlib", "flax"):
        assert f"{name} {start[name]} " in page
    rows = writers.read(workdir / "metrics.jsonl")
    last = [row for row in rows if row["kind"] == "train"][-1]
    assert f"Cost tokens {last['tokens_seen']:,}, padding not counted FLOPs " in page
    assert "data.batch_size 256 8" in page  # of base and of this run

    # Comparisons compute it from what the run has left.
    cost = run_cost.of(saved_config.of_run(workdir), list(rows), [start])
    assert f"FLOPs {cost.flops:.3g} in matrix products" in page


def test_device_seconds_count_the_devices_of_the_start_that_trained(tmp_path):
    for step, devices in ((0, 1), (20, 4), (10, 8)):  # the third goes back behind the second
        starts.note(tmp_path, {"step": step, "device_count": devices})
    found = starts.read(tmp_path)
    assert starts.device_seconds([(10, 5.0), (20, 1.0), (30, 1.0)], found) == 5.0 + 8.0 + 8.0
    assert starts.device_seconds([(10, 5.0)], found[1:]) is None  # who trained it is not known
    assert starts.device_seconds([], found) is None
    # The third continues where the second began, so the second has trained nothing that counts.
    again = [{"step": step, "device_count": devices} for step, devices in ((0, 1), (5, 2), (5, 4))]
    assert starts.device_seconds([(5, 1.0), (6, 1.0)], again) == 1.0 + 4.0


def test_a_torn_line_of_a_killed_start_is_left_out(tmp_path):
    (tmp_path / starts.NAME).write_text('{"step": 0, "device_count": 2}\n{"step": 5, "dev')
    starts.note(tmp_path, {"step": 6, "device_count": 3})
    assert [start["step"] for start in starts.read(tmp_path)] == [0, 6]
    lines = (tmp_path / starts.NAME).read_text().splitlines()
    assert json.loads(lines[-1]) == {"step": 6, "device_count": 3}


@pytest.mark.parametrize(
    ("lines", "gone"),
    [
        (["start at 0"], False),  # killed before its first save, or that save failed
        (["start at 0", "saved 4"], True),
        (["start at 0", "saved 4", "start at 4"], True),
        (["start at 4"], True),  # by a version that did not note its saves
        (["start at 0", "saved 4", "start at 0"], False),  # they were gone before the last start
        ([], False),
    ],
)
def test_checkpoints_are_gone_only_where_the_last_start_had_one(tmp_path, caplog, lines, gone):
    """No setting tells it: checkpoint.every may have been larger when the run began."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 6, "kind": "train"}\n')
    for what, *_, step in map(str.split, lines):
        if what == "start":
            starts.note(tmp_path, {"step": int(step), "device_count": 1})
        else:
            starts.note_saved(tmp_path, int(step))
    assert len(starts.read(tmp_path)) == sum(line.startswith("start") for line in lines)

    out = output.Output.__new__(output.Output)
    out._run = types.SimpleNamespace(step=0, workdir=str(tmp_path))
    out._path = str(tmp_path / "metrics.jsonl")
    with caplog.at_level(logging.ERROR):
        out._check_nothing_is_gone()
    assert ("its checkpoints are gone" in caplog.text) == gone
    assert (tmp_path / "metrics.jsonl.before").exists() == gone
