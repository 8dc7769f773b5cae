# SPDX-License-Identifier: Apache-2.0
"""The lines of a run on the console: aligned, at most 80 columns wide, the same with and without
colours."""

import math

import pytest

from electra_jax.host import console_table
from electra_jax.report import console_lines, live_line

TRAIN = {
    "loss": 24.1234,
    "gen_loss": 8.1,
    "gen_masked_loss": 9.4,
    "disc_loss": 0.2987,
    "gen_accuracy": 0.0123,
    "learning_rate": 1.2e-4,
    "tokens_per_second": 1_234_567.0,
    "step_seconds": 0.372,
    "epoch": 0.1,
}


def test_a_step_line_says_the_few_quantities_that_matter():
    assert console_lines.step_line(200, 10_200, TRAIN) == (
        "step   200/10200  gen_masked_loss 9.400  disc_loss 0.299  1.23M/s ETA  1h02m"
    )


def test_step_lines_stand_under_each_other():
    unknown = {"tokens_per_second": None, "step_seconds": None, "disc_loss": None}
    late = {"gen_masked_loss": 10.357, "tokens_per_second": 999.0, "step_seconds": 3.2}
    lines = [
        console_lines.step_line(1, 2000, TRAIN | unknown),
        console_lines.step_line(20, 2000, TRAIN),
        console_lines.step_line(1999, 2000, TRAIN | late),
        console_lines.step_line(2000, 2000, TRAIN | late),
    ]
    assert lines == [
        "step    1/2000  gen_masked_loss 9.400  disc_loss     -",
        "step   20/2000  gen_masked_loss 9.400  disc_loss 0.299  1.23M/s ETA 12m17s",
        "step 1999/2000  gen_masked_loss 10.36  disc_loss 0.299    999/s ETA     3s",
        "step 2000/2000  gen_masked_loss 10.36  disc_loss 0.299    999/s",
    ]


@pytest.mark.parametrize("steps", [9, 2000, 766_000, 1_000_000, 1_450_000])
@pytest.mark.parametrize(
    "losses",
    [
        ("gen_masked_loss", "disc_loss"),
        ("gen_masked_loss", "mlm_masked_loss"),
        ("mlm_masked_loss",),
        ("disc_loss",),
        ("loss",),
    ],
)
@pytest.mark.parametrize("progress", [{}, {"progress": 1.0, "seconds_left": 3599.0}])
def test_no_step_line_exceeds_80_columns(steps, losses, progress):
    """With the widest values: a run of two months, and a line of a budget of minutes."""
    row = dict.fromkeys(losses, 10.3712) | {"tokens_per_second": 13_100.0, "step_seconds": 5.0}
    for step in (1, steps - 1):
        line = console_lines.step_line(step, steps, row | progress)
        assert len(line) <= 80, line
        assert " ETA " in line, line


def test_the_speed_is_left_out_only_where_it_does_not_fit():
    row = TRAIN | {"mlm_masked_loss": 2.0}
    del row["disc_loss"]
    assert "  1.23M/s ETA " in console_lines.step_line(1, 9_999, row)
    assert "/s " not in console_lines.step_line(1, 1_000_000, row)
    assert "  1.23M/s ETA " in console_lines.step_line(1, 1_000_000, TRAIN)


@pytest.mark.parametrize(
    "value, text",
    [(0.0004, "0.000"), (0.2987, "0.299"), (9.9994, "9.999"), (10.357, "10.36"),
     (123.456, "123.5"), (1234.5, "1234"), (None, "-"), (math.nan, "-")],
)  # fmt: skip
def test_a_loss_has_five_columns(value, text):
    assert console_lines.loss(value) == text


