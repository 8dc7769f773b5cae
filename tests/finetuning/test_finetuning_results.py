# SPDX-License-Identifier: Apache-2.0
"""Scores over seeds, and every form in which they are written."""

import dataclasses
import json
import math
import re
import statistics as python_statistics
import zipfile

import numpy as np
import pytest

from electra_jax.finetuning.results import (
    answers,
    results_file,
    results_table,
    run_results,
    scores,
    submission,
)
from electra_jax.finetuning.results import page as page_lib
from electra_jax.finetuning.results import statistics as statistics_lib
from electra_jax.finetuning.tuning import run_folder
from support import made_results, pages
from support.made_results import seed, task

# --- statistics -------------------------------------------------------------------------------


def test_a_failed_seed_moves_the_mean_and_not_the_median():
    values = [0.50, 0.52, 0.54, 0.0, 0.53]
    found = statistics_lib.summarise("mcc", values)
    assert found.median == 0.52 and found.best == 0.54 and found.count == 5
    assert found.mean == pytest.approx(python_statistics.mean(values))
    assert found.sd == pytest.approx(python_statistics.stdev(values))
    assert found.error == pytest.approx(python_statistics.stdev(values) / math.sqrt(5))


def test_one_seed_has_no_deviation_and_equal_seeds_have_none_out_of_rounding():
    one = statistics_lib.summarise("mcc", [0.5])
    assert (one.median, one.sd, one.error, one.count) == (0.5, None, None, 1)
    assert statistics_lib.summarise("mcc", [0.09] * 3).sd == 0


def test_the_best_error_is_the_least():
    assert statistics_lib.summarise("mse", [0.3, 0.2]).best == 0.2


def test_a_seed_that_is_not_finite_is_counted_apart():
    found = statistics_lib.summarise("pearson", [0.8, math.nan, 0.9])
    assert (found.median, found.count, found.failed) == (pytest.approx(0.85), 2, 1)
    assert math.isnan(statistics_lib.summarise("pearson", [math.nan]).median)


@pytest.mark.parametrize(
    ("kind", "metric", "predictions", "labels", "words"),
    [
        ("classification", "mcc", [1, 1, 1], [0, 1, 1], "predicts yes for every example"),
        ("classification", "accuracy", [0, 1, 1], [1, 0, 1], "accuracy 0.3333 is no better than a"),
        ("regression", "pearson", [2.0, 2.0], [1.0, 2.0], "predicts 2 for every example"),
        ("regression", "pearson", [1.0, math.nan], [1.0, 2.0], "the run diverged"),
        ("regression", "mse", [9.0, 1.0], [1.0, 2.0], "mse 32.5000 is no better than a constant"),
        ("multi_label", "micro_f1", [[1, 0]] * 2, [[1, 0], [0, 1]], "the same labels for every"),
        ("tagging", "entity_f1", [["O", "O"]], [["B-X", "O"]], "tags every word O"),
        ("span", "span_f1", ["", ""], [["cat"], []], "answers no question"),
    ],
)
def test_a_run_that_has_learnt_nothing_is_named(kind, metric, predictions, labels, words):
    (found,) = statistics_lib.degenerate(kind, metric, predictions, labels, ("no", "yes"))
    assert words in found


def test_a_run_that_has_learnt_something_is_not():
    assert statistics_lib.degenerate("classification", "mcc", [0, 1, 1], [0, 1, 0]) == []
    assert statistics_lib.degenerate("tagging", "entity_f1", [["B-X", "O"]], [["B-X", "O"]]) == []


def test_far_below_is_far_in_deviations_and_in_points():
    far = statistics_lib.far_below
    assert list(far("mcc", [0.50, 0.52, 0.54, 0.30, 0.53])) == [3]
    assert far("mcc", [0.500, 0.501, 0.502, 0.460, 0.501]) == {}  # four points
    assert far("mcc", [0.50, 0.40, 0.60, 0.30, 0.70]) == {}  # all are far apart
    assert far("mcc", [0.5, 0.5, 0.1]) == {}  # too few to say
    assert list(far("mse", [0.50, 0.52, 0.54, 0.90, 0.53])) == [3]
    assert far("mse", [0.50, 0.52, 0.54, 0.10, 0.53]) == {}


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        ([0.1, 0.2, 0.3], "better"),  # 0.4 apart; errors 0.058 each, 0.082 together
        ([0.35, 0.45, 0.55], "not resolved"),  # 0.15 apart
        ([0.9, 1.0, 1.1], "worse"),
        ([0.5, 0.6, 0.7], "equal"),
        ([0.1], "one seed"),
    ],
)
def test_a_difference_below_two_standard_errors_is_not_resolved(second, verdict):
    found = statistics_lib.difference("mcc", [0.5, 0.6, 0.7], second)
    assert found.verdict == verdict
    if len(second) == 3:
        assert found.error == pytest.approx(math.sqrt(2 / 3) / 10)


