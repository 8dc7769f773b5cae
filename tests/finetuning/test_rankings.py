# SPDX-License-Identifier: Apache-2.0
"""Tasks with queries: what settings and files say of them, what is refused, whole fine-tunings."""

import csv
import json
import pathlib
import random
import shutil

import pyarrow
import pyarrow.parquet
import pytest
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import predict
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import ranking_scores, results_file, results_table, scores
from electra_jax.finetuning.tasks import custom, examples, new_files, reading
from electra_jax.finetuning.tuning import export, task_by_task
from support import encoder_workdir
from support.encoder_workdir import BAD, GOOD, THINGS
from support.finetunings import settings

RANKING = ("ndcg_at_10", "mrr_at_10", "map")
COLUMNS = dict(
    kind="regression", train="train.csv", dev="dev.csv", text="q", pair="p", label="y", query="q"
)
HEAD = "q,p,y\n"
GRADED = HEAD + "cats,a,0\ncats,b,2\ndogs,c,1\ndogs,d,0\n"


def read(folder, dev_share=0.1, **changes):
    return reading.read(custom.task(COLUMNS | changes), str(folder), dev_share)


def write(folder, **contents):
    for name, text in contents.items():
        (folder / f"{name}.csv").write_text(text)


# --- settings -------------------------------------------------------------------------------------


