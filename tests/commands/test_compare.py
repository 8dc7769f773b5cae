# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: what differs, what came out, and whether seeds tell it from luck."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

import matplotlib.image
import matplotlib.pyplot
import pytest

from electra_jax import compare
from electra_jax.report import (
    compared_run,
    comparison,
    comparison_curves,
    comparison_page,
    comparison_table,
    drawing,
    means,
    style,
)
from support import pages
from support.commands import command, complaint
from support.made_runs import workdir


def load(*paths):
    return comparison.compare([compared_run.load(path) for path in paths])


@pytest.fixture
def six(tmp_path):
    """Two settings with three seeds each; final losses 1, 2, 3 and 4, 6, 8."""
    return [
        workdir(tmp_path, f"{name}-seed{seed}", [9.0, loss], seed=seed, objective__disc_weight=w)
        for name, w, losses in (("low", 5.0, (1.0, 2.0, 3.0)), ("high", 50.0, (4.0, 6.0, 8.0)))
        for seed, loss in enumerate(losses)
    ]


def test_runs_that_differ_in_their_seed_alone_become_mean_and_standard_error(six):
    found = load(*six)
    assert [group.title for group in found.groups] == [
        "A  disc_weight 5, 3 seeds",
        "B  disc_weight 50, 3 seeds",
    ]
    low, high = (comparison.final(group, "gen_masked_loss") for group in found.groups)
    # 1, 2, 3: deviation 1, over the root of 3. 4, 6, 8: deviation 2.
    assert low == means.Mean(2.0, pytest.approx(1 / math.sqrt(3)), 3)
    assert high == means.Mean(6.0, pytest.approx(2 / math.sqrt(3)), 3)
    assert comparison.with_error("gen_masked_loss", low) == "2.000 ± 0.577"


def test_what_differs_is_told_by_group(six):
    assert load(*six).differing == {"objective.disc_weight": [5.0, 50.0]}


@pytest.mark.parametrize(
    ("amount", "resolved", "verdict"),
    [(-11.0, True, "better"), (-10.0, True, "better"), (-9.9, False, "not resolved"),
     (11.0, True, "worse"), (9.9, False, "not resolved"), (0.0, False, "equal")],
)  # fmt: skip
def test_a_difference_below_two_standard_errors_is_not_resolved(amount, resolved, verdict):
    first, other = means.Mean(20.0, 3.0, 3), means.Mean(20.0 + amount, 4.0, 3)
    found = comparison.difference("gen_masked_loss", other, first)
    assert found.error == 5.0  # 3 and 4 in squares
    assert (found.resolved, found.verdict) == (resolved, verdict)


def test_better_is_lower_for_a_loss_and_higher_for_an_area():
    low, high = means.Mean(0.1, 0.001, 3), means.Mean(0.9, 0.001, 3)
    verdicts = {name: comparison.difference(name, high, low).verdict for name in comparison.METRICS}
    assert verdicts["disc_loss"] == "worse" and verdicts["disc_auc"] == "better"
    assert verdicts["loss"] == "resolved"  # its weights are settings: neither is good
    assert comparison.difference("disc_auc/wiki", high, low).verdict == "better"


def test_one_seed_has_no_error(tmp_path):
    found = load(
        workdir(tmp_path, "a", [1.0]), workdir(tmp_path, "b", [4.0], optimizer__learning_rate=0.5)
    )
    one, other = (comparison.final(group, "gen_masked_loss") for group in found.groups)
    assert one == means.Mean(1.0, None, 1)
    apart = comparison.difference("gen_masked_loss", other, one)
    assert (apart.amount, apart.error, apart.verdict) == (3.0, None, "one seed")


def test_equal_seeds_have_no_error_out_of_rounding():
    assert means.mean([0.09, 0.09, 0.09]) == means.Mean(0.09, 0.0, 3)


def test_a_copy_of_a_run_counts_once_in_the_baseline_and_the_step_too(tmp_path):
    original = workdir(tmp_path, "original", [2.0])
    copy = shutil.copytree(original, tmp_path / "copy")
    other = workdir(tmp_path, "other", [4.0], seed=1, step=30)
    path = tmp_path / "other" / "metrics.jsonl"
    path.write_text(path.read_text().replace('"unigram_entropy": 6.0', '"unigram_entropy": 7.0'))

    (group,) = load(original, str(copy), other).groups
    assert comparison.final(group, "gen_masked_loss").value == 3.0
    assert comparison.baseline(group, "gen_masked_loss").value == 6.5
    assert comparison.progress(group, "step") == 20.0


