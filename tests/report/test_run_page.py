# SPDX-License-Identifier: Apache-2.0
"""A report can be drawn from any number of rows, holds all it needs, and is never half written."""

import html
import json
import math
import re

import matplotlib.image
import numpy as np
import pytest

from electra_jax.report import drawing, run_page, run_panels
from support import pages


def _rows(count):
    """`count` training rows, the third one all null, and an evaluation after every fifth."""
    rows = []
    for i in range(1, count + 1):
        names = "loss gen_loss disc_loss gen_accuracy disc_accuracy replaced_rate grad_norm"
        metrics = dict.fromkeys(names.split(), 0.5 / i)
        metrics |= {"learning_rate": 1e-4, "tokens_seen": 100 * i, "tokens_per_second": 5e4}
        metrics |= {"step_seconds": 0.5, "grad_norm_generator": 0.2, "padding_rate": 0.125}
        rows.append({"step": 10 * i, "kind": "train"} | metrics)
        if i == 3:
            rows[-1] |= dict.fromkeys(metrics)
        if i % 5 == 0:
            rows.append({"step": 10 * i, "kind": "eval"} | EVALUATION)
    return rows


EVALUATION = {
    "gen_masked_loss": 6.99,
    "unigram_entropy": 7.3,
    "gen_masked_accuracy": 0.12,
    "disc_loss": 0.3,
    "disc_accuracy": 0.88,
    "disc_majority": 0.9,
    "disc_auc": 0.71,
    "disc_recall_at_2": 0.16,
    "disc_auc/wiki": 0.72,
    "disc_accuracy/wiki": 0.93,
    "disc_majority/wiki": 0.91,
    "disc_auc/books": 0.45,
}
SUMMARY = {
    "name": "tiny <1> $x_",
    "status": "running",
    "steps": 200,
    "device": "4 CPU cores",
    "elapsed_seconds": 75,
    "parameters": {"embeddings": 1_000_000, "generator": 200_000, "discriminator": 800_000},
    "config": {"data": {"source": "builtin & co", "batch_size": 32}, "seed": 0},
    "corpus": {"documents": 1234, "unk_rate": 0.001},
    "samples": ['<article class="sample card"><p>the sample</p></article>'],
    "worst_samples": ['<article class="sample card"><p>the worst sample</p></article>'],
    "about_samples": "8 held-out rows, 9 tokens replaced: 11.1% caught",
}


def _written(tmp_path, rows, summary):
    run_page.write(tmp_path, rows, summary)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.png"]
    picture = matplotlib.image.imread(tmp_path / "report.png")
    return (tmp_path / "report.html").read_text(), picture


