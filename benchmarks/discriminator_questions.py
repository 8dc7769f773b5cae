# SPDX-License-Identifier: Apache-2.0
"""What `discriminator.py` asks: its arms, which of them are compared, and what pages call them."""

import dataclasses
from collections.abc import Mapping

REFERENCE = "reference"
HALF = "rate_half"  # the reference at half of Muon's rate, from which later arms differ
AGAIN = "half_again"  # the same, trained on the machine that has trained the arms beside it
THIRD = "half_third"  # the same, trained on the day of the arms beside it
UNMET = "unmet"  # the generator whose rows are the yardstick
# By whom the rows are corrupted that all discriminators read.
CORRUPTED_BY = {
    "unigram": "draws by frequency",
    "weak": "the weak generator",
    REFERENCE: "the middle one",
    "strong": "the strong one",
    UNMET: "one that none has met",
}


@dataclasses.dataclass(frozen=True)
class Question:
    """Arms that differ in one thing."""

    heading: str
    words: str
    arms: Mapping[str, str]  # arm -> what it is called, in the order of the page
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)  # arm -> place on an axis
    # arm -> what it is compared with, if that is not the reference
    against: Mapping[str, str] = dataclasses.field(default_factory=dict)
    column: str = "setting"  # the heading of the arms' names

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(arm, what it is compared with) of all arms that are compared."""
        found = ((arm, self.against.get(arm, REFERENCE)) for arm in self.arms)
        return [(arm, other) for arm, other in found if arm != other]


def _half(*arms, of=HALF):
    """Arms at half the rate, and the reference at half the rate itself: {arm: compared with}."""
    return dict.fromkeys((of, *arms), of)


QUESTIONS = (
    Question(
        "The generator it learns from",
        "Each discriminator learns from another generator, and all read the same rows.",
        CORRUPTED_BY,
        column="learned from",
    ),
    Question(
        "A temperature that falls",
        "From 2 to 1, so that samples are easy to tell at first; in training only.",
        {
            REFERENCE: "the middle one", "heated": "the middle one, from 2 to 1",
            "strong": "the strong one", "heated_strong": "the strong one, from 2 to 1",
        },
        against={"strong": "strong", "heated_strong": "strong"},
        column="learned from",
    ),
    Question(
        "A temperature that stays",
        "Of the samples in training; the rows that all read were sampled at 1.",
        {REFERENCE: "1", "warm": "1.5", "hot": "2"},
        {REFERENCE: 1, "warm": 1.5, "hot": 2},
    ),
    Question(
        "Luck",
        "How far apart equal settings end: the reference once more, with other first weights, order"
        " of the text and masks, and the same generator; and at half the rate on another machine"
        " and on another day, with all else the same but the generators, which were trained again."
        " The other machine is an Intel Xeon without AMX in the kept runs, the others are AMD"
        " EPYCs. What it has trained is compared with what it has trained: width, rows, 50 %, 85 %,"
        " length, `cls_context`, and `gdes` with a frozen generator; one layer and other numbers of"
        " steps with the run of their day.",
        {
            REFERENCE: "the reference", "another_draw": "another draw",
            HALF: "half the rate", AGAIN: "half the rate, on another machine",
            THIRD: "half the rate, on another day",
        },
        against={HALF: HALF, AGAIN: HALF, THIRD: HALF},
    ),
    Question(
        "Learning rate",
        "The peak of Muon's, for the layers' matrices.",
        {
            "rate_eighth": "0.0025", "rate_quarter": "0.005", "rate_half": "0.01",
            REFERENCE: "0.02", "rate_double": "0.04",
        },
        {
            "rate_eighth": 0.0025, "rate_quarter": 0.005, "rate_half": 0.01,
            REFERENCE: 0.02, "rate_double": 0.04,
        },
    ),
    Question(
        "Learning rate of the tables",
        "The peak of AdamW's, for all that Muon does not take: tables, norms and biases.",
        {"tables_rate_quarter": "0.001", REFERENCE: "0.004"},
    ),
    Question(
        "Weight decay",
        "Each row is compared with the one that learned from the same generator with 0.1.",
        {
            REFERENCE: "the middle one, 0.1", "decay_tenth": "the middle one, 0.01",
            "weak": "the weak generator, 0.1", "weak_decay_tenth": "the weak generator, 0.01",
        },
        against={"weak": "weak", "weak_decay_tenth": "weak"},
    ),
    Question(
        "Optimizer",
        "Muon is for the layers' matrices; AdamW has a peak of 4e-3.",
        {REFERENCE: "Muon", "adamw": "AdamW"},
    ),
    Question(
        "Size and steps at the reference's rate",
        "This rate is too high for so few steps; below it is halved.",
        {
            REFERENCE: "the reference", "steps_fourfold": "four times the steps",
            "width_256": "twice the width", "layers_4": "twice the layers",
        },
    ),
    Question(
        "Steps",
        "Here and in all tables that speak of half the rate, the discriminator is trained at half"
        " the reference's rate of Muon and is compared with the reference at half the rate. Each"
        " number of steps has a schedule of its own.",
        {
            "half_steps_quarter": "a quarter", THIRD: "1,000",
            "half_steps_fourfold": "four times",
        },
        {"half_steps_quarter": 0.25, THIRD: 1, "half_steps_fourfold": 4},
        against=_half("half_steps_quarter", "half_steps_fourfold", of=THIRD),
    ),
    Question(
        "Generators",
        "At half the rate. Each discriminator learns from another generator; four times the steps"
        " are compared with the same generator's.",
        {
            "half_unigram": "draws by frequency", "half_weak": "the weak generator",
            AGAIN: "the middle one", "half_strong": "the strong one",
            "half_strong_fourfold": "the strong one, four times the steps",
        },
        against={"half_strong_fourfold": "half_strong"}
        | _half("half_unigram", "half_weak", "half_strong", of=AGAIN),
        column="learned from",
    ),
    Question(
        "Width",
        "Of the discriminator, at half the rate; its embeddings have 128 values in all.",
        {"half_width_64": "64", AGAIN: "128", "half_width_256": "256"},
        {"half_width_64": 64, AGAIN: 128, "half_width_256": 256},
        against=_half("half_width_64", "half_width_256", of=AGAIN),
    ),
    Question(
        "Layers",
        "Of the discriminator, at half the rate.",
        {
            "half_layers_1": "1", THIRD: "2, on the day of the one",
            HALF: "2", "half_layers_4": "4",
        },
        {"half_layers_1": 1, HALF: 2, "half_layers_4": 4},
        against=_half("half_layers_4") | _half("half_layers_1", of=THIRD),
    ),
    Question(
        "Rows per step",
        "At half the rate, and at one number of rows in all, so 16 rows per step have four times"
        " the steps.",
        {"half_rows_16": "16", AGAIN: "64", "half_rows_256": "256"},
        {"half_rows_16": 16, AGAIN: 64, "half_rows_256": 256},
        against=_half("half_rows_16", "half_rows_256", of=AGAIN),
    ),
    Question(
        "Share of chosen tokens",
        "In training, at half the rate; the rows that all read have 30 %.",
        {
            "half_mask_15": "15 %", HALF: "30 %",
            AGAIN: "30 %, on the machine of the next", "half_mask_50": "50 %",
        },
        {"half_mask_15": 0.15, HALF: 0.3, "half_mask_50": 0.5},
        against=_half("half_mask_15") | _half("half_mask_50", of=AGAIN),
    ),
    Question(
        "Share of the chosen tokens that are masked",
        "In training, at half the rate. The generator is shown the rest, 15 % in the paper.",
        {"half_keeps": "85 %", AGAIN: "100 %"},
        against=_half("half_keeps", of=AGAIN),
    ),
    Question(
        "Length of rows",
        "At half the rate, and at one number of tokens per step. The rows that all read have 64"
        " tokens.",
        {"half_length_32": "32", AGAIN: "64", "half_length_128": "128"},
        {"half_length_32": 32, AGAIN: 64, "half_length_128": 128},
        against=_half("half_length_32", "half_length_128", of=AGAIN),
    ),
    Question(
        "Two settings more",
        "At half the rate. `cls_context` adds the state of [CLS] to every token's. With `gdes` the"
        " discriminator's tables are the frozen generator's and a difference that is learned.",
        {
            AGAIN: "the reference at half the rate", "half_cls_context": "with `cls_context`",
            "half_gdes_frozen": "with `gdes`",
        },
        against=_half("half_cls_context", "half_gdes_frozen", of=AGAIN),
    ),
    Question(
        "A generator that learns along",
        "It has as many steps as the discriminator, and the size of the frozen ones, unless one"
        " trunk of the discriminator's size does both. Each row is compared with the one from which"
        " it differs in one thing, which it names. With tables and Adam's moments of its own the"
        " weight of the discriminator's loss has no effect but through clipping (check 13), so it"
        " is tried with shared tables.",
        {
            REFERENCE: "the middle one, frozen", "along": "A: learns along, nothing shared",
            "along_keeps": "A, 15 % of the chosen tokens are shown to it",
            "along_15": "A, 15 % of the tokens chosen",
            "along_adamw": "A, AdamW",
            "along_half": "A, half the rate of Muon",
            "gdes": "A, `gdes`",
            "shared_5": "B: A, tables shared, weight 5",
            "shared_50": "B, weight 50",
            "shared_5_half": "D: B, half the rate of Muon",
            "shared_5_half_mask_50": "D, 50 % of the tokens chosen, on another machine",
            "shared_5_half_keeps": "D, 15 % of the chosen tokens are shown to it",
            "one_trunk": "C: B, one trunk of the discriminator's size for both",
            "one_trunk_50": "C, weight 50",
            "one_trunk_warm": "C, samples of temperature 1.5",
            "one_trunk_adamw": "C, AdamW",
            "one_trunk_half": "C, half the rate of Muon",
        },
        against={
            "along_keeps": "along", "along_15": "along", "along_adamw": "along", "gdes": "along",
            "shared_5": "along", "shared_50": "shared_5", "one_trunk": "shared_5",
            "one_trunk_50": "one_trunk", "one_trunk_warm": "one_trunk",
            "one_trunk_adamw": "one_trunk", "along_half": "along",
            "shared_5_half": "shared_5", "one_trunk_half": "one_trunk",
            "shared_5_half_mask_50": "shared_5_half", "shared_5_half_keeps": "shared_5_half",
        },
    ),
)  # fmt: skip


# What the page says first: (what is asked, distances as (arm, what it is compared with, words)).
ANSWERS = (
    (
        "Does it lack signal or capacity?",
        (
            ("steps_fourfold", REFERENCE, "four times the steps"),
            ("width_256", REFERENCE, "twice the width"),
            ("layers_4", REFERENCE, "twice the layers"),
        ),
    ),
    (
        "And at half the rate, which suits so few steps better?",
        (
            ("half_steps_quarter", THIRD, "a quarter of the steps"),
            ("half_steps_fourfold", THIRD, "four times as many"),
            ("half_layers_1", THIRD, "one layer instead of two"),
            ("half_width_256", AGAIN, "twice the width"),
            ("half_layers_4", HALF, "twice the layers"),
        ),
    ),
    (
        "What are weights worth that the generator's loss trains too?",
        (
            ("shared_5", "along", "at the full rate, shared tables"),
            ("one_trunk", "shared_5", "one trunk for both"),
            ("shared_50", "shared_5", "a weight of 50 instead of 5 for its own loss"),
            ("half_gdes_frozen", AGAIN, "at half the rate, of a frozen generator, its tables"),
        ),
    ),
    (
        "Which frozen generator teaches it most about one that it has not met? At half the rate:",
        (
            ("half_unigram", AGAIN, "draws by frequency instead of the middle one"),
            ("half_weak", AGAIN, "the weak one"),
            ("half_strong", AGAIN, "the strong one"),
            ("half_strong_fourfold", "half_steps_fourfold", "the same with four times the steps"),
            ("unigram", REFERENCE, "at the full rate, which is too high for so few steps, draws"),
            ("weak", REFERENCE, "the weak one"),
            ("strong", REFERENCE, "the strong one"),
        ),
    ),
    (
        "What do the settings of its own training change, at the full rate?",
        (
            ("decay_tenth", REFERENCE, "a tenth of the weight decay"),
            ("adamw", REFERENCE, "AdamW"),
            ("rate_half", REFERENCE, "half the rate"),
            ("rate_quarter", REFERENCE, "a quarter of the rate"),
            ("rate_double", REFERENCE, "twice the rate"),
            ("tables_rate_quarter", REFERENCE, "a quarter of the tables' rate"),
            ("along_half", "along", "half the rate beside a generator that learns along"),
        ),
    ),
    (
        "And those of its rows and of the corruption, at half the rate?",
        (
            ("half_rows_16", AGAIN, "16 rows per step instead of 64"),
            ("half_rows_256", AGAIN, "256"),
            ("half_mask_15", HALF, "15 % chosen instead of 30"),
            ("half_mask_50", AGAIN, "50 %"),
            ("half_keeps", AGAIN, "85 % of them masked instead of all"),
            ("half_length_32", AGAIN, "rows of 32 tokens instead of 64"),
            ("half_length_128", AGAIN, "128"),
            ("half_cls_context", AGAIN, "`cls_context`"),
        ),
    ),
)
