# SPDX-License-Identifier: Apache-2.0
"""Alarms over made-up rows, so short that a reader sees when each has to be raised."""

import re

import pytest

from electra_jax.report import alarms, run_page, run_panels
from support import pages


def train(**columns):
    """Rows at steps 10, 20, ... from equally long columns."""
    length = len(next(iter(columns.values())))
    return [
        {"step": 10 * (i + 1), "kind": "train"} | {name: x[i] for name, x in columns.items()}
        for i in range(length)
    ]


def evaluations(**columns):
    """The same as evaluations; 0.9 of tokens are original, word frequencies give 7, chance 1/5."""
    beside = {"kind": "eval", "disc_majority": 0.9, "unigram_entropy": 7.0, "selection_chance": 0.2}
    return [row | beside for row in train(**columns)]


def found(rows):
    return [(alarm.step, alarm.name) for alarm in alarms.alarms(rows)]


STEADY = [20.0, 20.1, 19.9, 20.0, 20.2, 19.8, 20.0, 20.1, 19.9, 20.0]


def test_a_loss_far_above_the_rows_before_it_is_a_spike():
    """Median 20 and MAD 0.1: the bound is 10 x 1.4826 x 0.1 above, or 10 % where that is more."""
    assert found(train(loss=[*STEADY, 21.9])) == []
    assert found(train(loss=[*STEADY, 22.1])) == [(110, "loss_spike")]
    assert found(train(gen_loss=[*STEADY, 60.0])) == [(110, "loss_spike")]
    wild = [20.0, 30.0, 10.0] * 4  # a MAD of 10
    assert found(train(loss=[*wild, 100.0])) == []
    assert found(train(loss=[*wild, 170.0])) == [(130, "loss_spike")]


def test_a_spike_is_told_once_and_a_second_one_again():
    assert found(train(loss=[*STEADY, 40.0, 41.0, 20.0, 39.0])) == [
        (110, "loss_spike"),
        (140, "loss_spike"),
    ]


def test_an_evaluation_in_between_does_not_end_a_spike():
    rows = train(disc_loss=[*STEADY, 40.0, 41.0])
    rows.insert(11, evaluations(disc_loss=[0.2])[0])
    assert found(rows) == [(110, "loss_spike")]


def test_falling_losses_and_the_first_rows_are_no_spikes():
    assert found(train(loss=[40.0 / (i + 1) for i in range(100)])) == []
    assert found(train(loss=[1.0, 50.0, 1.0, None, 2.0])) == []


def test_samples_as_good_as_the_best_guess_are_no_samples_any_more():
    best = [0.30] * 6
    assert found(train(gen_accuracy=best, gen_sampled_accuracy=[0.2] * 6)) == []
    assert found(train(gen_accuracy=best, gen_sampled_accuracy=[0.2, 0.2, *[0.299] * 4])) == [
        (50, "generator_collapse")  # the third row in a row
    ]
    assert found(train(gen_accuracy=[0.001] * 6, gen_sampled_accuracy=[0.002] * 6)) == []  # begins


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (dict(disc_recall=[0.0, 0.4, 0.001, 0.002, 0.0, 0.0]), "discriminator_collapse"),
        (dict(disc_auc=[0.5, 0.8, 0.505, 0.49, 0.5, 0.5]), "discriminator_collapse"),
        # 0.325 nats is what the best constant guess gets with 0.9 original
        (dict(disc_loss=[0.6, 0.2, 0.33, 0.34, 0.4, 0.4]), "discriminator_collapse"),
        # 1.609 nats is what a guess among five tokens gets
        (dict(selection_loss=[1.7, 1.2, 1.62, 1.63, 1.62, 1.62]), "discriminator_collapse"),
        (dict(gen_masked_loss=[9.0, 5.0, 7.1, 7.2, 7.1, 7.3]), "generator_collapse"),
        (dict(mlm_masked_loss=[9.0, 5.0, 7.1, 7.2, 7.1, 7.3]), "main_network_collapse"),
    ],
)
def test_what_was_learnt_and_is_lost_over_three_evaluations(columns, name):
    assert found(evaluations(**columns)) == [(50, name)]
    (metric, values), = columns.items()  # fmt: skip
    never = [values[0], *values[2:], values[2]]  # without the good one
    assert found(evaluations(**{metric: never})) == []
    for_two = [*values[:4], values[1], *values[2:4]]
    assert found(evaluations(**{metric: for_two})) == []


