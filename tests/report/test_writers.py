# SPDX-License-Identifier: Apache-2.0
"""Metrics are written once, survive a kill, and are read beside what they have to beat."""

import json
import math
import resource
import subprocess
import sys

import numpy as np
import pytest
from absl import logging
from tensorboardX.proto import event_pb2

from electra_jax.host import logs
from electra_jax.report import baselines, console_lines, style, writers
from support.tensorboard import events_of


def test_a_row_is_one_json_object_with_seven_digits_and_null_for_what_is_not_finite(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = writers.JsonLines(path)
    writer.write(
        20,
        "train",
        {
            "loss": 24.123456789,
            "tokens_seen": 12_345_678_901,
            "mfu": None,
            "gen_loss": math.nan,
            "disc_loss": -math.inf,
            "grad_norm": np.float32(0.1),
            "skipped_steps": np.int64(0),
        },
    )
    writer.close()
    assert path.read_text() == (
        '{"step": 20, "kind": "train", "loss": 24.12346, "tokens_seen": 12345678901, "mfu": null, '
        '"gen_loss": null, "disc_loss": null, "grad_norm": 0.1, "skipped_steps": 0}\n'
    )


def test_a_row_can_be_read_as_soon_as_it_is_written(tmp_path):
    writer = writers.JsonLines(tmp_path / "metrics.jsonl")
    writer.write(1, "train", {"loss": 1.0})
    assert [row["step"] for row in writers.read(tmp_path / "metrics.jsonl")] == [1]


def test_after_a_resume_no_step_stands_twice(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 10, "kind": "train", "loss": 3.0}\n'
        '{"step": 10, "kind": "eval", "loss": 3.1}\n'
        '{"step": 20, "kind": "train", "loss": 2.0}\n'
        '{"step": 30, "kind": "train", "loss": 1.0}\n'
        '{"step": 40, "kind": "tra'
    )
    writer = writers.JsonLines(path)
    writer.drop_after(20)
    writer.write(30, "train", {"loss": 1.5})
    assert [(row["step"], row["kind"], row["loss"]) for row in writers.read(path)] == [
        (10, "train", 3.0),
        (10, "eval", 3.1),
        (20, "train", 2.0),
        (30, "train", 1.5),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]  # nothing temporary


def test_drop_after_works_before_anything_was_written(tmp_path):
    writers.JsonLines(tmp_path / "metrics.jsonl").drop_after(20)
    assert list(tmp_path.iterdir()) == []


def test_a_torn_last_line_is_never_glued_to_the_next_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2, "ki')
    writers.JsonLines(path).write(2, "train", {"loss": 1.0})
    assert path.read_text().splitlines() == [
        '{"step": 1, "kind": "train"}',
        '{"step": 2, "kind": "train", "loss": 1.0}',
    ]


