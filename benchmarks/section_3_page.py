# SPDX-License-Identifier: Apache-2.0
"""The page of `section_3.py`: what section 3 of the paper finds, and what came out here.

Each part shows the arms of one statement of the paper. A part of which no arm was trained is left
out.
"""

import dataclasses
from collections.abc import Sequence

from benchmarks import equal_compute_blocks as shared
from benchmarks import pages
from electra_jax.report import comparison, means

TITLES = {
    "electra": "ELECTRA",
    "adversarial": "adversarial",
    "two_stage": "two stages",
    "two_stage_fresh": "two stages, fresh discriminator",
    "bert": "BERT (MLM)",
    "unigram": "unigram generator",
    "untied": "no weights shared",
    "tied_embeddings": "embeddings shared",
    "tied": "all weights shared",
    "half": "ELECTRA, 50 %",
    "quarter": "ELECTRA, 25 %",
    "eighth": "ELECTRA, 12.5 %",
    "sixteenth": "ELECTRA, 6.25 %",
    "electra_64": "ELECTRA, width 64",
    "bert_64": "BERT, width 64",
    "electra_32": "ELECTRA, width 32",
    "bert_32": "BERT, width 32",
}
SIZES = {128: ("electra", "bert"), 64: ("electra_64", "bert_64"), 32: ("electra_32", "bert_32")}


@dataclasses.dataclass(frozen=True)
class Part:
    """A statement of the paper and the arms that it is about."""

    heading: str
    paper: str  # what the paper finds, at its size
    reference: str  # the arm that the others are compared with
    arms: Sequence[str]


PARTS = (
    Part(
        "Other ways to train the generator",
        "Section 3.2 and figure 3, at base size: training both networks together is best. Two"
        " stages (a generator by itself, then a discriminator that begins with its weights while it"
        " is frozen) and a generator trained against the discriminator are both below that and"
        " above BERT. Without the generator's weights, the discriminator of the second stage"
        " sometimes learns nothing beyond the majority class. The adversarial generator is worse"
        " at masked language modelling (58 % right, 65 % by maximum likelihood) and writes with"
        " little entropy. Replacements drawn by frequency alone are worse than those of a small"
        " network.",
        "electra",
        ("electra", "adversarial", "two_stage", "two_stage_fresh", "bert", "unigram"),
    ),
    Part(
        "Weights that both networks share",
        "Section 3.2, GLUE at base size with networks of one size, 500,000 steps: 83.6 if nothing"
        " is shared, 84.3 with the token embeddings, 84.4 with all weights. Here too the generator"
        " has the discriminator's size in these three.",
        "untied",
        ("untied", "tied_embeddings", "tied"),
    ),
    Part(
        "Less compute",
        "Table 1 and section 3.3, GLUE of ELECTRA-Small by its share of the training: 79.9 with"
        " all of it, 79.0 with 50 %, 77.7 with 25 %, 76.0 with 12.5 %, 74.1 with 6.25 %; BERT-Small"
        " with all of it 75.1. Each share is a run of its own with its own schedule.",
        "electra",
        ("electra", "half", "quarter", "eighth", "sixteenth", "bert"),
    ),
)


def write(found: shared.CompleteSeeds, page: str) -> None:
    """Writes the page and its picture."""
    shared.write(found, page, blocks)


def blocks(found: shared.CompleteSeeds, picture: str) -> Sequence[str]:
    """The page, block by block."""
    shown = [
        part
        for part in PARTS
        if part.reference in found.arms and sum(arm in found.arms for arm in part.arms) > 1
    ]
    compared = [
        (arm, part.reference) for part in shown for arm in part.arms if arm != part.reference
    ]
    return [
        "# Section 3 of the paper at the size of two cores",
        "The paper compares ways to train its generator, weights to share and shares of the"
        " compute at base and small size, by the average of GLUE. Here the same arms are trained"
        " at a size that two cores carry in minutes; three downstream measures stand in for GLUE,"
        " and each difference stands beside its standard error. What the paper says is repeated"
        " above each table. Nothing here says what happens at the paper's size.",
        "## What was done",
        _setting(found),
        shared.of_seeds(found),
        f"![accuracies of all arms with errors]({picture})",
        "Diamonds are means, lines two standard errors to either side, dots single runs; dashed is"
        " the encoder of width 128 before training.",
        *(block for part in shown for block in _part(found, part)),
        *_sizes(found),
        "## How to read this",
        "\n".join(
            [
                _legend(),
                shared.told_apart(found, [*compared, *_of_sizes(found).values()]),
                shared.of_errors(found),
                shared.of_trunk(),
            ]
        ),
    ]