def test_rows_without_these_metrics_raise_nothing():
    assert (
        found([{"step": 1, "kind": "train"}, {"step": 1, "kind": "eval", "disc_auc": None}]) == []
    )


def test_the_report_marks_an_alarm_and_says_it(tmp_path):
    rows = train(loss=STEADY, gen_loss=STEADY)
    run_page.write(tmp_path, rows, {})
    quiet = (tmp_path / "report.html").read_text()
    assert "Alarms" not in quiet
    rows += [{"step": 110, "kind": "train", "loss": 40.0, "gen_loss": 20.0}]
    run_page.write(tmp_path, rows, {})
    page = (tmp_path / "report.html").read_text()
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "Alarms ! step 110 loss jumped to 40.000; the median of the 10 rows" in shown
    charts = [re.findall("<svg.*?</svg>", text, re.DOTALL)[0] for text in (quiet, page)]
    assert ["var(--bad)" in chart for chart in charts] == [False, True]


def test_the_report_shows_each_alarm_in_the_curves_that_it_is_about(tmp_path):
    """A spike at step 110; recall and entropy that are lost for three evaluations at step 50."""
    rows = [
        *train(loss=[*STEADY, 40.0], gen_loss=[*STEADY, 6.0], disc_loss=[*STEADY, 6.0]),
        *evaluations(
            disc_recall=[0.0, 0.4, 0.0, 0.0, 0.0, 0.0],
            disc_auc=[0.5, 0.8, 0.7, 0.7, 0.7, 0.7],
            gen_masked_loss=[4.0] * 6,
            gen_entropy=[6.0, 3.5, 0.3, 0.3, 0.3, 0.3],
        ),
    ]
    assert sorted(found(rows)) == [
        (50, "discriminator_collapse"), (50, "generator_collapse"), (110, "loss_spike")
    ]  # fmt: skip
    run_page.write(tmp_path, rows, {})
    page = (tmp_path / "report.html").read_text()
    for sentence in ("jumped to 40", "calls nearly all original", "is sure and wrong"):
        assert sentence in page
    marks = {
        name: chart.count("var(--bad)")
        for name, chart in pages.charts(page).items()
        if not name.endswith(", logarithmic scale")
    }
    assert marks == {
        "Generator loss": 2,
        "Generator entropy": 1,
        "Discriminator loss": 2,
        "Discriminator AUC": 1,
    }


def test_every_alarm_has_its_panels():
    names = {name for name, *_ in alarms._LOST.values()} | {"loss_spike"}
    assert names == set(run_panels.MARKED)


def test_a_watch_that_goes_on_says_nothing_twice():
    rows = train(loss=[*STEADY, 40.0, 41.0, 20.0, 39.0])
    watch = alarms.Watch(rows[:11])
    assert [alarm.step for row in rows[11:] for alarm in watch.see(row)] == [140]


def test_an_entropy_far_below_the_loss_is_a_generator_that_is_sure_and_wrong():
    """A tenth of the loss, in the third evaluation in a row; one that knows may well be sure."""
    loss = [6.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert (
        found(evaluations(gen_masked_loss=loss, gen_entropy=[6.0, 3.5, 0.5, 0.5, 0.5, 0.5])) == []
    )
    assert found(evaluations(gen_masked_loss=loss, gen_entropy=[6.0, 3.5, 0.3, 0.3, 0.3, 0.3])) == [
        (50, "generator_collapse")
    ]
    knows = [6.0, 0.3, 0.3, 0.3, 0.3, 0.3]
    assert found(evaluations(gen_masked_loss=knows, gen_entropy=knows)) == []