ELECTRA = {
    "gen_masked_loss": 5.011,
    "unigram_entropy": 5.93,
    "disc_loss": 0.352,
    "disc_majority": 0.88,
    "disc_accuracy": 0.86,
    "disc_auc": 0.5,
    "disc_recall_at_2": 0.173,
    "disc_auc_unigram": 0.85,
    "gen_masked_accuracy": 0.12,
}
TABLE = """\
evaluation at step 1200/2000
                      value  baseline
  gen_masked_loss     5.011     5.930  token frequencies  better  0.919
  disc_loss           0.352     0.367  one probability    better  0.015
  disc_accuracy      86.00%    88.00%  always "original"  worse   2.00 points
  disc_auc            0.500     0.500  chance             equal   0.000
  disc_recall_at_2   17.30%     2.00%  chance             better  15.30 points
  disc_auc_unigram    0.850     0.500  chance             better  0.350"""


def test_an_evaluation_is_a_table_of_what_has_a_baseline():
    explained = ("unigram_entropy", "constant guess", "disc_majority", "chance")
    assert console_lines.evaluation_table(1200, 2000, ELECTRA, explained) == TABLE


def test_the_baselines_are_explained_in_words():
    assert (
        console_lines.evaluation_table(1200, 2000, ELECTRA)
        == TABLE
        + """
  A baseline is the score of a guesser that has learnt nothing:
    token frequencies  answering with the token frequencies (unigram_entropy)
    one probability    giving every token the same probability of being replaced
    always "original"  always saying "original" (disc_majority)
    chance             guessing at random"""
    )


def test_each_source_has_rows_of_its_own():
    values = {f"{name}/wiki": value for name, value in ELECTRA.items()}
    shown = console_lines.evaluation_table(3, 9, {"disc_auc": 0.7, "ema_decay": 0.999} | values)
    assert shown.splitlines()[:6] == [
        "evaluation at step 3/9, of averaged weights (decay 0.999)",
        "                      value  baseline",
        "  disc_auc            0.700     0.500  chance             better  0.200",
        "  wiki:",
        "  gen_masked_loss     5.011     5.930  token frequencies  better  0.919",
        "  disc_loss           0.352     0.367  one probability    better  0.015",
    ]


def test_a_metric_without_a_baseline_stands_alone_and_a_missing_value_is_a_dash():
    row = {"gen_masked_loss": None, "mlm_masked_loss": 4.25, "unigram_entropy": 6.0}
    assert console_lines.evaluation_table(3, 9, row).splitlines()[2:4] == [
        "  gen_masked_loss         -     6.000  token frequencies",
        "  mlm_masked_loss     4.250",
    ]
    assert console_lines.evaluation_table(3, 9, {"loss": 1.0}) == "evaluation at step 3/9"


def test_the_widest_table_fits_80_columns():
    row = dict.fromkeys(ELECTRA, 1.0) | {"gen_masked_loss": 110.25, "disc_majority": 0.3}
    row |= {"disc_accuracy": 0.0}
    shown = console_lines.evaluation_table(1_450_000, 1_450_000, row)
    assert "worse   70.00 points" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_better_is_green_and_worse_is_red_at_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = console_table.for_terminal(TABLE, console_lines.COLOURS)
    lines = coloured.splitlines()
    assert lines[2].endswith("  \x1b[32mbetter  0.919\x1b[0m")
    assert lines[4].endswith("  \x1b[31mworse   2.00 points\x1b[0m")
    assert "\x1b" not in lines[5]  # neither of the two

    monkeypatch.setenv("NO_COLOR", "1")
    assert console_table.for_terminal(TABLE, console_lines.COLOURS) == TABLE


def test_the_live_line_speaks_of_the_same_losses():
    assert tuple(live_line._LOSSES) == console_lines.LOSSES


def test_longer_names_make_the_first_column_wider():
    row = {"disc_auc": 0.75, "selection_accuracy": 0.5, "selection_chance": 0.2}
    table = console_lines.evaluation_table(5, 10, row, explained=("chance",))
    assert table.splitlines()[1:4] == [
        "                        value  baseline",
        "  disc_auc              0.750     0.500  chance             better  0.250",
        "  selection_accuracy   50.00%    20.00%  chance             better  30.00 points",
    ]