def test_the_lower_error_is_the_better():
    assert statistics_lib.difference("mse", [0.1, 0.1], [0.2, 0.2]).verdict == "better"


# --- tables and the file ----------------------------------------------------------------------


@pytest.fixture
def three():
    """Accuracy with a failed seed, a correlation with two metrics, and two dev splits."""
    return made_results.three()


def test_the_console_table_puts_the_median_first(three):
    lines = [" ".join(line.split()) for line in results_table.text(three).splitlines()]
    assert lines[:4] == [
        "fine-tuning small-wiki",
        "encoder: workdir runs/small, step 10,000, parameters 13,549,057",
        "device: 2 CPU cores",
        "last command: 12m30s",
    ]
    assert "task split metric median mean ± sd best n guess" in lines
    assert "cola dev mcc 52.00 41.80 ± 23.41 54.00 5 0.00" in lines
    assert "stsb dev spearman 85.00 85.00 ± 7.07 90.00 2 0.00" in lines
    assert "mse 0.5000 0.5000 ± 0.3536 0.2500 2 2.2500" in lines
    assert "mnli dev_matched accuracy 30.00 30.00 30.00 1 35.00" in lines
    assert "dev_mismatched accuracy 30.00 30.00 30.00 1 -" in " ".join(lines)
    warned = [line for line in lines if line.startswith("WARNING")]
    assert warned == [
        "WARNING: cola, seed 3: dev: mcc 0.0000 is far below the median of the seeds, 0.5200"
    ]
    assert "note: stsb: 3 pairs cut to 128 tokens" in lines
    assert "which is optimistic" in lines[-1]


def test_a_seed_that_says_why_it_failed_is_warned_of_once():
    values = [0.5, 0.52, 0.54, 0.0, 0.53]
    seeds = [seed(n, v, warnings=["predicts 1"] if not v else []) for n, v in enumerate(values)]
    assert run_results.TaskResult("cola", "classification", "mcc", seeds).warnings == [
        (3, "predicts 1")
    ]


def test_markdown_is_a_table_with_the_main_medians_bold(three):
    text = results_table.markdown(three)
    assert "| cola | dev | mcc | **52.00** | 41.80 ± 23.41 | 54.00 | 5 | 0.00 |" in text
    assert "| stsb | dev | mse | 0.5000 | 0.5000 ± 0.3536 | 0.2500 | 2 | 2.2500 |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert "- cola, seed 3: dev: mcc 0.0000 is far below" in text


def test_a_line_break_in_a_name_does_not_end_a_row_of_the_table():
    rows = results_table._markdown_table([["label", "f1"], ["a\nb|c", "1.00"]], left=1)
    assert rows == ["| label | f1 |", "| --- | ---: |", "| a b\\|c | 1.00 |"]


def test_the_average_of_glue_waits_for_its_eight_tasks():
    tasks = [task(name, [0.1 * n, 0.1 * n + 0.2, 0.9]) for n, name in enumerate(run_results.GLUE)]
    assert run_results.Results("all", tasks[:-1]).glue_average is None
    found = run_results.Results("all", tasks).glue_average
    assert found == pytest.approx(np.mean([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]))
    assert "GLUE average of 8 medians" in results_table.text(run_results.Results("all", tasks))


PERSONS = {"f1": 0.5, "precision": 0.25, "recall": 0.75, "count": 1200}
PLACES = {"f1": 0.9, "precision": 0.9, "recall": 0.9, "count": 3}


def entities(*by_label):
    """Results of a tagging task with one seed for each of these scores of types."""
    seeds = [
        run_results.SeedResult(n, {"dev": {"entity_f1": 0.7}}, by_label={"dev": one} if one else {})
        for n, one in enumerate(by_label)
    ]
    task = run_results.TaskResult("ner", "tagging", "entity_f1", seeds)
    return run_results.Results("labels", [task])