def test_a_copy_of_a_run_counts_once(tmp_path):
    """Two seeds with an error of 0.000 would say that seeds make no difference."""
    original = workdir(tmp_path, "original", [2.0])
    copy = shutil.copytree(original, tmp_path / "copy")
    found = load(original, str(copy))
    assert [group.title for group in found.groups] == ["A  original, the same run twice"]
    assert comparison.final(found.groups[0], "gen_masked_loss") == means.Mean(2.0, None, 1)
    assert found.notes == [
        f"A holds the same run again ({copy}: equal seed and metrics), which counts once"
    ]
    assert f"{copy}  seed 0, step 10, 100 tokens, the same run again" in comparison_table.text(
        found
    )

    more = load(original, str(copy), workdir(tmp_path, "other", [4.0], seed=1))
    assert more.groups[0].title.endswith(", 2 seeds, one of them twice")
    assert comparison.final(more.groups[0], "gen_masked_loss") == means.Mean(3.0, 1.0, 2)
    assert len(comparison_curves.panels(more, "step")[0].curves) == 3  # two runs and their mean


def test_names_and_folders_part_no_group(tmp_path):
    runs = [
        workdir(tmp_path, name, [1.0], seed=seed, data__dir=name, logging__every=seed + 1)
        for seed, name in enumerate("ab")
    ]
    assert [len(group.runs) for group in load(*runs).groups] == [2]


def test_many_differences_are_named_by_the_workdirs(tmp_path):
    other = {"optimizer__learning_rate": 0.5, "data__batch_size": 8, "objective__disc_weight": 1.0}
    runs = [workdir(tmp_path, f"plain-seed{s}", [1.0], seed=s) for s in (0, 1)]
    runs.append(workdir(tmp_path, "other", [1.0], **other))
    assert [group.label for group in load(*runs).groups] == ["plain", "other"]


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("plain-seed10", "plain-seed11"), "plain"),
        (("plain_s1", "plain_s12"), "plain"),
        (("books0", "books1"), "books"),
    ],
)
def test_the_number_of_a_seed_is_no_part_of_a_name_and_a_last_letter_is(tmp_path, names, label):
    other = {"optimizer__learning_rate": 0.5, "data__batch_size": 8, "objective__disc_weight": 1.0}
    runs = [workdir(tmp_path, name, [1.0], seed=seed) for seed, name in enumerate(names)]
    found = load(*runs, workdir(tmp_path, "other", [1.0], **other))
    assert [group.label for group in found.groups] == [label, "other"]


@pytest.mark.parametrize(
    "seeds, share",
    [((1, 1), ""), ((2, 2), "18%"), ((3, 3), "12%"), ((11, 11), ""), ((10, 2), "up to 23%")],
)
def test_how_often_luck_passes_for_a_difference_is_said_of_few_seeds(tmp_path, seeds, share):
    """Not of 11, with which it is one case in twenty, as two standard errors are meant."""
    runs = [
        workdir(tmp_path, f"{name}{seed}", [1.0 + seed], seed=seed, optimizer__learning_rate=rate)
        for name, rate, count in zip("ab", (0.1, 0.2), seeds)
        for seed in range(count)
    ]
    said = [note for note in load(*runs).notes if "luck alone" in note]
    assert bool(said) == bool(share)
    if said:
        told = f"with {seeds[0]} and {seeds[1]} seeds luck alone exceeds two standard errors in"
        assert said[0].startswith(f"{told} {share}")


def test_rows_that_each_seed_cuts_for_itself_are_no_other_text(tmp_path):
    """Equal seeds have equal rows; those of others differ by less than half a percent."""

    def notes(*entropies):
        runs = []
        for seed, entropy in entropies:
            name = f"run{len(list(tmp_path.iterdir()))}"
            runs.append(workdir(tmp_path, name, [entropy / 2], seed=seed))
            path = tmp_path / name / "metrics.jsonl"
            own = f'"unigram_entropy": {entropy}'
            path.write_text(path.read_text().replace('"unigram_entropy": 6.0', own))
        return [note for note in load(*runs).notes if "different rows" in note]

    assert notes((0, 6.0), (1, 6.001)) == []
    assert notes((0, 6.0), (1, 6.04)) != []
    assert notes((0, 6.0), (0, 6.001)) != []