def _setting(found):
    return "\n".join(
        [
            shared.of_text(found),
            "- **Networks**: `configs/tiny_paper.py` (two layers of width 128, float32, no dropout)"
            " with rotary positions and norms before each part, as in [table 5](table_5.md). The"
            " generator has two layers of half the width, except where a table says otherwise; in"
            " two stages it has the discriminator's size, since it gives its weights to it. BERT"
            " has none.",
            shared.of_compute(found),
            "- **Two stages**: the steps in the tables are those of the second; the first has as"
            " many, and both count as compute.",
            shared.of_probes(),
            shared.of_command(found, "section_3"),
        ]
    )


def _part(found, part):
    others = [arm for arm in part.arms if arm != part.reference]
    return [
        f"## {part.heading}",
        part.paper,
        shared.results(found, part.arms, {}),
        shared.against(found, others, part.reference),
        _metrics(found, part.arms),
    ]


def _sizes(found):
    """BERT and ELECTRA in networks of several widths."""
    sizes = _of_sizes(found)
    if not sizes:
        return []

    named = shared.measured(found)
    head = ["", "steps", *(shared.DOWNSTREAM[name] for name in named)]
    rows, apart = [], []
    for width, (electra, bert) in sizes.items():
        for arm, title in ((electra, "ELECTRA"), (bert, "BERT")):
            cells = [pages.mean_cell(found.mean(arm, name), name) for name in named]
            steps = f"{found.about['arms'][arm]['steps']:,}"
            rows.append([f"{title}, width {width}", steps, *cells])
        rows.append([f"before training, width {width}", "0", *shared.floor(found, electra)])
        cells = [pages.apart_cell(found.apart(electra, bert, name), name) for name in named]
        apart.append([f"width {width}", *cells])

    return [
        "## Smaller networks",
        "Section 3.5 and figure 4: the gain of ELECTRA over BERT at equal compute grows as networks"
        " get smaller, which the paper shows for widths of 128 to 768, all trained to convergence."
        " Here each width has its own budget, the FLOPs of as many steps as ELECTRA has in the"
        " largest; embeddings have the width of the main network, and the generator half of it.",
        pages.table(head, rows),
        pages.table(["ELECTRA less BERT", *head[2:]], apart),
        _metrics(found, [arm for arms in sizes.values() for arm in arms]),
    ]


def _of_sizes(found):
    """{width: (ELECTRA, BERT)} of the widths that were trained; empty if there is only one."""
    sizes = {width: arms for width, arms in SIZES.items() if set(arms) <= set(found.arms)}
    return sizes if len(sizes) > 1 else {}


def _metrics(found, arms):
    """How far generator and discriminator came, held out."""
    names = {
        "gen_masked_accuracy": "right at [MASK]",
        "gen_entropy": "entropy of samples, nats",
        "disc_auc": "AUC, own generator",
        "disc_auc_unigram": "AUC on unigram replacements",
    }
    head = ["", "generator's loss less unigram entropy", *names.values(), "beyond the majority"]
    rows = []
    for arm in (arm for arm in arms if arm in found.arms):
        margin = shared.margin_cell(found, arm, "gen_masked_loss")
        cells = [pages.mean_cell(found.mean(arm, name), name) for name in names]
        rows.append([found.titles[arm], margin, *cells, _beyond_majority(found, arm)])
    return pages.table(head, rows)


def _beyond_majority(found, arm):
    """The discriminator's accuracy less that of always saying "original"."""
    rights, constants = found.values(arm, "disc_accuracy"), found.values(arm, "disc_majority")
    if not rights:
        return "-"

    mean = means.mean([right - constant for right, constant in zip(rights, constants)])
    beyond = means.Difference(mean.value, mean.error, resolved=None, better=None)
    return comparison.signed("disc_accuracy", beyond)


def _legend():
    return (
        "- Held-out metrics: the generator's loss in nats, below 0 is better than knowing only how"
        " frequent words are; its entropy over masked places; the discriminator's AUC on its own"
        " generator and on unigram replacements, which are the same for all; and its accuracy less"
        ' that of always saying "original", in points.'
    )
