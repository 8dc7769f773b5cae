# SPDX-License-Identifier: Apache-2.0
"""Curves beside an independent trainer: made-up ones become the right words, and real ones meet."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import kept_runs, learning_curves_page
from support.corpus import ROOT, write_corpus

RECIPE = {
    "corpus": "some text", "source": "text:here", "characters": 2e6, "tokens": 3e6, "rows": 64,
    "heldout_rows": 600, "steps": 200, "disc_weight": 5.0, "learning_rate": 1e-3,
    "unigram_entropy": 6.0,
}  # fmt: skip


def write(workdir, ours, theirs):
    """Pairs as they are left behind: AUCs of seed 0, 1, ... after 100 and 200 steps."""
    for seed, (mine, other) in enumerate(zip(ours, theirs)):
        folder = workdir / f"seed{seed}" / "2_layers"
        (folder / "ours").mkdir(parents=True)
        (folder / "for_the_peer").mkdir()
        (folder / "for_the_peer" / "recipe.json").write_text(json.dumps(RECIPE | {"seed": seed}))
        peer = {"torch": "1", "transformers": "2"} | rows(other, seed)
        # Before its first step ours is not measured.
        peer["eval"].insert(0, {"step": 0, "disc_auc": 0.5})
        (folder / "peer.json").write_text(json.dumps(peer))
        kinds = rows(mine, seed)
        last = kinds["eval"][-1]  # by the peer's slots our AUC is 0.01 better
        judged = last | {"disc_auc": last["disc_auc"] + 0.01}
        (folder / "judged.json").write_text(json.dumps(judged))
        logged = [{"kind": kind} | row for kind in kinds for row in kinds[kind]]
        text = "".join(json.dumps(row) + "\n" for row in logged)
        (folder / "ours" / "metrics.jsonl").write_text(text)
        kept_runs.write(folder, learning_curves_page.gathered(folder))
    return str(workdir)


def rows(aucs, seed):
    """Both losses are the same for both trainers, and a little larger for the next seed."""
    losses = {"gen_masked_loss": 5.0 + seed / 10, "disc_loss": 0.4 + seed / 100}
    steps = [100 * (place + 1) for place in range(len(aucs))]
    return {
        "train": [{"step": step} | losses for step in steps],
        "eval": [{"step": step, "disc_auc": auc} | losses for step, auc in zip(steps, aucs)],
    }


def test_curves_become_means_errors_and_distances(tmp_path):
    # After 100 steps both means are 0.55. After 200 they are 0.62 and 0.60; with a deviation of
    # 0.01 each error is 0.01 / sqrt(3), that of the difference is 0.0082, and 0.02 is 2.45 of it.
    ours = [[0.54, 0.61], [0.55, 0.62], [0.56, 0.63]]
    theirs = [[0.54, 0.59], [0.55, 0.60], [0.56, 0.61]]
    (found,) = learning_curves_page.collect(write(tmp_path, ours, theirs))
    steps, values = found.curves("peer", "eval", "disc_auc")
    assert steps.tolist() == [100, 200] and values.tolist() == theirs
    np.testing.assert_allclose(found.apart("eval", "disc_auc"), [0, 2.449], atol=1e-3)

    text = learning_curves_page.pages.text(learning_curves_page.blocks([found], "picture.png"))
    assert (
        "| 2 layers | AUC | 0.630 ± 0.006 | 0.600 ± 0.006 | +0.030 ± 0.008 | **higher** |" in text
    )
    assert "| 2 layers | discriminator's loss | 0.410 ± 0.006 | 0.410 ± 0.006 |" in text
    assert "| 2 layers | AUC | 2 | +1.22 | 1.22 | 1 (50%) | 12% |" in text
    assert "learning_curves.py --source=text:here --sizes=2 --steps=200`" in text


def test_the_page_has_its_picture_and_what_is_not_finished_is_left_out(tmp_path):
    workdir = write(tmp_path / "runs", [[0.5, 0.6], [0.5, 0.6]], [[0.5, 0.6], [0.5, 0.7]])
    (tmp_path / "runs" / "seed0" / "4_layers" / "ours").mkdir(parents=True)
    found = learning_curves_page.collect(workdir)
    assert [one.name for one in found] == ["2_layers"]
    learning_curves_page.write(found, str(tmp_path / "page.md"))
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "(page.png)" in (tmp_path / "page.md").read_text()
    with pytest.raises(SystemExit, match="no pair has finished"):
        learning_curves_page.collect(str(tmp_path / "nothing"))


@pytest.mark.parity
def test_both_trainers_begin_alike_and_move_alike(tmp_path):
    """Ten steps from equal weights, one of them warm-up; the peer then is not trained again."""
    corpus = write_corpus(tmp_path / "corpus.txt", 3000)
    call = [
        sys.executable, "benchmarks/learning_curves.py", f"--source=text:{corpus}",
        f"--workdir={tmp_path / 'runs'}", f"--page={tmp_path / 'page.md'}", "--sizes=2",
        "--vocab=train:sentencepiece:64", "--steps=10", "--seeds=2",
    ]  # fmt: skip
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("finished:") == 2
    (found,) = learning_curves_page.collect(str(tmp_path / "runs"))

    # One value each over 10 x 64 rows, and over the held-out rows after that.
    for kind in ("train", "eval"):
        for name in ("gen_masked_loss", "disc_loss"):
            (_, ours), (_, theirs) = (found.curves(side, kind, name) for side in ("ours", "peer"))
            np.testing.assert_allclose(ours, theirs, rtol=0.02)
    shutil.rmtree(tmp_path / "runs")  # as on another machine: they are kept beside the page
    again = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0 and "finished:" not in again.stdout