def test_the_shape_of_a_network_is_called_by_its_name():
    paths = ("model.generator.width", "model.discriminator.layers", "schedule.warmup_steps")
    assert [comparison.short(path) for path in paths] == [
        "generator.width", "discriminator.layers", "warmup_steps",
    ]  # fmt: skip


def test_a_run_that_has_hardly_begun_does_not_end_the_mean_of_its_group(tmp_path):
    whole = [
        workdir(tmp_path, f"whole{seed}", [4.0, 3.0, 1.0 + seed], seed=seed) for seed in (0, 1)
    ]
    begun = workdir(tmp_path, "begun", [3.0], seed=2)
    (panel,) = [
        one for one in comparison_curves.panels(load(*whole, begun), "step")
        if one.name == "gen_masked_loss"
    ]  # fmt: skip
    (mean,) = [curve for curve in panel.curves if curve.is_mean]
    assert list(mean.x) == [10, 20, 30] and list(mean.y) == [4.0, 3.0, 1.5]


def test_a_logarithmic_axis_begins_with_the_first_step_that_it_can_show(tmp_path):
    """Weights that a run began with are evaluated at step 0."""
    run, other = (workdir(tmp_path, name, [4.0, 3.0, 1.0]) for name in ("run", "other"))
    path = pathlib.Path(run, "metrics.jsonl")
    first = {"step": 0, "tokens_seen": 0, "kind": "eval", "gen_masked_loss": 5.0}
    path.write_text(json.dumps(first) + "\n" + path.read_text())
    (panel,) = [
        one for one in comparison_curves.panels(load(run, other), "step")
        if one.name == "gen_masked_loss"
    ]  # fmt: skip
    assert list(panel.curves[0].x) == [0, 10, 20, 30]
    axes = matplotlib.pyplot.figure().subplots()
    comparison_curves.draw(axes, panel, drawing.STAND_INS, "logarithmic")
    assert axes.get_xlim() == pytest.approx((10 * (10 / 30) ** 0.06, 30))


def test_a_reader_is_told_what_the_numbers_hide(tmp_path):
    a = workdir(tmp_path, "a", [1.0])
    again = workdir(tmp_path, "again", [2.0, 3.0])
    other = workdir(tmp_path, "other", [1.0], objective__mask_rate=0.3)
    text = (tmp_path / "other" / "metrics.jsonl").read_text()
    (tmp_path / "other" / "metrics.jsonl").write_text(
        text.replace('"unigram_entropy": 6.0', '"unigram_entropy": 7.0')
    )
    notes = "\n".join(load(a, again, other).notes)
    assert "A has seed 0 more than once" in notes
    assert "different steps, 10 to 20" in notes
    assert "unigram_entropy 6.0000 to 7.0000" in notes
    assert "only disc_auc_unigram asks the same" in notes
    seed = workdir(tmp_path, "seed", [1.0], seed=1)
    assert load(a, seed).notes == []


def test_losses_of_masked_and_of_replaced_tokens_are_not_compared(tmp_path):
    """Replace MLM predicts what its generator got wrong, BERT what is masked."""
    plain = workdir(tmp_path, "plain", [1.0], objective__name="masked_lm")
    beside = workdir(tmp_path, "beside", [1.0], objective__name="replace_mlm")
    for path, names in (
        (plain, '"mlm_masked_loss"'),
        (beside, '"gen_masked_loss": 1.0, "mlm_masked_loss"'),
    ):
        file = pathlib.Path(path, "metrics.jsonl")
        file.write_text(file.read_text().replace('"gen_masked_loss"', names))

    said = "mlm_masked_loss and mlm_masked_accuracy are of masked tokens without a generator"
    assert said in "\n".join(load(plain, beside).notes)
    other = workdir(tmp_path, "other", [2.0], objective__name="replace_mlm")
    assert said not in "\n".join(load(beside, other).notes)


def masks(found, network="gen"):
    """The notes on what a network's losses are of."""
    return [note for note in found.notes if note.startswith(f"{network}_masked_loss and")]


