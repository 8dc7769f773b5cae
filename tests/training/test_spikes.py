# SPDX-License-Identifier: Apache-2.0
"""Spikes, and the way back to before them: the state goes back, the data continues.

The run of this page has steps of eight rows and a checkpoint every three steps; losses are 1,000
times too large where one of the rows 32, 64, 96, 128 is in the batch:

    step     1    2     3     4      5       4      5      6      7       7      8
    rows    0-7  8-15 16-23 24-31  32-39   40-47  48-55  56-63  64-71   72-79  80-87
                                   spike                        spike
    saved                x                                 x                     x (the end)
"""

import dataclasses
import shutil

import numpy as np
import pytest
from jax import numpy as jnp

import electra_jax
from electra_jax import config as config_lib
from electra_jax.core import averages, counters
from electra_jax.data import pipeline
from electra_jax.objectives import replaced_token_detection
from electra_jax.step import plans
from electra_jax.training import budget, loop, runs, saved_state
from electra_jax.weights import checkpoint
from electra_jax.workdir import metadata
from support.corpus import small_run
from support.outcomes import digest, rows
from support.tensorboard import events_of

STEPS = 8


@dataclasses.dataclass(frozen=True)
class Wild(replaced_token_detection.ReplacedTokenDetection):
    """Gives a loss that is far too large where certain rows are in the batch."""

    def loss(self, params, batch, keys, knobs):
        sums, measured = super().loss(params, batch, keys, knobs)
        wild = jnp.isin(batch.row_B, jnp.array([32, 64, 96, 128], jnp.uint32)).any()
        return {term: x * jnp.where(wild, 1e3, 1.0) for term, x in sums.items()}, measured


