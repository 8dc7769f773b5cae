# SPDX-License-Identifier: Apache-2.0
"""The table of an evaluation: every metric, its baseline beside it, columns under their titles."""

import re

from electra_jax.report import evaluation_table, text_units

VALUES = {
    "loss": 9.0, "gen_loss": 3.0, "gen_masked_loss": 3.5, "gen_masked_accuracy": 0.25,
    "unigram_entropy": 5.0, "disc_loss": 0.5, "disc_accuracy": 0.86, "disc_majority": 0.88,
    "disc_auc": 0.75, "disc_auc_unigram": None, "replaced_rate": 0.12, "something_new": 1.5,
    "documents": 1234,
}  # fmt: skip
VALUES |= {f"gen_masked_{n}": x for n, x in text_units.figures(3.5, 50, 40, 200).items()}
VALUES |= {f"unigram_{n}": x for n, x in text_units.figures(5.0, 50, 40, 200).items()}


def rows(shown):
    """{metric: its line}"""
    shown, *_ = shown.partition("In brackets")
    return {line.split()[0]: line for line in shown.split("\n") if line.startswith("  ")}


def test_a_metric_stands_beside_what_it_has_to_beat_in_words():
    shown = evaluation_table.table([("wiki", VALUES)])
    found = rows(shown)
    assert re.fullmatch(
        r"  gen_masked_loss +3.500 \(5.000\) +nats for a masked token; lower is better",
        found["gen_masked_loss"],
    )
    assert re.search(r"disc_auc +0.750 \(0.500\) .*; higher is better$", found["disc_auc"])
    assert "0.875 (1.250)" in found["gen_masked_nats_per_character"]  # 3.5 and 5.0 x 50 / 200
    assert "1,234" in found["documents"]
    assert re.search(r"disc_auc_unigram +- \(0.500\)", found["disc_auc_unigram"])
    assert shown.endswith(
        """
In brackets: the score of a guesser that has learnt nothing:
  gen_masked_loss             answering with the token frequencies (unigram_entropy)
  disc_loss                   giving every token the same probability of being replaced
  disc_accuracy               always saying "original" (disc_majority)
  disc_auc, disc_auc_unigram  guessing at random
! no better than that: not learnt yet."""
    )


def test_what_is_no_better_than_its_baseline_is_marked_and_the_mark_explained():
    shown = evaluation_table.table([("wiki", VALUES)])
    assert "86.00% (88.00%)!  tokens judged correctly; higher is better" in shown
    good = evaluation_table.table([("wiki", VALUES | {"disc_accuracy": 0.9, "disc_loss": 0.3})])
    assert "!" not in good


def test_what_is_better_than_its_baseline_is_green_and_what_is_not_is_red():
    found = re.finditer(evaluation_table.COLOURS, evaluation_table.table([("wiki", VALUES)]))
    colours = {match[0]: match.lastgroup for match in found}
    assert colours["3.500 (5.000)"] == "green" and colours["86.00% (88.00%)!"] == "red"
    assert not any("unigram" in text or text.startswith("-") for text in colours)


def test_every_metric_is_there_or_in_the_brackets_of_another():
    shown = evaluation_table.table([("wiki", VALUES)])
    found = set(rows(shown))
    hidden = {f"gen_masked_{name}" for name in ("bits_per_word", "perplexity_per_character")}
    in_brackets = {f"unigram_{name}" for name in text_units.FIGURES}
    in_brackets |= {"unigram_entropy", "disc_majority"}
    assert set(VALUES) - found == hidden | in_brackets
    assert shown.index("something_new") > shown.index("\nOthers\n")


def test_columns_stand_under_their_titles_and_wrap_where_they_do_not_fit():
    columns = [(name, VALUES) for name in ("wiki", "a_rather_long_name", "news")]
    shown = evaluation_table.table(columns, width=160)
    title, *_ = shown.split("\n")
    row = rows(shown)["gen_masked_loss"]
    for name, _ in columns:
        assert row[title.index(name) :].startswith("3.500 (5.000)")
    narrow = evaluation_table.table(columns, width=80)
    titles = [line for line in narrow.split("\n") if re.fullmatch(r" {20}[\w ]+", line)]
    assert [line.split() for line in titles] == [["wiki"], ["a_rather_long_name"], ["news"]]
    assert narrow.count("In brackets: the score of a guesser") == 1


def test_large_perplexities_are_short():
    values = {"gen_masked_perplexity_per_word": 1_119_005.54, "gen_masked_perplexity": 3653.68}
    found = rows(evaluation_table.table([("wiki", values)]))
    assert " 1.12M " in found["gen_masked_perplexity_per_word"]
    assert " 3,654 " in found["gen_masked_perplexity"]


def test_an_evaluation_by_source_has_a_column_each():
    values = {"loss": 1.0, "gen_masked_loss": 2.0, "gen_masked_loss/en": 1.5}
    assert evaluation_table.columns(values, "held-out") == [
        ("en", {"gen_masked_loss": 1.5}),
        ("all", {"loss": 1.0, "gen_masked_loss": 2.0}),
    ]
    assert evaluation_table.columns({"loss": 1.0}, "held-out") == [("held-out", {"loss": 1.0})]
    shown = rows(evaluation_table.table(evaluation_table.columns(values, "held-out")))
    assert re.search(r"loss {19,}1.000", shown["loss"])