def test_losses_under_different_masks_are_not_compared(tmp_path):
    """Fewer masked tokens leave more text around each, so its loss is lower by itself."""
    a = workdir(tmp_path, "a", [1.0], objective__mask_rate=0.15)
    b = workdir(tmp_path, "b", [1.2], objective__mask_rate=0.3, objective__mask_unit="word")
    (note,) = masks(load(a, b))
    assert "different masks (mask_rate 0.15 and 0.3; mask_unit token and word)" in note
    assert "compare neither them nor their margins" in note
    spans = workdir(
        tmp_path, "spans", [1.1], objective__mask_unit="span", objective__span_words=5.0
    )
    more = workdir(tmp_path, "more", [1.1], objective__mask_unit="span", objective__span_words=9.0)
    assert "(span_words 5 and 9)" in masks(load(spans, more))[0]

    picture = tmp_path / "c.png"
    comparison_page.write(load(a, b), str(tmp_path / "c.html"), str(picture))
    assert "mask_rate 0.15 and 0.3" in (tmp_path / "c.html").read_text()
    assert "mask_rate 0.15 and 0.3" in comparison_table.text(load(a, b))
    assert matplotlib.image.imread(picture).shape[1] == 1650


@pytest.mark.parametrize(
    "settings",
    [
        {"objective__disc_weight": 7.0},
        {"objective__first_mask_rate": 0.4},  # the rate at the end is the same
        {"objective__span_words": 9.0},  # is not read, since tokens are masked one by one
    ],
)
def test_equal_masks_need_no_note(tmp_path, settings):
    a = workdir(tmp_path, "a", [1.0])
    assert masks(load(a, workdir(tmp_path, "b", [1.2], **settings))) == []


def test_electric_masks_nothing_whatever_its_rate(tmp_path):
    rates = [
        workdir(tmp_path, f"r{rate}", [1.0], objective__name="electric", objective__mask_rate=rate)
        for rate in (0.15, 0.3)
    ]
    assert masks(load(*rates)) == []
    masked = workdir(tmp_path, "masked", [1.0])
    (note,) = masks(load(rates[0], masked))
    assert "words that electric predicts from all others, and of masked tokens elsewhere" in note


def test_masked_language_models_of_other_mask_rates_are_not_compared(tmp_path):
    runs = []
    for rate in (0.15, 0.4):
        path = workdir(
            tmp_path, f"m{rate}", [1.0], objective__name="masked_lm", objective__mask_rate=rate
        )
        file = pathlib.Path(path, "metrics.jsonl")
        file.write_text(file.read_text().replace('"gen_masked_loss"', '"mlm_masked_loss"'))
        runs.append(path)
    assert masks(load(*runs)) == []
    assert "(mask_rate 0.15 and 0.4)" in masks(load(*runs), "mlm")[0]


def test_the_console_holds_means_baselines_and_verdicts(six):
    text = comparison_table.text(load(*six))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "A disc_weight 5, 3 seeds" in lines
    assert f"{six[0]} seed 0, step 20, 200 tokens" in lines
    assert "objective.disc_weight 5 50" in lines
    assert "gen_masked_loss A 2.000 ± 0.577 6.000" in lines
    assert "B 6.000 ± 1.155 6.000 +4.000 ± 1.291 worse" in lines
    assert "disc_auc A 0.200 ± 0.058 0.500" in lines
    coloured = [match.lastgroup for match in re.finditer(comparison_table.COLOURS, text)]
    assert coloured.count("red") == text.count("  worse") > 0
    assert coloured.count("green") == text.count("  better")


def test_a_mean_curve_is_drawn_where_the_seeds_report_together(six):
    drawn = comparison_curves.panels(load(*six), "tokens_seen")
    panels = {panel.title: panel for panel in drawn}
    curves = panels["Generator loss"].curves
    means = [curve for curve in curves if curve.is_mean]
    assert len(curves) == 8 and len(means) == 2
    assert means[0].x.tolist() == [100, 200] and means[0].y.tolist() == [9, 2]
    assert means[1].error.tolist() == pytest.approx([0, 2 / math.sqrt(3)])
    assert panels["Generator loss"].baseline == 6.0


def test_the_axes_disagree_where_runs_see_other_numbers_of_tokens(tmp_path):
    a, b = workdir(tmp_path, "a", [1.0]), workdir(tmp_path, "b", [1.0], seed=1, tokens=101)
    c = workdir(tmp_path, "c", [1.0], data__batch_size=128, tokens=200)
    assert not comparison.tokens_say_more(load(a, b))
    assert comparison.tokens_say_more(load(a, c))


