# SPDX-License-Identifier: Apache-2.0
"""The page of `crossing.py`: scores against training FLOPs, and where ELECTRA passes BERT.

    what the runs came to  ->  how far each arm is from BERT at each budget, in words
                           ->  a table a measure, one of the variants, and the picture

The numbers are those of `crossing_runs.py`. Trains nothing.
"""

import functools
import shlex

from benchmarks import crossing_picture, fine_tuned, kept_runs, pages
from benchmarks import crossing_runs as runs
from benchmarks import equal_compute_blocks as shared
from benchmarks.crossing_picture import title
from benchmarks.crossing_runs import MEAN, TITLES, FinishedBudgets
from electra_jax.report import means, style


def write(found: FinishedBudgets, page: str) -> None:
    """Writes the page and its picture."""
    drawn = crossing_picture.draw(found)
    pages.write_with_picture(page, drawn, lambda picture: blocks(found, picture))


def blocks(found: FinishedBudgets, picture: str) -> list[str]:
    """The page, block by block."""
    return [
        "# Does ELECTRA pass BERT when both get more compute?",
        "In the paper ELECTRA is above BERT at every share of the compute, from a few per cent of"
        " it on (figures 2 and 4). At the size of two cores and a few minutes, BERT is above"
        " ELECTRA in chunk tags of a frozen encoder ([table 5](table_5.md)). Here both get more"
        " compute, and are fine-tuned.",
        "## In short",
        " ".join(headline(found, name) for name in found.averages),
        *_why_two(found),
        f"1 x is {found.flops(1) / 1e12:.1f}e12 training FLOPs, some minutes of one core. A"
        " generator has a share of the discriminator's width, or is *one trunk* with it. *Higher*"
        " and *lower* are two standard errors or more; in bold where luck alone makes such a"
        " distance in less than one case of twenty (Student's t). Arms at half of Muon's rate are"
        " compared with others at half.",
        "\n".join(f"- {answer(found, kind, rival)}" for kind, rival in _told(found)),
        *_below_random(found),
        f"![scores of all arms against training FLOPs]({picture})",
        "Lines join means over seeds, bands are two standard errors to either side. Broken lines"
        " with hollow points are at half the rate; level ones are random weights.",
        "## What was done",
        _setting(found),
        *(
            block
            for name in (*found.averages, *found.measures, *found.in_turn)
            for block in _measure(found, name)
        ),
        *_discriminators(found),
        *(block for budget in found.budgets for block in _variants(found, budget)),
        "## How to read this",
        "\n".join(
            [
                "- Below two standard errors a difference counts as not resolved. A distance is"
                " taken within each seed that both arms have finished, so it is not always that of"
                " the means in the table above it. With three seeds luck alone passes two standard"
                " errors in 18 % of all cases, with two in 30 % (Student's t); in bold is what"
                " passes 5 %. Among so many distances some are luck all the same. Growth is taken"
                " within each seed too, from the smallest budget to the largest that both have.",
                "- Muon's rate of 0.02 was found on a masked language model and tried with one"
                " trunk for both networks (docs/LOG.md). At half of it small discriminators learn"
                " more in as many steps ([what limits them](discriminator.md)), so there are arms"
                " with half of it; they are compared with others at half the rate. No other rate"
                " was tried.",
                "- A run at three times the compute is a run of its own, with a schedule of its"
                " own; steps by arm differ, since a step of one costs more than one of another.",
                "- A few small sets are not GLUE. The recipe of fine-tuning was chosen on the"
                " hour's trunk, which both losses train (docs/LOG.md), and has no dropout; whom"
                " that favours is not known. Random weights have a recipe of their own.",
                "- As in `configs/tiny_paper.py` the discriminator's loss weighs 5 and not the"
                " paper's 50, and the first weights have a scale of 0.06 and not 0.02.",
            ]
        ),
    ]