def test_each_type_of_entities_has_a_line_with_means_over_seeds(tmp_path):
    # Seed 1 has met no place; seed 2 was tuned by a version that kept no scores of labels.
    results = entities({"PER": PERSONS, "|": PLACES}, {"PER": PERSONS | {"f1": 0.7}}, None)
    results = results_file.load(results_file.write(str(tmp_path), results)[0])
    text = results_table.markdown(results)
    assert "## ner, dev: each type of entities" in text
    assert "| label | F1, mean ± sd | precision | recall | examples |" in text
    assert "| PER | 60.00 ± 14.14 | 25.00 | 75.00 | 1,200 |" in text
    assert "| \\| | 45.00 ± 63.64 | 45.00 | 45.00 | 3 |" in text
    page = page_lib.html(results)
    assert pages.unclosed(page) == []
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "ner, dev: each type of entities label F1, mean ± sd precision" in shown
    assert "PER 60.00 ± 14.14 25.00 75.00 1,200" in shown


def test_results_come_back_from_their_file(tmp_path, three):
    paths = results_file.write(str(tmp_path), three)
    assert [path.rsplit("/")[-1] for path in paths] == ["results.json", "results.md"]
    back = results_file.load(paths[0])
    assert results_file.to_json(back) == results_file.to_json(three)
    assert results_table.text(back) == results_table.text(three)
    assert back.tasks[0].seeds[1].curve[1] == run_results.CurvePoint(20, 0.4, {"mcc": 0.52})


def test_the_file_holds_what_its_page_says(tmp_path, three):
    tree = json.loads((tmp_path / results_file.write(str(tmp_path), three)[0]).read_text())
    assert tree["version"] == results_file.VERSION
    cola = tree["tasks"][0]
    assert cola["dev"]["dev"]["mcc"] == {
        "median": 0.52,
        "mean": pytest.approx(0.418),
        "sd": pytest.approx(0.234137, abs=1e-6),
        "standard_error": pytest.approx(0.104709, abs=1e-6),
        "best": 0.54,
        "n": 5,
        "failed": 0,
        "guess": 0.0,
        "values": [0.5, 0.52, 0.54, 0.0, 0.53],
    }
    assert cola["warnings"][0]["seed"] == 3
    assert cola["seeds"][0]["curve"][0] == {"step": 10, "loss": 0.7, "scores": {"mcc": 0.25}}


def test_numbers_that_are_not_finite_are_null_and_come_back(tmp_path):
    diverged = run_results.Results("x", [task("stsb", [0.8, math.nan, np.float32(0.5)])])
    path = results_file.write(str(tmp_path), diverged)[0]
    tree = json.loads((tmp_path / "results.json").read_text())
    assert tree["tasks"][0]["dev"]["dev"]["mcc"]["values"] == [0.8, None, 0.5]
    back = results_file.load(path).tasks[0]
    assert math.isnan(back.values("dev", "mcc")[1])
    assert results_table.table_rows(results_file.load(path))[0].count == "2 of 3"


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"version": 1}', '{"version": 9}'])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="is no results.json") as caught:
        results_file.load(str(path))
    assert "\n" not in str(caught.value)


def test_two_results_are_held_against_each_other(tmp_path):
    tasks = [task("cola", [0.5, 0.6, 0.7]), task("rte", [0.5])]
    fresh = run_results.Results("fresh", [task("cola", [0.1, 0.2, 0.3]), task("mrpc", [0.7])])
    ours = run_results.Results("pre-trained", tasks, control=fresh)
    (row,) = run_results.compare(ours, fresh)
    assert (row.task, row.difference.amount) == ("cola", pytest.approx(0.4))

    path = tmp_path / "results.html"
    page_lib.write(str(path), ours)
    shown = " ".join(re.sub("<[^>]*>", " ", path.read_text()).split())
    assert "cola dev mcc 60.00 ± 5.77 20.00 ± 5.77 +40.00 ± 8.16 better" in shown
    printed = " ".join(results_table.text(ours).split())
    assert "cola dev mcc 60.00 ± 5.77 20.00 ± 5.77 +40.00 ± 8.16 better" in printed
    row = "| cola | dev | mcc | 60.00 ± 5.77 | 20.00 ± 5.77 | +40.00 ± 8.16 | better |"
    assert row in results_table.markdown(ours).splitlines()
    results_file.write(str(tmp_path), ours)
    assert "fresh" not in (tmp_path / "results.json").read_text(), "the control has its own file"


