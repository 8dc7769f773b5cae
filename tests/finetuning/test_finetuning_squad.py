# SPDX-License-Identifier: Apache-2.0
"""Files of questions become examples, whole, or are refused with their place."""

import json

import pytest

from electra_jax.finetuning.tasks import examples
from support.squad_files import qa, write_squad
from support.task_files import read, read_custom


def test_squad_of_both_versions(tmp_path):
    write_squad(tmp_path / "train-v1.1.json", qa("1", [("Ann", 0)]))
    write_squad(tmp_path / "dev-v1.1.json", qa("2", [("Bob", 12), ("Ann", 20)]))
    data = read("squad", tmp_path)
    context = "Ann sleeps. Bob and Ann eat."
    assert data.train.examples == (examples.QuestionExample("1", "Who ?", context, (("Ann", 0),)),)
    assert data.dev["dev"].examples[0].answers == (("Bob", 12), ("Ann", 20))
    hopeless = qa("3", [], is_impossible=True, plausible_answers=[])
    write_squad(tmp_path / "train-v2.0.json", qa("1", [("Ann", 0)], is_impossible=False), hopeless)
    write_squad(tmp_path / "dev-v2.0.json", hopeless)
    found = read("squad2", tmp_path).train.examples
    assert [(e.answers, e.impossible) for e in found] == [((("Ann", 0),), False), ((), True)]
    write_squad(tmp_path / "train-v1.1.json", hopeless)
    with pytest.raises(ValueError, match=r"qas\[0\]: a question without an answer.*squad2"):
        read("squad", tmp_path)


def test_questions_of_ones_own_without_an_answer_are_allowed_by_a_setting(tmp_path):
    write_squad(tmp_path / "a.json", qa("1", [("Ann", 0)]), qa("2", [], is_impossible=True))
    settings = dict(kind="span", train="a.json", dev="a.json")
    with pytest.raises(ValueError, match="without an answer; .* with custom.impossible=True$"):
        read_custom(tmp_path, impossible=False, **settings)
    found = read_custom(tmp_path, impossible=True, **settings).train.examples
    assert [one.impossible for one in found] == [False, True]


def test_an_answer_beside_its_place_is_found_and_a_missing_one_counted(tmp_path):
    write_squad(tmp_path / "train-v1.1.json", qa("1", [("Ann", 19)]), qa("2", [("Eve", 0)]))
    write_squad(tmp_path / "dev-v1.1.json", qa("1", [("Ann", 0)]))
    data = read("squad", tmp_path)
    assert [e.answers for e in data.train.examples] == [(("Ann", 20),), (("Eve", -1),)]
    assert data.report.counts["squad train", "answers found beside their place"] == 1
    assert data.report.counts["squad train", "answers that are not in their context"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n{"paragraphs"}]}', "train-v1.1.json:2: not JSON"),
        ('{"rows": []}', "train-v1.1.json: no 'data'; the format is SQuAD's JSON"),
        ('{"data": []}', "train-v1.1.json holds no question"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\]: no 'context'"),
    ],
)
def test_other_json_is_refused_with_its_place(content, message, tmp_path):
    (tmp_path / "train-v1.1.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read("squad", tmp_path)


def test_questions_of_one_context_stay_together(tmp_path):
    articles = [
        {
            "paragraphs": [
                {"context": f"Ann {i}", "qas": [qa(f"{i}{k}", [("Ann", 0)]) for k in "ab"]}
            ]
        }
        for i in range(40)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    data = read_custom(tmp_path, kind="span", train="a.json")
    dev = {e.context for e in data.dev["dev"].examples}
    assert dev and not dev & {e.context for e in data.train.examples}


def test_without_a_dev_file_questions_without_an_answer_stay_in_train(tmp_path):
    articles = [
        {"paragraphs": [{"context": f"Ann {i}", "qas": [qa(f"{i}", [("Ann", 0)] * (i % 2))]}]}
        for i in range(40)
    ]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    data = read_custom(tmp_path, kind="span", train="a.json", dev_share=0.3)
    dev = data.dev["dev"].examples
    assert dev and all(e.answers for e in dev)
    assert sum(not e.answers for e in data.train.examples) == 20