def _why_two(found):
    """Why there are several means, where there are."""
    if found.averages == [MEAN]:
        return []
    said = (
        "Minimal pairs are scored by the head of pre-training and not by what is fine-tuned, and a"
        " masked language model by the very task that it was trained on, so there is a mean without"
        " them. It was added when the scores were known."
    )
    if found.in_turn:
        said += (
            " So was the one with minimal pairs *word by word*: a masked language model reads a"
            " sentence once for each of its words, which is masked, and here so does the generator"
            " of ELECTRA, whose answer the discriminator puts right (`electra_jax.score --by=both`;"
            " the formula is in `objectives/scoring.py`). It is known of the arms whose weights"
            " were still there."
        )
    return [said]


def headline(found: FinishedBudgets, mean: str = MEAN) -> str:
    """Which arm is above BERT in one of the means, or which is the nearest, in a sentence.

    Only distances count of which an error is known.
    """
    known = {}
    for kind in found.curves:
        if kind in runs.BERTS:
            continue
        for budget in found.budgets:
            apart = found.apart(kind, budget, mean)
            if apart is not None and apart.error is not None:
                known[kind, budget] = apart
    if not known:
        return "No arm has two seeds yet, so nothing is known of errors."

    def told(kind, budget):
        cell = pages.points_cell(known[kind, budget]).replace("*", "")
        return f"{TITLES[kind]}, at {_times(budget)} ({cell})"

    above = [arm for arm, apart in known.items() if apart.resolved and apart.amount > 0]
    if above:
        asked = found.asked(mean)
        arms = "; ".join(
            told(*arm)
            + (_by_verdict(functools.partial(found.apart, *arm), asked) if asked[1:] else "")
            for arm in above
        )
        return f"In the {runs.MEANS[mean]}, above BERT: {arms}."
    nearest = max(known, key=lambda arm: known[arm].amount)
    return (
        f"In the {runs.MEANS[mean]} no arm is above BERT at a budget that was tried. The nearest is"
        f" {told(*nearest)}."
    )


def answer(found: FinishedBudgets, kind: str, rival: str) -> str:
    """How far a kind is from a rival at each budget, in a sentence or two."""
    parts = []
    for budget in found.budgets:
        apart = found.apart(kind, budget, MEAN, rival)
        if apart is not None:
            compared = functools.partial(found.apart, kind, budget, other=rival)
            inside = _by_verdict(compared, found.measures)
            parts.append(f"{pages.points_cell(apart)} at {_times(budget)}{inside}")

    said = f"**{TITLES[kind]}**, less {TITLES[rival]}, in the mean of all measures: "
    if not parts:
        return said + "nothing can be compared yet."
    grown = found.growth(kind, MEAN, rival)
    if grown is not None and grown.error is not None:
        first, last = map(_times, found.ends(kind, rival))
        grows = functools.partial(found.growth, kind, other=rival)
        inside = _by_verdict(grows, found.measures)
        parts.append(f"from {first} to {last} {pages.points_cell(grown)}{inside}")
    return said + "; ".join(parts) + "."


def _by_verdict(compared, names):
    """` (all lower)`, or ` (higher in chunks by fine-tuning; lower in minimal pairs)`."""
    named: dict[str, list[str]] = {}
    for name in names:
        apart = compared(name)
        if apart is not None and apart.resolved:
            named.setdefault("higher" if apart.amount > 0 else "lower", []).append(name)
    if not named:
        return ""
    if [*named.values()] == [list(names)] and len(names) > 1:
        return f" (all {next(iter(named))})"
    told = (
        f"{verdict} in {_listed([runs.NAMES[name] for name in resolved])}"
        for verdict, resolved in named.items()
    )
    return f" ({'; '.join(told)})"