def test_a_control_with_other_examples_is_pointed_out():
    fresh = run_results.Results("fresh", [task("cola", [0.1], examples={"train": 8551, "dev": 99})])
    ours = run_results.Results("ours", [task("cola", [0.5])], control=fresh)
    assert results_table.all_notes(ours)[-1] == (
        "cola has other examples than in fresh, so its scores do not compare: 1,043 of dev here and"
        " 99 there"
    )


# --- the page ---------------------------------------------------------------------------------


def test_the_page_is_one_file_that_follows_light_and_dark(tmp_path, three):
    control = run_results.Results("fresh", [task("cola", [0.05, 0.02, 0.1])])
    three = dataclasses.replace(three, control=control)
    page_lib.write(str(tmp_path / "results.html"), three)
    page = (tmp_path / "results.html").read_text()
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "prefers-color-scheme:dark" in page
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    drawn = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert "var(--second)" in drawn and "#fe01" not in drawn
    assert (
        page.count('class="chart card"') == 1 + 2
    )  # where the seeds ended; the score and the loss of cola
    assert pages.unclosed(page) == []
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "cola dev mcc 52.00 41.80 ± 23.41 54.00 5 0.00" in shown
    assert "mnli dev_matched accuracy no gain over the guess 30.00" in shown
    assert "cola, seed 3 : dev: mcc 0.0000 is far below" in shown
    assert "seed 3 0.0" in shown  # named at the end of its line
    assert "Against fresh" in shown and "better" not in shown.split("Against fresh")[0]
    assert "train 8,551, dev 1,043" in shown and "1m15s" in shown
    assert "weights are the averaged ones" in shown


def test_a_page_without_a_task_or_a_curve_is_whole(tmp_path):
    for name, tasks in (("none", []), ("bare", [run_results.TaskResult("rte", "span", "f1", [])])):
        page_lib.write(str(tmp_path / name), run_results.Results("x", tasks))
        assert pages.unclosed((tmp_path / name).read_text()) == []
    assert "No task has finished yet." in (tmp_path / "none").read_text()


def test_names_are_text_and_never_tags(tmp_path):
    failed = task("$x_<i>", [0.5, 0.52, 0.54, 0.0, 0.53], notes=["<u>"])
    odd = run_results.Results("<b>&", [failed], device="<s>")
    page_lib.write(str(tmp_path / "p.html"), dataclasses.replace(odd, control=odd))
    page = (tmp_path / "p.html").read_text()
    assert "far below" in page
    for tag in ("<b>&", "<i>", "<u>", "<s>"):
        assert tag not in page


# --- what others read -------------------------------------------------------------------------


def test_glue_gets_its_names_headers_and_words(tmp_path):
    path = tmp_path / "glue.zip"
    said = submission.glue(
        str(path),
        {
            "cola": [1, 0],
            "stsb": [5.25, -0.125, 2.0625],
            "mnli_matched": ["neutral", "contradiction"],
            "rte": np.array(["not_entailment", "entailment"]),
        },
    )
    with zipfile.ZipFile(path) as file:
        held = {name: file.read(name).decode() for name in file.namelist()}
    assert held == {
        "CoLA.tsv": "index\tprediction\n0\t1\n1\t0\n",
        "STS-B.tsv": "index\tprediction\n0\t5.000\n1\t0.000\n2\t2.062\n",
        "MNLI-m.tsv": "index\tprediction\n0\tneutral\n1\tcontradiction\n",
        "RTE.tsv": "index\tprediction\n0\tnot_entailment\n1\tentailment\n",
    }
    assert "CoLA.tsv has 2 rows; GLUE's test set has 1,063" in said
    assert said[-1] == (
        "without SST-2.tsv, MRPC.tsv, MNLI-mm.tsv, QNLI.tsv, QQP.tsv, WNLI.tsv, AX.tsv, whose tasks"
        " were not run"
    )


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ({"mnli": [0]}, "GLUE has no task 'mnli'"),
        ({"rte": ["entailment", 1]}, "rte, row 1: '1' is none of its labels entailment"),
        ({"cola": ["yes"]}, "cola, row 0: 'yes' is none of its labels 0, 1"),
        ({"stsb": [math.nan]}, "stsb, row 0: nan is not a number from 0 to 5"),
    ],
)
def test_labels_that_glue_does_not_know_are_refused(tmp_path, predictions, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        submission.glue(str(tmp_path / "glue.zip"), predictions)


def test_squad_gets_texts_null_odds_and_the_best_spans(tmp_path):
    cat = answers.Candidate("Zürich", -0.5, 0.75, 3, 9)
    found = [answers.Answer("Zürich", -3.0, (cat,)), answers.Answer("x", 2.0, ())]
    found.append(answers.Answer("", math.inf, ()))
    submission.squad(str(tmp_path), ["a", "b", "c"], found, threshold=0.5)
    held = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert held == {
        "predictions.json": {"a": "Zürich", "b": "", "c": ""},
        "best_spans.json": {"a": "Zürich", "b": "x", "c": ""},
        "null_odds.json": {"a": -3.0, "b": 2.0, "c": 1e30},
        "n_best.json": {
            "a": [{"text": "Zürich", "probability": 0.75, "score": -0.5, "answer_start": 3}],
            "b": [],
            "c": [],
        },
    }


def test_squad_1_has_no_null_odds(tmp_path):
    submission.squad(str(tmp_path), ["a"], [answers.Answer("x", None, ())])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n_best.json", "predictions.json"]
    with pytest.raises(ValueError, match="2 answers for 2 ids, 1 of them twice"):
        submission.squad(str(tmp_path), ["a", "a"], [answers.Answer("x", None, ())] * 2)


def test_predictions_are_a_line_an_example(tmp_path):
    path = tmp_path / "predictions.jsonl"
    submission.lines(
        str(path), ["7", "9"], np.array([1, 0]), [1, 1], scores=np.array([[0.25, np.nan], [1, 0]])
    )
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"id": "7", "prediction": 1, "label": 1, "scores": [0.25, None]},
        {"id": "9", "prediction": 0, "label": 1, "scores": [1.0, 0.0]},
    ]
    with pytest.raises(ValueError, match="label has 1 values for 2 examples"):
        submission.lines(str(path), ["7", "9"], [1, 0], [1])


