# SPDX-License-Identifier: Apache-2.0
"""Every metric against scikit-learn, scipy or seqeval; SQuAD's rules on their edge cases."""

import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from seqeval import metrics as seqeval

from electra_jax.finetuning.results import label_scores, question_scores, scores

SEEDS = range(5)


def classes(seed, count, rows=60):
    """Predictions that are right more often than not, and labels; not every class need occur."""
    rng = np.random.default_rng(seed)
    labels_R = rng.choice(count, rows, p=rng.dirichlet(np.ones(count)))
    return np.where(rng.random(rows) < 0.6, labels_R, rng.integers(0, count, rows)), labels_R


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_of_classes_are_those_of_scikit_learn(seed, count):
    predictions_R, labels_R = classes(seed, count)
    found = scores.compute(["accuracy", "macro_f1", "micro_f1", "mcc"], predictions_R, labels_R)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(labels_R, predictions_R),
        "macro_f1": sklearn.metrics.f1_score(labels_R, predictions_R, average="macro"),
        "micro_f1": sklearn.metrics.f1_score(labels_R, predictions_R, average="micro"),
        "mcc": sklearn.metrics.matthews_corrcoef(labels_R, predictions_R),
    }
    assert found == pytest.approx(expected, abs=1e-12)
    related = sklearn.metrics.f1_score(
        labels_R, predictions_R, labels=range(1, count), average="micro", zero_division=0
    )
    assert label_scores.relation_f1(predictions_R, labels_R) == pytest.approx(related, abs=1e-12)
    if count == 2:
        theirs = sklearn.metrics.f1_score(labels_R, predictions_R, zero_division=0)
        assert label_scores.f1(predictions_R, labels_R) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_of_several_labels_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels_RC = (rng.random((40, 4)) < [0.5, 0.1, 0.9, 0.0]).astype(int)  # the last never holds
    predictions_RC = scores.decide("multi_label", (labels_RC + rng.random((40, 4))) / 2)
    found = scores.compute(["accuracy", "macro_f1", "micro_f1"], predictions_RC, labels_RC)
    f1 = [
        sklearn.metrics.f1_score(labels_RC, predictions_RC, average=average, zero_division=0)
        for average in ("macro", "micro")
    ]
    exact = sklearn.metrics.accuracy_score(labels_RC, predictions_RC)
    assert list(found.values()) == pytest.approx([exact, *f1], abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_correlations_are_those_of_scipy(seed, scale):
    rng = np.random.default_rng(seed)
    labels_R = rng.integers(0, 6, 50).astype(np.float32)  # with ties, as STS-B has them
    predictions_R = ((labels_R + rng.normal(0, 2, 50)).round(1) * scale).astype(np.float32)
    wide_R = predictions_R.astype(np.float64)
    assert label_scores.pearson(predictions_R, labels_R) == pytest.approx(
        scipy.stats.pearsonr(wide_R, labels_R).statistic, abs=1e-12
    )
    assert label_scores.spearman(predictions_R, labels_R) == pytest.approx(
        scipy.stats.spearmanr(wide_R, labels_R).statistic, abs=1e-12
    )
    assert label_scores.mse(predictions_R, labels_R) == pytest.approx(
        sklearn.metrics.mean_squared_error(labels_R.astype(np.float64), wide_R), rel=1e-12
    )


def test_what_a_formula_leaves_undefined_is_zero():
    assert label_scores.mcc([1, 1, 1], [0, 1, 1]) == 0
    assert label_scores.f1([0, 0], [0, 0]) == 0
    assert label_scores.pearson([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]) == 0
    assert label_scores.spearman([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]) == 0
    assert label_scores.entity_f1([["O"]], [["O"]]) == 0


def test_a_diverged_regression_has_no_correlation():
    for metric in ("pearson", "spearman", "mse"):
        assert math.isnan(scores.function(metric)([1.0, math.nan, 3.0], [1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("B-PER I-PER O I-LOC I-PER", [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("S-LOC B-PER I-PER E-PER", [("LOC", 0, 1), ("PER", 1, 4)]),
        ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
        ("E-PER E-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-A-B I-A-B O", [("A-B", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities_of_right_and_of_wrong_sequences(tags, found):
    assert label_scores.entities(tags.split()) == found


@pytest.mark.parametrize("marks", ["BI", "BIES"])
@pytest.mark.parametrize("seed", SEEDS)
def test_entity_scores_are_those_of_seqeval(seed, marks):
    """Tags drawn at will: most sequences are wrong ones, which only the rules can read."""
    rng = np.random.default_rng(seed)
    tags = ["O", *(f"{mark}-{type_}" for mark in marks for type_ in ("PER", "LOC"))]
    labels = [[str(tag) for tag in rng.choice(tags, rng.integers(1, 9))] for _ in range(60)]
    predictions = [
        [str(rng.choice(tags)) if rng.random() < 0.2 else tag for tag in row] for row in labels
    ]
    names = ("entity_f1", "entity_precision", "entity_recall", "token_accuracy")
    expected = [
        function(labels, predictions)
        for function in (
            seqeval.f1_score,
            seqeval.precision_score,
            seqeval.recall_score,
            seqeval.accuracy_score,
        )
    ]
    found = scores.compute(names, predictions, labels)
    assert 0.3 < found["entity_f1"] < 0.9
    assert list(found.values()) == pytest.approx(expected, abs=1e-12)


def of_scikit_learn(truth, predictions, names, **options):
    """{name: (F1, precision, recall, count)} of the names that occur on either side."""
    rows = np.transpose(
        sklearn.metrics.precision_recall_fscore_support(
            truth, predictions, zero_division=0, **options
        )
    )
    return {
        name: (f1, precision, recall, n) for name, (precision, recall, f1, n) in zip(names, rows)
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_of_each_class_are_those_of_scikit_learn(seed):
    """Class 4 of the five is in no text and in no prediction, and has no line."""
    predictions_R, labels_R = classes(seed, 4)
    occur = np.union1d(predictions_R, labels_R)
    found = scores.by_label("classification", ["accuracy"], predictions_R, labels_R, "abcde")
    theirs = of_scikit_learn(labels_R, predictions_R, ["abcd"[n] for n in occur], labels=occur)
    assert list(found) == list(theirs)
    for name, expected in theirs.items():
        assert found[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_of_each_of_several_labels_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels_RC = (rng.random((40, 4)) < [0.5, 0.1, 0.9, 0.0]).astype(int)  # the last never holds
    predictions_RC = np.where(rng.random((40, 4)) < 0.2, 1 - labels_RC, labels_RC)
    found = scores.by_label("multi_label", ["micro_f1"], predictions_RC, labels_RC, "abcd")
    theirs = of_scikit_learn(labels_RC, predictions_RC, "abcd")
    assert list(found) == list("abcd") and found["d"].recall == 0 and found["d"].count == 0
    for name, expected in theirs.items():
        assert found[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_of_each_type_of_entities_are_those_of_seqeval(seed):
    rng = np.random.default_rng(seed)
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    labels = [[str(tag) for tag in rng.choice(tags, rng.integers(1, 9))] for _ in range(60)]
    predictions = [
        [str(rng.choice(tags)) if rng.random() < 0.2 else tag for tag in row] for row in labels
    ]
    found = scores.by_label("tagging", ["entity_f1"], predictions, labels, tags)
    theirs = seqeval.classification_report(labels, predictions, output_dict=True)
    assert list(found) == ["LOC", "PER"]
    for name, score in found.items():
        expected = [theirs[name][key] for key in ("f1-score", "precision", "recall", "support")]
        assert score == pytest.approx(expected, abs=1e-12)
    # Where no metric is of entities, tags are those of words.
    found = scores.by_label("tagging", ["token_accuracy"], predictions, labels, tags)
    flat = [sum(rows, []) for rows in (labels, predictions)]
    theirs = of_scikit_learn(*flat, sorted(tags), labels=sorted(tags))
    assert list(found) == list(theirs)
    for name, expected in theirs.items():
        assert found[name] == pytest.approx(expected, abs=1e-12)


def test_what_has_no_labels_has_no_scores_of_labels():
    assert scores.by_label("regression", ["pearson"], np.ones(2), np.zeros(2), ()) == {}
    assert scores.by_label("span", ["span_f1"], ["a"], [["a"]], ()) == {}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The  Cat!", "cat"),
        ("An apple a day", "apple day"),
        ("Theatre, another", "theatre another"),  # articles are whole words
        ("U.S. $10,000", "us 10000"),
        ("don't; a-b", "dont ab"),  # punctuation goes before articles do
        ("a's", "as"),
        ("the", ""),
        ("?!", ""),
        ("", ""),
        ("Zürich\u00a0am\tSee\n", "zürich am see"),
        ("1990—a year", "1990— year"),  # a dash that is not ASCII stays, and ends a word
        ("“The” end", "“ ” end"),
        ("ÉTÉ", "été"),
        ("ab\u0301 a\u0301", "ab\u0301 \u0301"),  # a combining accent is no letter
        ("東京。", "東京"),
    ],
)
def test_texts_are_compared_without_case_articles_punctuation_and_blanks(text, left):
    assert question_scores.normalised(text) == left


@pytest.mark.parametrize(
    ("text", "right", "version", "exact", "f1"),
    [
        ("The cat", ["cat"], "1.1", 1, 1),
        ("the cat sat", ["cat", "a cat sat down"], "1.1", 0, 0.8),  # of several, the best
        ("cat cat", ["cat"], "1.1", 0, 2 / 3),  # a word counts as often as it stands
        ("dog", ["cat"], "1.1", 0, 0),
        ("", ["cat"], "1.1", 0, 0),
        ("the", ["a"], "1.1", 1, 0),  # both are nothing
        ("the", ["a"], "2.0", 1, 1),
        ("", ["the", "cat"], "2.0", 0, 0),  # an answer of nothing does not count beside another
        ("", ["the", "cat"], "1.1", 1, 0),
        ("", [], "2.0", 1, 1),
        ("!", [], "2.0", 1, 1),
        ("cat", [], "2.0", 0, 0),
        ("", ["cat"], "2.0", 0, 0),
        ("cats cat", ["cat dog", "cats"], "2.0", 0, 2 / 3),
    ],
)
def test_one_answer_by_the_rules_of_each_version(text, right, version, exact, f1):
    found = question_scores.exact_and_f1([text], [right], version)
    assert [float(one[0]) for one in found] == pytest.approx([exact, f1])


def test_a_set_with_an_unanswerable_question_is_scored_by_the_rules_of_2():
    assert question_scores.span_f1(["the"], [["a"]]) == 0
    answers = [["a"], [], ["red cat"], []]
    predictions = ["the", "", "cat", "dog"]
    assert scores.compute(
        ("exact_match", "span_f1", "has_answer_exact_match", "has_answer_f1", "no_answer_accuracy"),
        predictions,
        answers,
    ) == pytest.approx(
        {
            "exact_match": 2 / 4,
            "span_f1": (1 + 1 + 2 / 3 + 0) / 4,
            "has_answer_exact_match": 1 / 2,
            "has_answer_f1": (1 + 2 / 3) / 2,
            "no_answer_accuracy": 1 / 2,
        }
    )


@pytest.mark.parametrize(
    ("said", "right", "exact", "f1"),
    [
        ("北京大学", "北京", 0, 2 * 2 / 6),
        ("「北京」。", "北京", 1, 1),
        ("BBC 北京", "北京 BBC", 0, 1),
        ("ประเทศไทย", "ไทย", 0, 2 * 3 / 12),
        ("the red fox", "red fox", 1, 1),
    ],
)
def test_where_no_blanks_part_words_characters_are_compared(said, right, exact, f1):
    assert question_scores.exact_match([said], [[right]]) == exact
    assert question_scores.span_f1([said], [[right]]) == pytest.approx(f1)


def test_the_best_threshold_answers_where_answering_pays():
    #          null score   -3     -2   -1    0
    answers = [["cat"], [], ["dog"], []]
    predictions, null_Q = ["cat", "x", "dog", "y"], np.array([-3.0, -2.0, -1.0, 0.0])
    score_Q, _ = question_scores.exact_and_f1(predictions, answers, "2.0")
    # Answered so far: none 2, cat 3, x 2, dog 3, y 2 of four; the first of equals stands.
    assert question_scores.best_threshold(score_Q, predictions, answers, null_Q) == (
        question_scores.Threshold(-3.0, 0.75)
    )
    # Were the first two inseparable, answering both would gain nothing until the dog.
    null_Q[1] = -3.0
    found = question_scores.best_threshold(score_Q, predictions, answers, null_Q)
    assert found == question_scores.Threshold(-1.0, 0.75)
    nothing = question_scores.best_threshold(0 * score_Q, predictions, answers, null_Q)
    assert nothing.value < -3.0 and nothing.score == 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_threshold_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    answers = [["a b c"] if yes else [] for yes in rng.random(40) < 0.6]
    predictions = [str(rng.choice(["a b c", "b c", "d", ""])) for _ in answers]
    null_Q = rng.normal(size=40).round(1)  # with ties
    _, score_Q = question_scores.exact_and_f1(predictions, answers, "2.0")

    def with_threshold(value):
        said = ["" if null > value else text for text, null in zip(predictions, null_Q)]
        return question_scores.exact_and_f1(said, answers, "2.0")[1].mean()

    found = question_scores.best_threshold(score_Q, predictions, answers, null_Q)
    assert with_threshold(found.value) == pytest.approx(found.score)
    assert found.score == pytest.approx(max(map(with_threshold, [-9.0, *null_Q])))


def test_outputs_become_predictions():
    assert scores.decide("classification", [[0.1, 0.3], [2.0, -1.0]]).tolist() == [1, 0]
    assert scores.decide("multi_label", [[0.5, 0.49]]).tolist() == [[1, 0]]
    assert scores.decide("regression", [0.5]) == [0.5]


def test_a_constant_guess_is_what_a_run_is_held_against():
    labels = [0, 1, 1, 1]
    assert scores.baseline("classification", ["accuracy", "mcc", "f1"], labels) == pytest.approx(
        {"accuracy": 0.75, "mcc": 0.0, "f1": 6 / 7}
    )
    found = scores.baseline("regression", ["spearman", "mse"], [1.0, 3.0])
    assert found == {"spearman": 0.0, "mse": 1.0}
    tags = [["O", "O", "B-X"], ["O"]]
    found = scores.baseline("tagging", ["entity_f1", "token_accuracy"], tags)
    assert found == {"entity_f1": 0.0, "token_accuracy": 0.75}
    assert scores.baseline("span", ["exact_match"], [["a cat"], []]) == {"exact_match": 0.5}
    assert scores.baseline("multi_label", ["accuracy"], [[1, 0], [1, 0], [0, 1]]) == {
        "accuracy": pytest.approx(2 / 3)
    }


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: scores.compute(["f2"], [1], [1]), "metric 'f2' is unknown; use one of accuracy"),
        (lambda: scores.decide("spam", [1]), "kind 'spam' is unknown"),
        (lambda: label_scores.accuracy([1], [1, 0]), "1 predictions for 2 labels"),
        (lambda: label_scores.accuracy([], []), "no labels to score against"),
        (lambda: label_scores.accuracy([[1, 0]], [1]), "decide() makes the ones"),
        (lambda: label_scores.f1([2], [1]), "use macro_f1 or micro_f1"),
        (lambda: label_scores.entity_f1([["B-X"]], [["NN"]]), "tag 'NN' is none of O"),
        (lambda: label_scores.entity_f1([["O"]], [["O", "O"]]), "sentence 0 has 1 predicted tags"),
        (lambda: question_scores.exact_and_f1([""], [[]], "1.1"), "question 0 has no right answer"),
        (lambda: question_scores.exact_and_f1([""], [[]], "3"), "version '3' is unknown"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(attempt, message):
    with pytest.raises(ValueError) as caught:
        attempt()
    assert message in str(caught.value) and "\n" not in str(caught.value)