def _listed(words):
    """1 x, 3 x and 10 x."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _told(found):
    """The kinds that are told of first, each with a rival: those of several seeds."""
    counts = {kind: max(len(found.seeds(kind, at)) for at in found.budgets) for kind in found.kinds}
    told = [kind for kind in found.kinds if counts[kind] > 1 and kind not in runs.BERTS]
    return [(kind, rival) for kind in told or [shared.REFERENCE] for rival in runs.rivals(kind)]


def _below_random(found):
    """Where an arm is below what random weights come to, by two standard errors or more."""
    named: dict[str, list[str]] = {}
    for kind in found.curves:
        for name in found.measures:
            floor = found.untrained(name)
            at = [budget for budget in found.budgets if _is_below(found, kind, budget, name, floor)]
            if at:
                words = f"{runs.MEASURES[name]} at {_listed([_times(budget) for budget in at])}"
                named.setdefault(kind, []).append(words)
    if not named:
        return []
    told = "; ".join(f"{TITLES[kind]}, in {_listed(words)}" for kind, words in named.items())
    return [f"Below random weights that are fine-tuned or probed in the same way: {told}."]


def _is_below(found, kind, budget, name, floor):
    mean = found.mean(kind, budget, name)
    if mean is None or floor is None or None in (mean.error, floor.error):
        return False
    apart = means.difference(mean, floor, None)
    return bool(apart.resolved) and apart.amount < 0


def _discriminators(found):
    """The AUC of each discriminator, on held-out text that its own generator has filled."""
    rows = []
    for kind in found.curves:
        each = [found.mean(kind, budget, "disc_auc") for budget in found.budgets]
        if any(each):
            rows.append([TITLES[kind], *(pages.mean_cell(mean, "disc_auc") for mean in each)])
    if not rows:
        return []
    return [
        "## Discriminators",
        "AUC on held-out text that the arm's own generator has filled, where 0.5 is chance. A"
        " stronger generator makes it harder, so a row is to be read along and not down.",
        pages.table(["", *(_times(budget) for budget in found.budgets)], rows),
    ]


def _setting(found):
    about, one = found.about, next(iter(found.runs.values()))
    text = one["text"]
    counts = [len(found.seeds(name, budget)) for name in found.kinds for budget in found.budgets]
    few, many = min(count for count in counts if count), max(counts)
    seeds = f"{few} seeds" if few == many else f"{few} to {many} seeds"
    return "\n".join(
        [
            f"- **Text**: {text['corpus'] or 'text'} of {text['characters'] / 1e6:.0f} million"
            f" characters, {style.count(text['tokens'])} tokens; SentencePiece vocabulary of"
            f" {text['vocabulary']:,} pieces, trained on it; rows of {about['length']} tokens,"
            f" {about['rows']} rows per step.",
            *_other_vocabulary(found, text["tokens"]),
            "- **Networks**: `configs/tiny_paper.py` (two layers of width 128, no dropout)"
            " with rotary positions and norms before each part, as in [table 5](table_5.md), but"
            " computed in bfloat16, with Muon (0.02, or 0.01 at half the rate) for the layers'"
            f" matrices and a weight decay of 0.1 in all arms{_adversarial(found)}.",
            f"- **Compute**: 1 x is {found.flops(1) / 1e12:.1f}e12 training FLOPs in the honest"
            " convention of `electra_jax.flops`. The first of two stages counts.",
            _fine_tuning(found),
            shared.of_probes(),
            f"- **Seeds**: {seeds} of an arm at a budget.",
            "- **Command**: `python benchmarks/crossing.py --workdir=WORKDIR"
            f" --source={shlex.quote(kept_runs.short(about['source']))} --steps={about['steps']}"
            f" --arms={','.join(found.kinds)}`, and `--downstream` with the folder of the sets."
            " Run again, it continues.",
        ]
    )


def _adversarial(found):
    """Why one arm has a rate of its own, where it was trained."""
    if "adversarial" not in found.kinds:
        return ""
    return (
        "; the adversarial one has a quarter of the whole rates, since its generator collapsed at"
        " the demo's (docs/LOG.md), and is held against ELECTRA at half"
    )


def _fine_tuning(found):
    """How the encoders are fine-tuned."""
    names = [runs.MEASURES[name] for name in fine_tuned.RATES if name in found.measures]
    random = fine_tuned.RANDOM
    return (
        f"- **Fine-tuning** ({', '.join(names)}): one seed an encoder, all training examples, three"
        " epochs of `configs/finetune_hour.py`, in rows of 64 tokens; F1 of chunks and entities and"
        " Spearman's correlation of STS-B, on dev. Random weights have the recipe that was better"
        f" for them in the hour: dropout {random['dropout']} and a rate of"
        f" {random['learning_rate']:g}."
    )


def _other_vocabulary(found, tokens):
    """Which arms read the same text in other pieces, by the number of its tokens."""
    told = []
    for kind in found.kinds:
        at = {budget: False for budget in found.budgets if found.seeds(kind, budget)}
        for (own, budget, _), run in found.runs.items():
            if own == kind and run["text"]["tokens"] != tokens:
                at[budget] = True
        if any(at.values()):
            others = [_times(budget) for budget, is_other in at.items() if is_other]
            where = "" if all(at.values()) else f" at {_listed(others)}"
            told.append(f"{TITLES[kind]}{where}")
    if not told:
        return []
    return [
        "- **Another vocabulary** of as many pieces, trained on the same text in another order,"
        f" have: {'; '.join(told)}. Some of these were trained on an Intel Xeon, the others and all"
        " before on an AMD EPYC; of the one that was trained on both the losses were equal in three"
        " digits. So no distance is taken between the two rates; a distance between arms that"
        " differ in their vocabulary has the luck of that in it too."
    ]


def _measure(found, name):
    """One measure: all arms that are held against BERT at all budgets, and their distances."""
    heads = [_times(budget) for budget in found.budgets]
    kinds = [
        kind for kind in found.curves if any(found.mean(kind, at, name) for at in found.budgets)
    ]
    scores = [
        [TITLES[kind], *(pages.percent_cell(found.mean(kind, at, name)) for at in found.budgets)]
        for kind in kinds
    ]
    if (floor := found.untrained(name)) is not None:
        scores.append(["random weights", *(pages.percent_cell(floor) for _ in found.budgets)])
    apart = [
        [
            TITLES[kind],
            *(pages.points_cell(found.apart(kind, at, name)) for at in found.budgets),
            pages.points_cell(found.growth(kind, name)),
        ]
        for kind in kinds
        if kind not in runs.BERTS
    ]
    return [
        f"## {title(name)}",
        pages.table(["", *heads], scores),
        pages.table(["less BERT at the same rate", *heads, "growth, first to last"], apart),
    ]


def _variants(found, budget):
    """All variants at one budget: their measures, and their distances from what they change."""
    kinds = [
        kind
        for kind in found.variants
        if found.seeds(kind, budget)
        # The scores of what is a curve too are in the tables above.
        and (kind not in found.curves or found.seeds(runs.origin(kind), budget))
    ]
    if not kinds:
        return []
    measures = (*found.measures, *found.in_turn)
    names = (MEAN, *measures)
    heads = [MEAN, *(runs.NAMES[name] for name in measures)]
    origins = [kind for kind in found.curves if kind in {*map(runs.origin, kinds)}]
    scores = [
        [TITLES[kind], *(pages.percent_cell(found.mean(kind, budget, name)) for name in names)]
        for kind in dict.fromkeys([*origins, *kinds])  # one may be another's origin
    ]
    apart = [
        [
            TITLES[kind],
            *(
                pages.points_cell(found.apart(kind, budget, name, runs.origin(kind)))
                for name in names
            ),
        ]
        for kind in kinds
    ]
    return [
        f"## Variants at {_times(budget)}",
        "Each changes one thing of ELECTRA with a generator of half the discriminator's width and"
        " as many layers, or of what its name says, and is compared with that at the same rate.",
        pages.table(["", *heads], scores),
        pages.table(["less what it changes", *heads], apart),
    ]


def _times(budget):
    return f"{budget} x"