def test_glue_rows_stand_in_the_order_of_their_numbers(tmp_path):
    """TFDS stores examples in an order of its own; the index of GLUE is their id."""
    with open(tmp_path / "test.jsonl", "w", encoding="utf-8") as file:
        for number, said in ((2, "1"), (0, "0"), (1, "1")):
            file.write(json.dumps({"id": str(number), "prediction": said}) + "\n")
    run_folder.write_glue(str(tmp_path), {"cola": str(tmp_path)})
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        lines = archive.read("CoLA.tsv").decode().split("\n")
    assert lines[:4] == ["index\tprediction", "0\t0", "1\t1", "2\t1"]


def test_predictions_that_are_not_finite_keep_no_other_task_out_of_the_submission(tmp_path):
    for name, said in (("cola", "1"), ("stsb", None)):
        (tmp_path / name).mkdir()
        line = json.dumps({"id": "0", "prediction": said}) + "\n"
        (tmp_path / name / "test.jsonl").write_text(line)
    folders = {name: str(tmp_path / name) for name in ("cola", "stsb")}
    first, *others = run_folder.write_glue(str(tmp_path), folders)
    assert first.endswith("stsb/test.jsonl has predictions that are not finite: left out")
    assert "STS-B.tsv" in others[-1] and others[-1].endswith("whose tasks were not run")
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert archive.namelist() == ["CoLA.tsv"]
    (tmp_path / "none").mkdir()
    remarks = run_folder.write_glue(str(tmp_path / "none"), {"stsb": folders["stsb"]})
    assert len(remarks) == 1 and not (tmp_path / "none" / "glue.zip").exists()


def test_a_part_of_a_test_set_is_left_out_of_the_submission(tmp_path):
    """After days of training this is no reason to fail, and to fail again."""
    for name, numbers in (("cola", (0, 1)), ("rte", (17, 203))):
        (tmp_path / name).mkdir()
        lines = (json.dumps({"id": str(number), "prediction": "1"}) + "\n" for number in numbers)
        (tmp_path / name / "test.jsonl").write_text("".join(lines))
    folders = {name: str(tmp_path / name) for name in ("cola", "rte")}
    first, *_ = run_folder.write_glue(str(tmp_path), folders)
    assert first.endswith("rte/test.jsonl has no rows 0, 1, 2, ... as GLUE numbers them: left out")
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert archive.namelist() == ["CoLA.tsv"]


def test_any_number_is_better_than_none():
    assert scores.better("accuracy", 0.1, math.nan) and scores.better("mse", 9.0, math.nan)
    assert not scores.better("accuracy", math.nan, 0.1)
    assert not scores.better("accuracy", math.nan, math.nan)