def _shown(page):
    """The words of a page."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", page).split()))


def test_a_report_tells_the_verdict_the_baselines_and_the_settings(tmp_path):
    page, picture = _written(tmp_path, _rows(20), SUMMARY)
    shown = _shown(page)
    assert "Generator 0.31 nats below the unigram line; discriminator AUC 0.71" in shown
    assert (
        "step 200 of 200 · 1m15s of steps so far · 0s left · 2.00M parameters · 4 CPU cores"
        in shown
    )
    assert "Generator loss 6.990 ▼ 0.310 below token frequencies 7.300" in shown
    assert "Discriminator AUC 0.710 ▲ 0.210 above chance 0.500" in shown
    assert "Recall at 2 % alarms 16.00% ▲ 14.00 points above chance 2.00%" in shown
    assert 'Discriminator accuracy 88.00% ▼ 2.00 points below always "original" 90.00%' in shown
    assert "wiki 0.720 vs 0.500 93.00% vs 91.00%" in shown
    assert "books 0.450 vs 0.500 -" in shown
    assert "Tokens per second 50.0k padding, not counted: 12.50%" in shown
    assert "9 tokens replaced: 11.1% caught." in shown
    assert "data.source builtin & co data.batch_size 32 seed 0" in shown
    assert "documents 1,234 unk_rate 0.001" in shown
    assert "stand out most the sample Where they stand out least the worst sample" in shown
    # The run's name is text, in the page and in the picture: no tag, no formula.
    assert "<h1>tiny &lt;1&gt; $x_<" in page
    assert picture.shape[1] == 1650 and picture.std() > 0.05


def test_what_beats_its_baseline_and_what_does_not_differ_by_more_than_hue(tmp_path):
    page, _ = _written(tmp_path, _rows(5), SUMMARY)
    assert '<span class="good">▲ 0.210</span> above chance' in page
    assert '<span class="bad">▼ 2.00 points</span> below always &#34;original&#34;' in page


@pytest.mark.parametrize("count, charts", [(0, 0), (1, 9), (3, 9), (5, 11)])
def test_any_number_of_rows_can_be_drawn(tmp_path, count, charts):
    page, _ = _written(tmp_path, _rows(count), SUMMARY)
    assert page.count('class="chart card"') == charts
    assert ("Nothing to draw yet" in page) == (count == 0)
    assert ("No held-out evaluation yet." in page) == (count < 5)


def test_rows_of_nothing_but_nulls_are_as_good_as_none(tmp_path):
    rows = [{"step": 10, "kind": "train", "loss": None, "gen_loss": math.nan}]
    page, _ = _written(tmp_path, rows, {})
    assert "Nothing to draw yet" in page


def test_an_open_page_asks_for_news_only_while_the_run_lasts(tmp_path):
    for status, waits in (("running", True), ("finished", False), ("stopped", False)):
        page, _ = _written(tmp_path, _rows(5), SUMMARY | {"status": status})
        assert ('data-refresh="30"' in page) == waits
        assert ('<meta http-equiv="refresh" content="30">' in page) == waits
        assert re.search(
            r'written <time datetime="20[-0-9T:]+\+00:00">20[-0-9: ]+ UTC</time>', page
        )
        assert f'<span class="status {status}">{status}</span>' in page


def test_settings_that_differ_from_the_base_stand_beside_them_and_all_are_folded_away(tmp_path):
    base = {"data": {"source": "hf:wiki", "batch_size": 32}, "seed": 0}
    page, _ = _written(tmp_path, _rows(5), SUMMARY | {"base": base})
    changed, all_settings = re.search(
        r'<table class="changed">(.*?)</table>.*<details id="all-settings">(.*?)</details>',
        page, re.DOTALL,
    ).groups()  # fmt: skip
    changed = " ".join(re.sub("<[^>]*>", " ", changed).split())
    assert changed == "field base here data.source hf:wiki builtin &amp; co"
    assert "All 3 settings" in all_settings and "data.batch_size" in all_settings
    assert 'class="changed"' not in _written(tmp_path, _rows(5), SUMMARY)[0]


def test_what_is_written_as_equal_is_neither_good_nor_bad(tmp_path):
    even = {"disc_accuracy": 0.90001, "disc_accuracy/wiki": 0.91001, "gen_masked_loss": 7.2998}
    page, _ = _written(tmp_path, [], SUMMARY | {"evaluation": EVALUATION | even})
    shown = _shown(page)
    assert 'Discriminator accuracy 90.00% equal to always "original" 90.00%' in shown
    assert "Generator loss 7.300 equal to token frequencies 7.300" in shown
    assert "Generator at the unigram line" in shown
    assert 'accuracy equal to always saying "original"' in shown
    assert '<span class="">91.00%</span>' in page  # of one source


def test_ticks_have_as_many_digits_as_tell_them_apart():
    assert drawing.distinct([0.8873, 0.8874, 0.8875], "percent") == ["88.73%", "88.74%", "88.75%"]
    assert drawing.distinct([0.5, 0.55]) == ["0.5", "0.55"]
    assert drawing.distinct([10.01, 10.02]) == ["10.01", "10.02"]
    assert drawing.distinct([1000, 1500]) == ["1,000", "1,500"]
    assert len({*drawing.distinct([12_340_000, 12_341_000])}) == 2


def test_curves_that_hardly_change_get_a_range_that_few_digits_tell():
    assert drawing.room_around(0.88741, 0.88743) == pytest.approx((0.88653, 0.88831), abs=1e-5)
    assert drawing.room_around(0.5, 0.9) == (0.5, 0.9)
    assert drawing.room_around(0.5, 0.5) == (0.5, 0.5)


def test_labels_that_overlap_move_apart_and_stay_beside_their_chart():
    for places in ([1.0, 1.0, 1.0], [0.0, 0.01, 0.0], [0.97, 0.5, 0.96, 0.94], [0.5]):
        moved = drawing.spread(np.array(places), 0.105)
        assert moved.min() >= 0.02 and moved.max() <= 0.97 + 1e-9
        assert (np.diff(np.sort(moved)) >= 0.105 - 1e-9).all()
        assert (np.argsort(moved) == np.argsort(places, kind="stable")).all()


def test_a_chart_has_both_axes_and_the_points_that_the_pointer_reads(tmp_path):
    page, _ = _written(tmp_path, _rows(20), SUMMARY)
    card = re.search('data-curves="([^"]*)"(?:(?!data-curves).)*Learning rate', page, re.DOTALL)
    curves = json.loads(html.unescape(card[1]))
    assert (curves["along"], curves["unit"]) == ("step", "")
    (line,) = curves["lines"]
    assert line["x"] == [10.0 * i for i in range(1, 21) if i != 3] and {*line["y"]} == {1e-4}

    drawn = pages.charts(page)
    for title, log in (("Learning rate", False), ("Learning rate, logarithmic scale", True)):
        axes = json.loads(html.unescape(re.search('data-axes="([^"]*)"', drawn[title])[1]))
        first = 10 * (10 / 200) ** 0.06 if log else 0
        assert (axes["x"], axes["xlog"]) == ([pytest.approx(first), 200], log)


def test_a_logarithmic_axis_begins_with_the_first_step_that_it_can_show(tmp_path):
    """Weights that a run began with are evaluated at step 0."""
    page, _ = _written(tmp_path, [{"step": 0, "kind": "eval"} | EVALUATION, *_rows(20)], SUMMARY)
    drawn = pages.charts(page)["Learning rate, logarithmic scale"]
    axes = json.loads(html.unescape(re.search('data-axes="([^"]*)"', drawn)[1]))
    assert axes["x"] == [pytest.approx(10 * (10 / 200) ** 0.06), 200]


def test_an_objective_without_discriminator_gets_no_empty_panels(tmp_path):
    rows = [{"step": i, "kind": "train", "gen_loss": 7 - i, "gen_accuracy": 0.1} for i in (1, 2)]
    page, _ = _written(tmp_path, rows, {})
    assert "Generator loss" in page and "Discriminator" not in page


def test_a_main_network_beside_a_generator_predicts_replaced_tokens(tmp_path):
    """It is shown no [MASK], so its loss is not one of masked tokens."""
    beside_one = {name: EVALUATION[name] for name in ("gen_masked_loss", "gen_masked_accuracy")}
    page, _ = _written(tmp_path, [], {"evaluation": beside_one | {"mlm_masked_loss": 7.5}})
    shown = _shown(page)
    assert "Main network's loss 7.500 of the replaced tokens" in shown
    assert "Generator accuracy 12.00% of the masked tokens" in shown
    page, _ = _written(tmp_path, [], {"evaluation": {"mlm_masked_loss": 7.5}})
    assert "Main network's loss 7.500 of the masked tokens" in _shown(page)


def test_the_page_is_one_file_in_light_and_dark(tmp_path):
    page, _ = _written(tmp_path, _rows(20), SUMMARY)
    assert "prefers-color-scheme:dark" in page
    for outside in ("src=", "<link", "@import", "url(http"):
        assert outside not in page
    # Charts follow the palette: no colour of their own is left in them.
    charts = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert "var(--generator)" in charts and "var(--ink)" in charts
    assert not re.findall(r"#[0-9a-f]{6}\b", re.sub('(href="|url\\()#[^")]*', "", charts))
    assert pages.unclosed(page) == []


def test_curves_name_their_end_and_their_baseline(tmp_path):
    page, _ = _written(tmp_path, _rows(20), SUMMARY)
    labels = re.findall("<text[^>]*>([^<]*)</text>", page)
    for label in ("unigram 7.3", "held-out 6.99", "chance 0.5", "majority 90.0%", "2,000 tokens"):
        assert label in labels


def test_the_entropy_of_the_generator_stands_beside_its_loss_and_the_word_frequencies(tmp_path):
    rows = [
        row | {"gen_entropy": 7.2 - 0.01 * i if row["kind"] == "train" else 6.5}
        for i, row in enumerate(_rows(20))
    ]
    page, _ = _written(tmp_path, rows, SUMMARY)
    chart = pages.charts(page)["Generator entropy"]
    labels = re.findall("<text[^>]*>([^<]*)</text>", chart)
    assert {"gen_entropy, nats", "unigram 7.3", "its loss 6.99", "held-out 6.5"} <= {*labels}
    assert "Generator entropy" not in pages.charts(_written(tmp_path, _rows(20), SUMMARY)[0])


def test_a_failure_leaves_the_last_report_whole(tmp_path, monkeypatch):
    _written(tmp_path, _rows(5), SUMMARY)
    before = (tmp_path / "report.html").read_bytes()

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(run_page.os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        run_page.write(tmp_path, _rows(20), SUMMARY)
    assert (tmp_path / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    "summary, message",
    [({"devise": "TPU"}, "no entry 'devise'; known are name"), ({"status": "done"}, "'running'")],
)
def test_an_unknown_entry_of_the_summary_is_refused(tmp_path, summary, message):
    with pytest.raises(ValueError, match=message):
        run_page.write(tmp_path, [], summary)


def test_a_hundred_thousand_rows_become_as_many_points_as_can_be_seen():
    steps = np.arange(100_000.0)
    thin, low, high = run_panels.thinned(
        run_panels.Series(steps, steps % 167)
    )  # 167 rows to a point
    assert len(thin.steps) == len(thin.values) == len(low) == len(high) == 599 <= run_panels.POINTS
    assert thin.steps[0] == thin.values[0] == 83.0  # the mean of 0 ... 166
    assert low[0] == pytest.approx(0.05 * 166) and high[0] == pytest.approx(0.95 * 166)


def test_smoothing_keeps_the_start_and_averages_at_the_end():
    ramp = np.arange(100.0)  # half a window is 2 points
    assert np.allclose(drawing.smoothed(ramp)[:98], ramp[:98])  # a straight line stays one
    assert np.allclose(drawing.smoothed(ramp)[-1], 98.0)  # the mean of 97, 98, 99
    assert drawing.smoothed(np.array([3.0])) == [3.0]