def test_read_leaves_out_a_torn_last_line_and_names_a_bad_line_before_it(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2')
    assert writers.read(path) == [{"step": 1, "kind": "train"}]
    path.write_text('{"step": 1\n{"step": 2, "kind": "train"}\n')
    with pytest.raises(ValueError, match="line 1: not a row"):
        writers.read(path)


def test_a_disk_that_fills_up_leaves_whole_rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = writers.JsonLines(path)
    writer.write(1, "train", {"loss": 1.0})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 7, hard))
    try:
        with pytest.raises(OSError):
            writer.write(2, "train", {"loss": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    writer.write(2, "train", {"loss": 2.0})
    assert [row["step"] for row in writers.read(path)] == [1, 2]


@pytest.mark.parametrize("name", ["step", "kind"])
def test_a_metric_cannot_overwrite_what_names_the_row(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be called"):
        writers.JsonLines(tmp_path / "m").write(1, "train", {name: 1})


def test_an_unknown_kind_is_refused_by_every_writer(tmp_path):
    for writer in (
        writers.JsonLines(tmp_path / "m"),
        writers.TensorBoard(tmp_path / "events"),
        writers.Console(10),
    ):
        with pytest.raises(ValueError, match="use one of train, eval"):
            writer.write(1, "test", {})
        writer.close()


def test_tensorboard_has_the_same_names_under_train_and_eval(tmp_path):
    writer = writers.TensorBoard(tmp_path)
    writer.write(5, "train", {"loss": 1.5, "mfu": None, "grad_norm": math.inf, "skipped_steps": 2})
    writer.write(5, "eval", {"disc_auc/wiki": 0.75})
    # Before close: a run that is killed keeps what it has told.
    found = [
        (event.step, value.tag, value.simple_value)
        for event in events_of(tmp_path)
        for value in event.summary.value
    ]
    writer.close()
    assert found == [
        (5, "train/loss", 1.5),
        (5, "train/skipped_steps", 2.0),
        (5, "eval/disc_auc/wiki", 0.75),
    ]


def test_tensorboard_hides_what_lies_beyond_the_step_resumed_from(tmp_path):
    writers.TensorBoard(tmp_path).close()
    assert not any(event.HasField("session_log") for event in events_of(tmp_path))
    writers.TensorBoard(tmp_path, drop_after=20).close()
    starts = [event for event in events_of(tmp_path) if event.HasField("session_log")]
    assert [(start.step, start.session_log.status) for start in starts] == [
        (21, event_pb2.SessionLog.START)
    ]
    assert len(list(tmp_path.iterdir())) == 2  # the second start did not write over the first


def test_tensorboard_hides_what_a_start_wrote_that_was_killed_before_it_saved(tmp_path):
    killed = writers.TensorBoard(tmp_path)
    killed.write(5, "train", {"loss": 1.5})
    writers.TensorBoard(tmp_path).close()
    killed.close()
    starts = [event.step for event in events_of(tmp_path) if event.session_log.status]
    assert starts == [1]


TRAIN = {
    "loss": 24.1234,
    "gen_loss": 8.1,
    "gen_masked_loss": 9.4,
    "disc_loss": 0.2987,
    "tokens_per_second": 13_456.0,
    "step_seconds": 0.372,
}
EVAL = {
    "gen_masked_loss": 6.91,
    "unigram_entropy": 7.3,
    "disc_accuracy": 0.89,
    "disc_majority": 0.9,
    "disc_auc": 0.71,
    "gen_masked_accuracy": 0.12,
}


def test_the_console_explains_each_baseline_once(monkeypatch):
    logged = []
    monkeypatch.setattr(
        logging, "info", lambda text, *values, **more: logged.append((text % values, more))
    )
    console = writers.Console(10_200)
    console.write(200, "train", TRAIN)
    console.write(200, "eval", {"disc_auc": 0.71})
    console.write(400, "eval", EVAL)
    console.close()

    line, first, second = (text for text, _ in logged)
    assert line == console_lines.step_line(200, 10_200, TRAIN)
    assert first.splitlines()[-1] == "    chance             guessing at random"
    assert second.splitlines()[-2:] == [
        "    token frequencies  answering with the token frequencies (unigram_entropy)",
        '    always "original"  always saying "original" (disc_majority)',
    ]
    again = writers.Console(10_200, [{"step": 200, "kind": "eval", "disc_auc": 0.71}])
    again.write(400, "eval", EVAL)
    assert logged.pop()[0] == second, "a run that continues explains again what its log explains"

    colours = [more for _, more in logged]
    assert colours == [{}] + 2 * [{"extra": {logs.COLOURS: console_lines.COLOURS}}]


def test_baselines_are_those_of_a_guesser_that_has_learnt_nothing():
    metrics = {"unigram_entropy": 7.0, "disc_majority": 0.5, "disc_majority/wiki": 1.0}
    assert baselines.of("gen_masked_loss", metrics).margin(6.5) == pytest.approx(0.5)
    assert baselines.of("disc_accuracy", metrics).margin(0.4) == pytest.approx(-0.1)
    assert baselines.of("disc_auc/any", {}).value == 0.5
    assert baselines.of("disc_loss", metrics).value == pytest.approx(math.log(2))
    assert baselines.of("disc_loss/wiki", metrics).value == 0.0
    assert baselines.of("gen_masked_loss/wiki", metrics) is None  # not the other sources' entropy
    assert baselines.of("grad_norm", metrics) is None


def test_the_verdict_says_in_words_which_side_of_the_line_a_network_is_on():
    assert baselines.verdict({}) == "No held-out evaluation yet."
    assert baselines.verdict(
        {
            "gen_masked_loss": 6.99,
            "unigram_entropy": 7.3,
            "disc_auc": 0.71,
            "disc_accuracy": 0.91,
            "disc_majority": 0.9,
        }
    ) == (
        "Generator 0.31 nats below the unigram line; "
        'discriminator AUC 0.71, accuracy 1.0 points above always saying "original".'
    )
    worse = baselines.verdict({"gen_masked_loss": 9.3, "unigram_entropy": 7.3, "disc_auc": 0.5})
    assert worse == (
        "Generator 2.00 nats above the unigram line; "
        "discriminator AUC 0.50 (no better than chance)."
    )


@pytest.mark.parametrize(
    "number, text",
    [(0, "0"), (999, "999"), (9999, "9,999"), (10_000, "10.0k"), (99_950, "100k"),
     (999_600, "1.00M"), (12_340_000, "12.3M"), (2.5e9, "2.50B"), (4e12, "4.00T")],
)  # fmt: skip
def test_counts_have_three_digits(number, text):
    assert style.count(number) == text


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (59.6, "1m00s"), (200, "3m20s"), (3599.7, "1h00m"), (3720, "1h02m"),
     (86_399, "1d00h"), (100_000, "1d04h")],
)  # fmt: skip
def test_durations_have_two_units(seconds, text):
    assert style.duration(seconds) == text


@pytest.mark.parametrize(
    "name, value, text",
    [("disc_loss", 0.27, "0.270"), ("loss", 24.12, "24.120"), ("loss", 512.0, "512.00"),
     ("disc_accuracy", 0.91234, "91.23%"), ("mfu", 0.4, "40.00%"), ("disc_auc/wiki", 0.7, "0.700"),
     ("learning_rate", 5e-4, "5.00e-04"), ("grad_norm", 0.0001, "1.0e-04"), ("loss", None, "-"),
     ("loss", math.nan, "-")],
)  # fmt: skip
def test_a_metric_is_written_in_its_usual_unit(name, value, text):
    assert style.metric(name, value) == text


def test_writers_and_reports_need_neither_jax_nor_torch():
    """tensorboardX imports torch where that is installed, so it waits for a run that trains."""
    rooms = "from electra_jax.report import baselines, run_page, style, view, writers"
    code = f"import json, sys; {rooms}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    slow = {"jax", "flax", "tensorflow", "matplotlib.pyplot", "tensorboardX", "torch"}
    assert not slow & set(loaded)
