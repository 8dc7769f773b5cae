# SPDX-License-Identifier: Apache-2.0
"""The page of `table_5.py`: the rows of the paper's table 5, and the generator's width."""

from collections.abc import Sequence

from benchmarks import equal_compute_blocks as shared
from benchmarks import pages

TITLES = {
    "bert": "BERT (MLM)",
    "replace_mlm": "Replace MLM",
    "all_tokens_mlm": "All-Tokens MLM",
    "electra_15": "ELECTRA 15 %",
    "electra": "ELECTRA",
    "electra_quarter": "ELECTRA, generator 1/4",
    "electra_whole": "ELECTRA, generator 1/1",
}
TABLE = ("bert", "replace_mlm", "all_tokens_mlm", "electra_15", "electra")
SWEEP = {"electra_quarter": "1/4", "electra": "1/2", "electra_whole": "1/1"}
PAPER = {  # GLUE dev average of base-size models, table 5
    "bert": 82.2,
    "replace_mlm": 82.4,
    "all_tokens_mlm": 84.3,
    "electra_15": 82.4,
    "electra": 85.0,
}
KINDS = {
    "pair_accuracy/a_an": "a, an",
    "pair_accuracy/this_these": "this, these",
    "pair_accuracy/verb": "is, are, was, were",
}
ARGUMENT = (  # what the paper concludes from each pair of rows
    ("no [MASK] before the main network", "replace_mlm", "bert"),
    ("predicting all tokens, not 15 %", "all_tokens_mlm", "replace_mlm"),
    ("judging all tokens, not 15 %", "electra", "electra_15"),
    ("judging instead of predicting", "electra", "all_tokens_mlm"),
    ("all of it", "electra", "bert"),
)


def write(found: shared.CompleteSeeds, page: str) -> None:
    """Writes the page and its picture."""
    shared.write(found, page, blocks)


def blocks(found: shared.CompleteSeeds, picture: str) -> Sequence[str]:
    """The page, block by block."""
    return [
        "# Table 5 of the paper at the size of two cores",
        _question(),
        "## What was done",
        _setting(found),
        "## Results",
        shared.results(
            found, TABLE, {"GLUE in the paper": {arm: f"{glue}" for arm, glue in PAPER.items()}}
        ),
        shared.of_seeds(found),
        f"![accuracies of all arms with errors]({picture})",
        "Diamonds are means, lines two standard errors to either side, dots single runs; dashed is"
        " the encoder before training.",
        "## Against ELECTRA",
        shared.against(found, found.arms),
        "## The paper's argument, step by step",
        "Differences of the rows above, in points. In the paper they are of the GLUE average.",
        _argument(found),
        "## Width of the generator",
        _sweep(found),
        "## Minimal pairs by kind",
        _kinds(found),
        "## Pre-training metrics",
        _metrics(found),
        "## How to read this",
        "\n".join(
            [shared.told_apart(found, _compared(found)), shared.of_errors(found), shared.of_trunk()]
        ),
    ]


def _compared(found):
    """The arms of all differences in the tables."""
    against = [(arm, shared.REFERENCE) for arm in found.arms if arm != shared.REFERENCE]
    return [*against, *((arm, other) for _, arm, other in ARGUMENT)]


def _question():
    return (
        "Where does ELECTRA's gain come from? Table 5 of the paper holds it against BERT and three"
        " methods in between, at base size, by the average of GLUE; those three are not in the"
        " paper's released code. Here all five are trained at a size that two cores carry in"
        " minutes, three downstream measures stand in for GLUE, and each difference stands"
        " beside its standard error. Nothing"
        " here says what happens at the paper's size: the point is that every arm runs, on equal"
        " terms, and what can be told apart at this size and what not."
    )


def _setting(found):
    return "\n".join(
        [
            shared.of_text(found),
            "- **Networks**: `configs/tiny_paper.py` (two layers of width 128, float32, no dropout)"
            " with rotary positions and norms before each part. One trunk and one optimizer for all"
            " arms; how it was chosen is in [the log](../LOG.md). The generator has two layers of"
            " half the width, tables are shared; BERT has none.",
            shared.of_compute(found),
            shared.of_probes(),
            shared.of_command(found, "table_5"),
        ]
    )


def _argument(found):
    named = shared.measured(found)
    head = ["", "", "paper", *(shared.DOWNSTREAM[name] for name in named)]
    rows = []
    for what, arm, other in ARGUMENT:
        if arm in found.arms and other in found.arms:
            cells = [pages.apart_cell(found.apart(arm, other, name), name) for name in named]
            paper = f"{PAPER[arm] - PAPER[other]:+.1f}"
            rows.append([what, f"{TITLES[arm]} less {TITLES[other]}", paper, *cells])
    return pages.table(head, rows)


def _sweep(found):
    named = shared.measured(found)
    head = ["generator's width", "steps", *(shared.DOWNSTREAM[name] for name in named),
            "AUC on unigram replacements", "generator's loss less unigram entropy"]  # fmt: skip
    rows = []
    for arm in (arm for arm in SWEEP if arm in found.arms):
        cells = [
            pages.mean_cell(found.mean(arm, name), name) for name in (*named, "disc_auc_unigram")
        ]
        steps = f"{found.about['arms'][arm]['steps']:,}"
        rows.append([SWEEP[arm], steps, *cells, shared.margin_cell(found, arm, "gen_masked_loss")])
    return (
        pages.table(head, rows)
        + "\n\nThe paper (section 3.2) finds 1/4 to 1/2 of the discriminator's"
        " width best, and worse with a generator as large as the discriminator. At equal compute a"
        " larger generator also leaves fewer steps."
    )


def _kinds(found):
    head = ["", *KINDS.values()]
    rows = [
        [TITLES[arm], *(pages.mean_cell(found.mean(arm, name), name) for name in KINDS)]
        for arm in found.arms
    ]
    rows.append(
        ["before training", *(pages.mean_cell(found.untrained(name), name) for name in KINDS)]
    )
    return pages.table(head, rows)


def _metrics(found):
    head = ["held out", "generator's loss less unigram entropy",
            "main network's loss less unigram entropy", "AUC, own generator",
            "AUC on unigram replacements"]  # fmt: skip
    rows = []
    for arm in found.arms:
        margins = [shared.margin_cell(found, arm, f"{who}_masked_loss") for who in ("gen", "mlm")]
        cells = [
            pages.mean_cell(found.mean(arm, name), name)
            for name in ("disc_auc", "disc_auc_unigram")
        ]
        rows.append([TITLES[arm], *margins, *cells])
    return (
        pages.table(head, rows) + "\n\nLosses are in nats, below 0 is better than knowing only how"
        " frequent words are. The main network's loss is held against that in BERT alone, where"
        " it is asked at [MASK]: the other two are asked at replaced words, which are rarer. The"
        " first AUC is on each arm's own generator;"
        " the second asks all the same questions. ELECTRA 15 % never hears about untouched tokens,"
        " which both AUCs are of."
    )