@pytest.fixture
def written(tmp_path, six):
    page, picture = tmp_path / "compare.html", tmp_path / "compare.png"
    comparison_page.write(load(*six), str(page), str(picture))
    return page.read_text(), matplotlib.image.imread(picture)


def test_the_page_is_one_file_that_follows_light_and_dark(written):
    page, picture = written
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "prefers-color-scheme:dark" in page
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    drawn = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert "var(--second)" in drawn and "#fe01" not in drawn
    # Two ladders (loss, area), and four curves by step and again by tokens.
    assert page.count('class="chart card"') == 2 + 2 * 4
    assert picture.shape[1] == 1650 and picture.std() > 0.05
    assert pages.unclosed(page) == []


def test_the_page_tells_the_numbers(written):
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", written[0]))
    assert "6 runs, 2 configurations: disc_weight" in shown
    assert "B disc_weight 50, 3 seeds step 20, 200 tokens" in shown
    assert "gen_masked_loss 2.000 ± 0.577 unigram entropy 6.000 6.000 ± 1.155" in shown
    assert "+4.000 ± 1.291, worse unigram entropy 6.000" in shown
    assert '<span class="bad">worse</span>' in written[0]
    assert "by step" in shown and "by tokens seen" in shown


def note_start(run, **facts):
    """A start of a made-up run: its training rows get a speed, so that its cost is known."""
    about = {"step": 0, "device_count": 4, "row_flops": [1e6], "jax": "0.10.2"} | facts
    with open(f"{run}/starts.jsonl", "w") as file:
        print(json.dumps(about), file=file)
    with open(f"{run}/metrics.jsonl") as file:
        rows = [json.loads(line) for line in file]
    with open(f"{run}/metrics.jsonl", "w") as file:
        for row in rows:
            speed = {"step_seconds": 90.0} if row["kind"] == "train" else {}
            print(json.dumps(row | speed), file=file)


def test_the_page_tells_cost_and_environment_and_which_runs_are_unfinished(tmp_path):
    a = workdir(tmp_path, "a", [1.0, 2.0], data__batch_size=32, schedule__steps=20)
    b = workdir(tmp_path, "b", [1.0, 2.0], data__batch_size=64, schedule__steps=1500)
    note_start(a, commit="c0ffee", devices="4 x TPU v5e", command="python a")
    note_start(b, commit="decade", devices="4 x TPU v5e", command="python b", jax="0.11.0")
    found = load(a, b)
    assert found.unfinished == [f"{b} (step 20 of 1,500)"]
    assert comparison_table.text(found).endswith(f"unfinished: {b} (step 20 of 1,500)")

    page = comparison_page.html(found)
    shown = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert f"Unfinished then: {b} (step 20 of 1,500)." in shown
    # 20 steps of 32 and of 64 rows; 20 steps of 90 seconds on 4 devices are 2 device-hours.
    assert f"A {a} 0 20 200 6.4e+08 2 4 x TPU v5e c0ffee" in shown
    assert f"B {b} 0 20 of 1,500 200 1.28e+09 2 4 x TPU v5e decade" in shown
    assert "all runs 4 " in shown
    assert "Environments differ jax 0.10.2 A 0.11.0 B commit c0ffee A decade B" in shown
    assert "Environment that all runs share: 1 facts devices 4 x TPU v5e" in shown
    assert f"The commands of the runs {a} python a {b} python b" in shown
    assert "data-refresh=" not in page
    assert 'data-refresh="30"' in comparison_page.html(found, follows=True)
    assert pages.unclosed(page) == []


def test_a_page_that_follows_is_drawn_until_all_runs_have_finished(tmp_path):
    runs = [
        workdir(tmp_path, name, [2.0], seed=seed, schedule__steps=20)
        for seed, name in enumerate("ab")
    ]
    out, seen = tmp_path / "c.html", []

    def wait(seconds):
        assert seconds == 30
        seen.append(out.read_text() if seen else "")
        with open(f"{runs[len(seen) - 1]}/metrics.jsonl", "a") as file:
            print(json.dumps({"step": 20, "kind": "train", "loss": 1.0}), file=file)

    compare.follow(runs, (str(out), str(tmp_path / "c.png")), wait)
    assert len(seen) == 2
    assert 'data-refresh="30"' in seen[1] and f"Unfinished then: {runs[1]}" in seen[1]
    last = out.read_text()
    assert "data-refresh=" not in last and "Unfinished then" not in last