@pytest.fixture(scope="module", autouse=True)
def wild():
    """A few steps are enough to tell a spike here."""
    objective = plans.make_objective

    def made(config, *rest):
        base = objective(config, *rest)
        return Wild(**{f.name: getattr(base, f.name) for f in dataclasses.fields(base)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "make_objective", made)
        patch.setattr(averages, "JUDGED_AFTER", 2)
        runs.forget_programs()  # those of other tests have another objective
        yield
    runs.forget_programs()


def settings(text, **changes):
    """The run above."""
    return small_run(*text, **dict(
        schedule__on_spike="roll_back", schedule__steps=STEPS, schedule__warmup_steps=0,
        logging__every=1, logging__report_every=1000, checkpoint__every=3,
        checkpoint__keep_last=9, evaluation__every=4, model__discriminator__layers=1,
    ) | changes)  # fmt: skip


def leaves(workdir, step=STEPS):
    found = digest(workdir, step)
    return {name: x for name, x in found.items() if not name.startswith("interval/")}


def kill_after(workdir, step):
    """As if the process had ended before it saved another checkpoint."""
    for found in metadata.steps(f"{workdir}/checkpoints"):
        if found > step:
            shutil.rmtree(f"{workdir}/checkpoints/{found}")


SENTENCES = (
    "a spike at step 5: back to the state of step 3; rows 24 to 39 are skipped",
    "a spike at step 7: back to the state of step 6; rows 64 to 71 are skipped",
)


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """The run above: (workdir, final metrics)."""
    workdir = tmp_path_factory.mktemp("finished")
    return workdir, electra_jax.train(settings(text), workdir)


def test_the_state_goes_back_and_the_data_goes_on(text, finished, tmp_path):
    """The same by hand, from the state of step 3 on."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    kill_after(tmp_path, 3)
    run = runs.start(config_lib.parse(settings(text)), str(tmp_path))
    assert run.state.step == 3 and run.state.rows_seen.tolist() == [24, 0]
    order, state = pipeline.Order(run.stage.records, 0), run.state
    for first in (40, 48, 56, 72, 80):
        state = dataclasses.replace(state, rows_seen=jnp.array([first, 0], jnp.uint32))
        taken = order.take(first, 8)
        state, _ = run.stage.update(state, {"ids": taken.ids, "marks": taken.marks})
    assert state.rows_seen.tolist() == [88, 0] and state.skipped_steps == 0
    assert checkpoint.digest(saved_state.tree_of(state, {})) == leaves(finished[0])


def test_each_step_stands_once_in_the_files_as_it_was_in_the_end(finished):
    workdir, _ = finished
    train = [row for row in rows(workdir) if row["kind"] == "train"]
    assert [row["step"] for row in train] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(row["loss"] for row in train) < 100 < 1000 * train[3]["loss"]
    assert [row["step"] for row in rows(workdir) if row["kind"] == "eval"] == [4, 8]
    starts = [
        event.step for event in events_of(workdir / "tensorboard") if event.session_log.status
    ]
    assert starts == [4, 7]  # TensorBoard forgets what it was told of these steps and later


def test_the_log_and_the_report_say_it(finished):
    workdir, _ = finished
    log, page = (workdir / "log.txt").read_text(), (workdir / "report.html").read_text()
    assert [(log.count(text), page.count(text)) for text in SENTENCES] == [(1, 1), (1, 1)]
    assert page.index(SENTENCES[1]) < page.index(SENTENCES[0])  # the latest first
    assert "step 5 skipped: grad_norm is" in log and "step 7 skipped: grad_norm is" in log
    assert metadata.steps(f"{workdir}/checkpoints") == [0, 3, 6, 8]
    about = metadata.read(f"{workdir}/checkpoints/{STEPS}")
    assert about["rollbacks"] == [
        {"from": 5, "to": 3, "first_row": 24, "last_row": 39},
        {"from": 7, "to": 6, "first_row": 64, "last_row": 71},
    ]
    assert about["rows_by_stage"] == [88]


@pytest.mark.parametrize("last", [3, 6])  # each before a spike that it then meets again
def test_killed_it_comes_out_the_same(text, finished, tmp_path, last):
    workdir = tmp_path / "killed"
    shutil.copytree(finished[0], workdir)
    kill_after(workdir, last)
    assert electra_jax.train(settings(text), workdir) == finished[1]
    assert (leaves(workdir), rows(workdir)) == (leaves(finished[0]), rows(finished[0]))
    page = (workdir / "report.html").read_text()
    assert [page.count(text) for text in SENTENCES] == [1, 1]


def test_found_one_step_later_a_spike_is_dealt_with_as_at_once(text, finished, tmp_path):
    """Without a log line a step is read while the next one runs, which then does not count."""
    electra_jax.train(settings(text, logging__every=50, evaluation__every=50), tmp_path)
    assert leaves(tmp_path) == leaves(finished[0])


def test_a_fourth_spike_after_one_checkpoint_ends_the_run(text, tmp_path):
    """With none but that of step 0: rows 0-39, 40-71, 72-103 and 104-135 each end in a spike."""
    message = "step 4 is a spike, and the run has gone back 3 times to step 0 already; .* init.from"
    with pytest.raises(loop.TrainingError, match=message):
        electra_jax.train(settings(text, checkpoint__every=50), tmp_path)
    assert (tmp_path / "log.txt").read_text().count(": back to the state of step 0;") == 3
    assert metadata.steps(f"{tmp_path}/checkpoints") == [0]


def test_what_was_saved_on_the_other_side_of_a_damaged_checkpoint_does_not_count(
    text, tmp_path, monkeypatch
):
    """Back at step 0 the run knows that steps 1 to 3 are not saved any more."""
    go_back, back = loop._Loop._go_back, []

    def watched(self, spike):
        shutil.rmtree(tmp_path / "checkpoints" / "3", ignore_errors=True)
        go_back(self, spike)
        back.append((self._run.step, self._saved_step, self._checkpoints.time.complete))

    monkeypatch.setattr(loop._Loop, "_go_back", watched)
    electra_jax.train(settings(text), tmp_path)
    assert back[0] == (0, 0, 0)


class Hand:
    """A writer that puts a clock forward by a minute when step 4 is logged."""

    def __init__(self):
        self.now = 0.0

    def write(self, step, kind, metrics):
        if step == 4 and kind == "train":
            self.now += 60.0

    def close(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("every", [3, 1000])
def test_minutes_that_were_given_up_at_the_very_end_are_not_trained_again(
    text, tmp_path, monkeypatch, every
):
    """The minute ends with step 5, which is a spike: back to step 3, where nothing was spent."""
    hand = Hand()
    monkeypatch.setattr(budget.Clock.__init__, "__defaults__", (0.0, lambda: hand.now))
    minute = settings(
        text, schedule__budget="minutes", schedule__minutes=1.0, evaluation__every=every
    )
    final = electra_jax.train(minute, tmp_path, [hand])
    assert metadata.steps(f"{tmp_path}/checkpoints") == [0, 3]
    evaluated = [row["step"] for row in rows(tmp_path) if row["kind"] == "eval"]
    assert evaluated == [3]  # once, also if step 3 was evaluated before the spike
    assert electra_jax.train(minute, tmp_path, [hand]) == final
    log = (tmp_path / "log.txt").read_text()
    assert log.count("back to the state of step 3") == 1
    assert "nothing to do: at step 3 the budget, 1m00s of training, is spent" in log
    run = runs.start(config_lib.parse(minute), str(tmp_path))
    assert (run.state.step, run.state.seconds) == (3, 60.0)
    saved_state.note_spent(str(tmp_path), 0, run.state)  # of a checkpoint that is not the newest
    assert runs.start(config_lib.parse(minute), str(tmp_path)).state.seconds == 0
    saved_state.note_spent(str(tmp_path), 3, run.state)
    note = (tmp_path / saved_state.SPENT).read_text()
    for damaged in (note.replace("60.0", "20.0"), "", "[]"):  # a flipped digit, a power cut
        (tmp_path / saved_state.SPENT).write_text(damaged)
        assert runs.start(config_lib.parse(minute), str(tmp_path)).state.seconds == 0


def test_words_of_a_count_and_back():
    for count in (0, 7, 2**32 - 1, 2**32, 5 * 2**32 + 3):
        words = counters.from_int(count)
        assert words.dtype == np.uint32 and counters.to_int(words) == count