def test_with_queries_rankings_come_first():
    task = custom.task(COLUMNS)
    assert task.metrics == (*RANKING, "spearman", "pearson", "mse") and task.main == "ndcg_at_10"
    assert custom.task(COLUMNS | {"metrics": "map"}).metrics == ("map",)
    assert custom.task(COLUMNS | {"main": "spearman"}).main == "spearman"
    assert custom.task(COLUMNS | {"query": ""}).metrics == ("spearman", "pearson", "mse")
    task = custom.task(COLUMNS | {"kind": "classification", "query": "3"})
    assert task.metrics == (*RANKING, "accuracy", "macro_f1")
    assert task.files["dev"].query == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": "", "metrics": "map"}, "the metric 'map' ranks .* give custom.query=COLUMN"),
        (
            {"query": "", "main": "mrr_at_10"},
            "metric 'mrr_at_10' ranks .*custom.query is empty",
        ),
        ({"kind": "tagging"}, "custom.query='q' is for .* or 'regression', not 'tagging'; set it"),
        ({"kind": "span"}, "custom.query='q' is for custom.kind='classification'"),
        ({"kind": "multi_label", "metrics": "map"}, "custom.query='q' is for custom.kind='classi"),
        ({"kind": "tagging", "query": "", "metrics": "map"}, "'map' is none of custom.kind='taggi"),
        ({"format": "lines"}, "custom.query='q' is a column, and custom.format='lines' has none"),
    ],
)
def test_queries_that_cannot_be_ranked_by_are_refused(changes, message):
    with pytest.raises(ValueError, match=message) as refused:
        custom.task(COLUMNS | changes)
    assert "\n" not in str(refused.value)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_each_row_names_its_query(tmp_path, ending):
    rows = [{"n": n // 2, "p": p, "y": n % 2} for n, p in enumerate("abcd")]
    if ending == "csv":
        lines = ["n,p,y", *(f"{row['n']},{row['p']},{row['y']}" for row in rows)]
        (tmp_path / "dev.csv").write_text("\n".join(lines))
    elif ending == "jsonl":
        (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "dev.parquet")
    name = f"dev.{ending}"
    data = read(tmp_path, train=name, dev=name, text="p", pair="", query="n")
    assert [example.query for example in data.dev["dev"].examples] == ["0", "0", "1", "1"]


def test_a_number_is_one_query_however_a_record_holds_it(tmp_path):
    """Whole numbers are floats in a column with gaps; a gap is no query, and a list is none."""
    write(tmp_path, train=GRADED)
    path = tmp_path / "dev.jsonl"

    def queries(*values):
        rows = [{"q": value, "p": f"{n}", "y": n % 2} for n, value in enumerate(values)]
        path.write_text("\n".join(map(json.dumps, rows)))
        data = read(tmp_path, dev="dev.jsonl", text="p", pair="")
        return [example.query for example in data.dev["dev"].examples]

    assert queries(1, "1", 1.0, " 1 ", 1.5) == ["1", "1", "1", "1", "1.5"]
    with pytest.raises(ValueError, match="dev.jsonl:3: no query; look at custom.query"):
        queries("a", "a", float("nan"))
    with pytest.raises(ValueError, match="dev.jsonl:1: the query is list, neither text nor numb"):
        queries(["a"], ["a"])


def test_candidates_of_a_query_stay_on_one_side(tmp_path):
    rows = "".join(f"query {n // 4},passage {n},{n % 4}\n" for n in range(400))
    write(tmp_path, train=HEAD + rows)
    data = read(tmp_path, dev="")
    train, dev = ({one.query for one in data.splits[name].examples} for name in ("train", "dev"))
    assert not train & dev and len(train | dev) == 100
    lines = data.report.lines()
    assert any("dev by a hash of their query (dev_share 0.1)" in line for line in lines)
    assert f"custom dev: {len(dev)} queries" in lines


def test_queries_without_a_relevant_candidate_are_counted(tmp_path):
    write(tmp_path, train=GRADED, dev=GRADED + "birds,e,0\nbirds,f,0\n")
    lines = read(tmp_path).report.lines()
    assert "custom dev: 3 queries" in lines
    assert "custom dev: 1 queries without a relevant candidate, which count as 0" in lines
    write(tmp_path, dev=GRADED)
    assert not [line for line in read(tmp_path).report.lines() if "without a relevant" in line]


@pytest.mark.parametrize(
    ("dev", "changes", "message"),
    [
        ("p,y\na,1\n", {"text": "p", "pair": ""}, r"dev.csv:1: no column 'q'; there is p, y"),
        (HEAD + "cats,a,1\n,b,0\n", {}, "dev.csv:3: no query; look at custom.query, its column"),
        (HEAD + "cats,a,-1\ncats,b,2\n", {}, "dev.csv:2: label -1 is below 0, .* add the same"),
        (
            HEAD + "cats,a,1\ndogs,b,0\n",
            {},
            "each of 2 queries has 1 cand.* look at custom.q",
        ),
        (
            HEAD + "cats,a,1\ncats,b,1\ndogs,c,0\n",
            {},
            "all candidates of a query have the same",
        ),
        (
            HEAD + "cats,a,1\ncats,b,2\n",
            {},
            "every order is right for mrr_at_10, map; .* or take custom.metrics=ndcg_at_10",
        ),
    ],
)
def test_candidates_that_no_metric_can_judge_are_refused(tmp_path, dev, changes, message):
    train = GRADED if dev.startswith(HEAD) else "q,p,y\ncats,a,1\ncats,b,0\n"
    write(tmp_path, train=train, dev=dev)
    with pytest.raises(ValueError, match=message) as refused:
        read(tmp_path, **changes)
    assert "\n" not in str(refused.value)


def test_grades_from_one_on_have_a_gain(tmp_path):
    write(tmp_path, train=GRADED, dev=HEAD + "cats,a,1\ncats,b,2\n")
    assert read(tmp_path, metrics="ndcg_at_10").task.metrics == ("ndcg_at_10",)


def test_a_test_set_needs_queries_if_it_has_labels(tmp_path):
    write(tmp_path, train=GRADED, dev=GRADED, test="p\na\nb\n")
    changes = dict(text="p", pair="", test="test.csv")
    assert len(read(tmp_path, **changes).test["test"].examples) == 2
    write(tmp_path, test="p,y\na,1\nb,0\n")
    with pytest.raises(ValueError, match="custom test: example '0' has a label and no query; wr"):
        read(tmp_path, **changes)
    write(tmp_path, test=HEAD + "cats,a,1\ndogs,b,0\n")
    with pytest.raises(ValueError, match="custom test: each of 2 queries has 1 candidate"):
        read(tmp_path, **changes)


def test_which_of_two_labels_is_relevant_is_never_guessed(tmp_path):
    classes = dict(kind="classification", metrics="map")
    write(tmp_path, train=GRADED, dev=GRADED)
    with pytest.raises(ValueError, match="map is for 2 labels, not 3; give grades as numbers, wit"):
        read(tmp_path, **classes)

    binary = GRADED.replace(",2", ",1")
    write(tmp_path, train=binary, dev=binary)
    data = read(tmp_path, **classes)
    assert "custom: relevant candidates have the label '1', the second one" in data.report.lines()

    # Sorted by name, the label of no match would come second.
    named = binary.replace(",1", ",match").replace(",0", ",no match")
    write(tmp_path, train=named, dev=named)
    with pytest.raises(ValueError, match="neither 'match' nor 'no match' is said .*,RELEVANT, the"):
        read(tmp_path, **classes)
    data = read(tmp_path, labels="no match,match", **classes)
    assert [example.label for example in data.dev["dev"].examples] == [0, 1, 1, 0]


def test_new_texts_need_no_query_and_those_to_score_do(tmp_path):
    task = custom.task(COLUMNS | {"text": "p", "pair": ""})
    write(tmp_path, new="p\na\nb\n", labelled="p,y\na,0\nb,1\n", ranked=GRADED)
    report = examples.Report()
    new = new_files.read_new(task, str(tmp_path / "new.csv"), report)
    assert [(one.a, one.query) for one in new.examples] == [("a", None), ("b", None)]
    new = new_files.read_new(task, str(tmp_path / "ranked.csv"), report)
    assert [one.query for one in new.examples] == [None] * 4
    with pytest.raises(ValueError, match="labelled.csv:1: no column 'q'; there is p, y"):
        new_files.read_labelled(task, str(tmp_path / "labelled.csv"), report)
    found = new_files.read_labelled(task, str(tmp_path / "ranked.csv"), report)
    assert [one.query for one in found.examples] == ["cats", "cats", "dogs", "dogs"]
    write(tmp_path, single=HEAD + "cats,a,1\n")
    with pytest.raises(ValueError, match="single.csv: each of 1 queries has 1 candidate"):
        new_files.read_labelled(task, str(tmp_path / "single.csv"), report)


# --- whole fine-tunings ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """(workdir of an encoder that never trained, folder with questions and passages)."""
    base = tmp_path_factory.mktemp("rankings")
    draw = random.Random(0)
    (base / "tasks").mkdir()
    for split, count in (("train", 24), ("dev", 10), ("test", 4)):
        with open(base / "tasks" / f"{split}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["number", "question", "passage", "grade", "relevant"])
            for number in range(count):
                for place in range(5):
                    good = place == 0 or (place == 1 and number % 2)
                    passage = f"{draw.choice(THINGS)} is {draw.choice((BAD, GOOD)[good])}"
                    rows.writerow([number, "who is good ?", passage, 2 * good, int(good)])
    return encoder_workdir.make(base), str(base / "tasks")


@pytest.mark.parametrize(
    ("kind", "label"), [("regression", "grade"), ("classification", "relevant")]
)
def test_a_model_that_ranks_is_trained_scored_and_used(places, tmp_path, capsys, kind, label):
    found = tune(places, kind, kind, label, recipe__epochs=10)
    (task,) = found.tasks
    assert task.main == "ndcg_at_10" and task.metrics("dev")[:3] == [*RANKING]
    for split in ("dev", "test"):
        guess = task.baseline(split, "ndcg_at_10")
        assert guess < 0.75 < 0.9 < task.summary(split, "ndcg_at_10").median

    folder = pathlib.Path(places[0], "finetune", kind)
    assert results_file.load(folder / "results.json").tasks[0].seeds == task.seeds
    assert "| custom | dev | ndcg_at_10 | **" in results_table.markdown(found)
    assert "mrr_at_10" in (folder / "results.html").read_text()
    for seed in task.seeds:
        assert_scores_are_those_of_the_written_candidates(folder, seed)
    assert_new_candidates_need_no_query(folder / "custom", tmp_path, capsys)
    assert_labelled_candidates_are_scored_as_dev_was(folder / "custom", places[1], task, capsys)
    card = export.write(folder / "custom", tmp_path / "exported")
    assert card and "dev ndcg_at_10" in (tmp_path / "exported" / "README.md").read_text()


def tune(places, name, kind, label, **overrides):
    config = settings(places, name, **overrides)
    config.custom.update(
        kind=kind, train="train.csv", dev="dev.csv", test="test.csv", text="question",
        pair="passage", label=label, query="number",
    )  # fmt: skip
    return task_by_task.run(finetuning_config.parse(config), places[0])


def assert_scores_are_those_of_the_written_candidates(folder, seed):
    path = folder / "custom" / f"seed_{seed.seed}" / "dev.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["query"] for line in lines] == [str(row // 5) for row in range(50)]
    values = [
        line["scores"][1] - line["scores"][0] if "scores" in line else line["prediction"]
        for line in lines
    ]
    ranked = [ranking_scores.Ranked(*one) for one in zip(values, (x["query"] for x in lines))]
    labels = [float(line["label"]) for line in lines]
    computed = scores.compute(RANKING, None, labels, ranked)
    assert computed == pytest.approx({name: seed.scores["dev"][name] for name in RANKING}, abs=1e-3)


def assert_new_candidates_need_no_query(where, folder, capsys):
    (folder / "new.csv").write_text("question,passage\nwho is good ?,the cat is fine\n")
    (line,) = predicted(capsys, [folder / "new.csv"], **{"from": where})
    answer = electra_jax.load_tuned(where)(["who is good ?"], ["the cat is fine"])
    given = answer[0]["label"] if isinstance(answer[0], dict) else answer[0]
    assert json.loads(line)["prediction"] == pytest.approx(given)


def assert_labelled_candidates_are_scored_as_dev_was(where, tasks, task, capsys):
    paths = [pathlib.Path(tasks, f"{split}.csv") for split in ("dev", "test")]
    lines = predicted(capsys, paths, **{"from": where, "score": True, "json": True})
    best = max(task.seeds, key=lambda seed: seed.scores["dev"]["ndcg_at_10"])
    one, other = json.loads(lines[-1])["files"]
    assert one["scores"] == pytest.approx(best.scores["dev"], rel=1e-4)
    assert other["scores"] == pytest.approx(best.scores["test"], rel=1e-4)


def predicted(capsys, paths, **values):
    """The lines that `predict` prints with these flags."""
    capsys.readouterr()
    predict.flags.FLAGS.mark_as_parsed()
    unset = {"out": None, "score": False, "json": False, "running_text": False}
    with flagsaver.flagsaver(**unset | values):
        predict.main([str(path) for path in paths])
    return capsys.readouterr().out.splitlines()


def test_other_queries_under_the_same_names_are_noticed(places, tmp_path):
    """Texts and labels are the same, and the scores would not be."""
    short = dict(recipe__epochs=1, evaluation__times=1)
    tune(places, "files", "regression", "grade", seeds=1, **short)
    shutil.copytree(places[1], tmp_path / "tasks")
    lines = (tmp_path / "tasks" / "dev.csv").read_text().splitlines()
    assert lines[6].startswith("1,")
    lines[6] = f"0{lines[6][1:]}"
    (tmp_path / "tasks" / "dev.csv").write_text("\n".join(lines))
    moved = (places[0], str(tmp_path / "tasks"))
    with pytest.raises(config_lib.ConfigError, match="the files of the task changed since"):
        tune(moved, "files", "regression", "grade", seeds=2, **short)