def test_a_page_that_follows_no_longer_waits_for_no_news(tmp_path):
    runs = [workdir(tmp_path, name, [2.0], seed=seed) for seed, name in enumerate("ab")]

    def wait(_):
        raise KeyboardInterrupt

    compare.follow(runs, (str(tmp_path / "c.html"), str(tmp_path / "c.png")), wait)
    page = (tmp_path / "c.html").read_text()
    assert "data-refresh=" not in page and "Unfinished then" in page


def test_names_are_text_and_never_tags(tmp_path):
    runs = [
        workdir(tmp_path, "<b>&", [1.0], seed=1),
        workdir(tmp_path, "$x_", [2.0], seed=1, data__text_field="<i>"),
    ]
    comparison_page.write(load(*runs), str(tmp_path / "c.html"), str(tmp_path / "c.png"))
    page = (tmp_path / "c.html").read_text()
    assert "&lt;i&gt;" in page and "<i>" not in page and "<b>&" not in page


def test_runs_before_their_first_evaluation_are_drawn_from_training(tmp_path):
    runs = [workdir(tmp_path, name, [3.0, 2.0], seed=seed) for seed, name in enumerate("ab")]
    for name in "ab":
        path = tmp_path / name / "metrics.jsonl"
        rows = [line for line in path.read_text().splitlines() if '"train"' in line]
        path.write_text("\n".join(rows) + "\n")
    found = load(*runs)
    assert "no run has been evaluated yet" in comparison_table.text(found)
    comparison_page.write(found, str(tmp_path / "c.html"), str(tmp_path / "c.png"))
    page = (tmp_path / "c.html").read_text()
    assert "No run has been evaluated yet." in page and "Training loss" in page


def test_more_groups_than_colours_stay_apart(tmp_path):
    styles = [drawing.group_style(place, style.LIGHT) for place in range(16)]
    assert len(set(styles)) == 16
    assert [comparison.letter(place) for place in (0, 25, 26, 52)] == ["A", "Z", "AA", "BA"]


def test_the_command_writes_a_page_and_a_picture_beside_it(tmp_path, six):
    out = tmp_path / "out.html"
    result = command(six[0], six[3], f"--out={out}", module="electra_jax.compare")
    assert result.returncode == 0, result.stderr
    assert "+3.000" in result.stdout and "one seed" in result.stdout
    assert f"wrote {out} and {tmp_path}/out.png" in result.stdout
    assert out.exists() and (tmp_path / "out.png").exists()


def test_bad_workdirs_are_one_line(tmp_path):
    good = workdir(tmp_path, "good", [1.0])
    (tmp_path / "empty").mkdir()
    for name, rows in (("waiting", ""), ("torn", '{"step": 1}\n{"step": 2, "kind": "eval"}\n')):
        (tmp_path / workdir(tmp_path, name, [1.0]) / "metrics.jsonl").write_text(rows)
    (tmp_path / workdir(tmp_path, "unread", [1.0]) / "config.json").write_text("{")
    for paths, message in (
        ([good, str(tmp_path / "none")], "none is not a folder"),
        ([good, str(tmp_path / "empty")], "empty has no config.json"),
        ([good, str(tmp_path / "waiting")], "metrics.jsonl holds no rows yet"),
        ([good, str(tmp_path / "torn")], "metrics.jsonl, line 1: not a row of metrics"),
        ([good, str(tmp_path / "unread")], "config.json cannot be used"),
        ([good, good + "/"], "is given twice"),
        ([good], "give at least two"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            load(*paths)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "0 workdirs given; name at least two"),
        (["a", "b", "--out=x.pdf"], "--out=x.pdf does not end in .html"),
        (["a", "b", "--out=none/x.html"], "there is no folder none"),
        (["--workdir=a", "b"], "write a without --workdir="),
        (["a", "s3://b/x"], "workdir='s3://b/x' is an address of a kind that cannot be used here"),
        (["a", "b", "--out=gs://b/x.html"], "--out='gs://b/x.html' is an address of a kind that"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message):
    assert message in complaint(*arguments, module="electra_jax.compare")


def test_a_reader_that_has_seen_enough_is_no_error_and_the_page_is_written(six, tmp_path):
    """As with `| head`, which closes the pipe."""
    page = tmp_path / "page.html"
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "electra_jax.compare", *six, f"--out={page}"],
            stdout=gone, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert page.exists() and page.with_suffix(".png").exists()
