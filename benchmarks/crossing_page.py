# SPDX-License-Identifier: Apache-2.0
"""The page of `crossing.py`: scores against training FLOPs, and where ELECTRA passes BERT.

    finished.json of every run  ->  collect  ->  mean +- standard error by arm and budget
                                ->  distances from BERT at each budget, in words where resolved
                                ->  tables, and a picture with a panel a measure

An arm stands beside BERT with the seeds that both have finished at that budget. Trains nothing.
"""

import dataclasses
import io
import os
import re
import shlex
from collections.abc import Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from benchmarks import equal_compute_blocks as shared
from benchmarks import fine_tuned, kept_runs, pages
from benchmarks.equal_compute_blocks import REFERENCE
from electra_jax.report import comparison, means, style

BUDGETS = (1, 3, 10)  # times the FLOPs of --steps of ELECTRA
# What the page calls what `fine_tuned.py` and `frozen_encoder.py` measure. All are shares in 0..1,
# but for STS-B, a correlation, and all are written in percent.
MEASURES = {
    "chunking": "chunks by fine-tuning",
    "wikiann_en": "entities by fine-tuning",
    "stsb": "STS-B by fine-tuning",
    "chunk_accuracy": "chunk tags by a probe",
    "subjectivity_accuracy": "subjectivity by a probe",
    "pair_accuracy": "minimal pairs",
}
BERT, BERT_HALF = "bert", "bert_half"
TITLES = {
    BERT: "BERT (MLM)",
    REFERENCE: "ELECTRA, generator 1/2",
    "electra_eighth": "ELECTRA, generator 1/8",
    "electra_quarter": "ELECTRA, generator 1/4",
    "electra_whole": "ELECTRA, generator 1/1",
    "electra_shallow": "ELECTRA, generator 1/2 of one layer",
    "one_trunk": "ELECTRA, one trunk for both",
    BERT_HALF: "BERT (MLM), half the rate",
    "electra_half": "ELECTRA, generator 1/2, half the rate",
    "one_trunk_half": "ELECTRA, one trunk for both, half the rate",
    "two_stage": "two stages",
    "adversarial": "adversarial",
    "electra_15": "ELECTRA 15 %",
    "replace_mlm": "Replace MLM",
    "all_tokens_mlm": "All-Tokens MLM",
}
LINES = ("--", "-.", ":", (0, (1, 2)), (0, (5, 1)), (0, (3, 1, 1, 1)))  # of arms in the back
_NAME = re.compile(r"(?P<kind>.*?)(_x(?P<budget>\d+))?")


def arm_of(kind: str, budget: int) -> str:
    """The arm of a kind at a budget: `bert`, `bert_x3`, `bert_x10`."""
    return kind if budget == 1 else f"{kind}_x{budget}"


def rival(kind: str) -> str:
    """The BERT that a kind is compared with: that of its own rate."""
    return BERT_HALF if kind.endswith("_half") and kind != BERT_HALF else BERT


@dataclasses.dataclass(frozen=True)
class FinishedBudgets:
    """All finished runs."""

    about: Mapping
    runs: Mapping[tuple[str, int, int], Mapping]  # (kind, budget, seed) -> finished.json

    @property
    def kinds(self) -> list[str]:
        """That have a finished run, in the order of the page."""
        return [kind for kind in TITLES if any(kind == name for name, _, _ in self.runs)]

    @property
    def budgets(self) -> list[int]:
        """At which a run has finished."""
        return sorted({budget for _, budget, _ in self.runs})

    def ends(self, kind: str) -> tuple[int, int]:
        """The smallest and the largest budget at which a kind and its BERT share a seed."""
        shared = [
            budget
            for budget in self.budgets
            if {*self.seeds(kind, budget)} & {*self.seeds(rival(kind), budget)}
        ]
        return (shared[0], shared[-1]) if shared else (self.budgets[0], self.budgets[0])

    def seeds(self, kind: str, budget: int) -> list[int]:
        """That have finished."""
        return sorted(seed for name, at, seed in self.runs if (name, at) == (kind, budget))

    def values(self, kind: str, budget: int, name: str, seeds: Sequence[int]) -> list[float]:
        """A measure of these seeds; those that have it."""
        found = (self.runs[kind, budget, seed]["measures"].get(name) for seed in seeds)
        return [value for value in found if value is not None]

    def mean(self, kind: str, budget: int, name: str) -> means.Mean | None:
        """Over the seeds that have finished."""
        values = self.values(kind, budget, name, self.seeds(kind, budget))
        return means.mean(values) if values else None

    def apart(self, kind: str, budget: int, name: str) -> means.Difference | None:
        """A kind less its BERT, over the seeds that both have finished at this budget."""
        other = rival(kind)
        both = sorted({*self.seeds(kind, budget)} & {*self.seeds(other, budget)})
        one, two = (self.values(arm, budget, name, both) for arm in (kind, other))
        if not one or len(one) != len(two):
            return None
        return comparison.difference(name, means.mean(one), means.mean(two))

    def growth(self, kind: str, name: str) -> means.Difference | None:
        """How much more a kind is above its BERT at the larger of its `ends` than at the smaller.

        Taken within each seed that has all four runs; None without any.
        """
        ends, both = self.ends(kind), (kind, rival(kind))
        seeds = set.intersection(*({*self.seeds(arm, at)} for arm in both for at in ends))
        less_at = [
            [
                one - two
                for one, two in zip(*(self.values(arm, at, name, sorted(seeds)) for arm in both))
            ]
            for at in ends
        ]
        grown = [last - first for first, last in zip(*less_at)]
        if not grown or ends[0] == ends[1]:
            return None
        nothing = means.Mean(0.0, 0.0 if len(grown) > 1 else None, len(grown))
        return comparison.difference(name, means.mean(grown), nothing)

    def flops(self, budget: int) -> float:
        """Of a run at a budget."""
        arm = self.about["arms"][REFERENCE]
        return budget * arm["steps"] * arm["flops_per_row"] * self.about["rows"]

    def untrained(self, name: str) -> means.Mean | None:
        """Of ELECTRA's encoders before training."""
        found = [run.get("untrained", {}).get(name) for run in self.runs.values()]
        found = [value for value in found if value is not None]
        return means.mean(found) if found else None


def collect(workdir: str, kinds: Sequence[str]) -> FinishedBudgets:
    """Reads what is finished of these kinds. Raises SystemExit if that is nothing."""
    about, runs = kept_runs.experiment(workdir), {}
    for name, content in kept_runs.finished(workdir).items():
        named = _NAME.fullmatch(os.path.basename(name))
        kind, budget = named["kind"], int(named["budget"] or 1)
        if kind in kinds and kind in TITLES:
            runs[kind, budget, content["seed"]] = content
    if not runs:
        raise SystemExit(f"{workdir}: no run of {', '.join(kinds)} is finished yet")
    return FinishedBudgets(about, runs)


def write(found: FinishedBudgets, page: str) -> None:
    """Writes the page and its picture."""
    pages.write_with_picture(page, draw(found), lambda picture: blocks(found, picture))


def blocks(found: FinishedBudgets, picture: str) -> list[str]:
    """The page, block by block."""
    named = _measured(found)
    return [
        "# Does ELECTRA pass BERT when both get more compute?",
        "In the paper ELECTRA is above BERT at every share of the compute, from a few per cent of"
        " it on (figures 2 and 4). At the size of two cores and a few minutes, BERT is above"
        " ELECTRA in chunk tags of a frozen encoder ([table 5](table_5.md)). Here both get more"
        " compute, and are fine-tuned.",
        "## In short",
        "\n".join(f"- {answer(found, name, kind)}" for name in named for kind in _told(found)),
        "## What was done",
        _setting(found),
        f"![scores of all arms against training FLOPs]({picture})",
        "Lines join means over seeds, bands are two standard errors to either side; dashed are"
        " random weights.",
        *(block for name in named for block in _measure(found, name)),
        "## How to read this",
        "\n".join(
            [
                "- Below two standard errors a difference counts as not resolved. A distance is"
                " taken over the seeds that both arms have finished. With three seeds luck alone"
                " passes that rule about one time in eight (Student's t), so among so many"
                " distances some are luck. Growth is taken within each seed, from the smallest"
                " budget to the largest that an arm and BERT have in common.",
                "- Muon's rate of 0.02 was found on a masked language model and tried with one"
                " trunk for both networks (docs/LOG.md). At half of it small discriminators learn"
                " more in as many steps ([what limits them](discriminator.md)), so three arms have"
                " half of it; they are compared with BERT at half the rate. No other was tried.",
                "- A run at three times the compute is a run of its own, with a schedule of its"
                " own; steps by arm differ, since a step of one costs more than one of another.",
                "- A few small sets are not GLUE. The recipe of fine-tuning was chosen on"
                " ELECTRA's encoders (docs/LOG.md), which can only favour ELECTRA.",
            ]
        ),
    ]


def answer(found: FinishedBudgets, name: str, kind: str = REFERENCE) -> str:
    """Where ELECTRA, or one of its kinds, is above BERT and where below, in a sentence."""
    parts: dict[str, list[str]] = {}
    for budget in found.budgets:
        apart = found.apart(kind, budget, name)
        if apart is not None:
            told = "not resolved from BERT"
            if apart.resolved:
                told = "above BERT" if apart.amount > 0 else "below BERT"
            parts.setdefault(told, []).append(_times(budget))

    title = _title(name)
    if not parts:
        return f"{title}: nothing can be compared yet."
    told = "; ".join(f"{words} at {_listed(times)}" for words, times in parts.items())
    return f"{title}: {_subject(kind)} is {told}.{_grown(found, name, kind)}"


def _listed(times):
    """1 x, 3 x and 10 x."""
    *first, last = times
    return f"{', '.join(first)} and {last}" if first else last


def _subject(kind):
    """ELECTRA, or ELECTRA (one trunk for both)."""
    method, _, variant = TITLES[kind].partition(", ")
    return method if kind == REFERENCE else f"{method} ({variant})"


def _told(found):
    """The kinds that are told of first: ELECTRA as published, and its others of several seeds."""
    others = [kind for kind in found.kinds if kind.startswith(("electra_", "one_trunk"))]
    counts = {kind: max(len(found.seeds(kind, at)) for at in found.budgets) for kind in others}
    return [REFERENCE, *(kind for kind in others if counts[kind] > 1)]


def _grown(found, name, kind):
    """How the distance from BERT changes with the budget, in a sentence."""
    grown = found.growth(kind, name)
    if grown is None or grown.resolved is None:
        return ""
    points = f"{100 * grown.amount:+.1f} ± {100 * grown.error:.1f} points"
    verdict = "" if grown.resolved else ", not resolved"
    first, last = map(_times, found.ends(kind))
    return f" From {first} to {last} {_subject(kind)} less BERT changes by {points}{verdict}."


def draw(found: FinishedBudgets) -> bytes:
    """A panel a measure, a line an arm; PNG."""
    palette = style.LIGHT
    named = _measured(found)
    columns, lines = min(3, len(named)), -(-len(named) // 3)
    size = (4.4 * columns, 4.2 * lines)
    figure = mpl_figure.Figure(figsize=size, facecolor=palette["card"])
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for axes in panels[len(named) :]:
        axes.set_visible(False)

    for axes, name in zip(panels, named):
        for kind in found.kinds:
            _line(axes, found, kind, name)
        floor = found.untrained(name)
        if floor is not None:
            axes.axhline(100 * floor.value, color=palette["muted"], linewidth=1.1,
                         linestyle=(0, (4, 3)))  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks([found.flops(budget) for budget in found.budgets],
                        [_times(budget) for budget in found.budgets])  # fmt: skip
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_xlabel("training FLOPs", color=palette["muted"], fontsize=9)
        pages.plain_axes(axes, f"{_title(name)}, %")
    panels[0].legend(frameon=False, fontsize=8, labelcolor=palette["ink"])
    figure.tight_layout(w_pad=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _line(axes, found, kind, name):
    """Draws the curve of one arm with its band."""
    palette = style.LIGHT
    points = {budget: found.mean(kind, budget, name) for budget in found.budgets}
    points = {budget: mean for budget, mean in points.items() if mean is not None}
    if not points:
        return
    at = [found.flops(budget) for budget in points]
    middles = [100 * mean.value for mean in points.values()]
    spreads = [200 * (mean.error or 0) for mean in points.values()]

    # BERT and ELECTRA have the strong colours, the others stand behind them.
    colour = {BERT: palette["second"], REFERENCE: palette["third"]}.get(kind, palette["muted"])
    strong = kind in (BERT, REFERENCE)
    line_style = "-" if strong else LINES[found.kinds.index(kind) % len(LINES)]
    axes.plot(at, middles, color=colour, linestyle=line_style, linewidth=2 if strong else 1.1,
              marker="o", markersize=4, label=TITLES[kind])  # fmt: skip
    if strong:
        low, high = (
            [middle + sign * spread for middle, spread in zip(middles, spreads)] for sign in (-1, 1)
        )
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)


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
            f" {about['rows']} rows a step.",
            *_other_vocabulary(found, text["tokens"]),
            "- **Networks**: `configs/tiny_paper.py` (two layers of width 128, no dropout)"
            " with rotary positions and norms before each part, as in [table 5](table_5.md), but"
            " computed in bfloat16, with Muon (0.02, or 0.01 at half the rate) for the layers'"
            " matrices and a weight decay of 0.1 in all arms; the adversarial one has a quarter of"
            " the others' rates, since its generator collapsed at the demo's (docs/LOG.md).",
            f"- **Compute**: 1 x is {found.flops(1) / 1e12:.1f}e12 training FLOPs in the honest"
            " convention of `electra_jax.flops`. The first of two stages counts.",
            _fine_tuning(found),
            shared.of_probes(),
            f"- **Seeds**: {seeds} of an arm at a budget.",
            "- **Command**: `python benchmarks/crossing.py --workdir=WORKDIR"
            f" --source={shlex.quote(kept_runs.short(about['source']))} --steps={about['steps']}"
            f" --arms={','.join(found.kinds)}`, and `--downstream` with the folder of the sets."
            " Run again, it goes on.",
        ]
    )


def _fine_tuning(found):
    """How the encoders are fine-tuned."""
    names = [MEASURES[name] for name in fine_tuned.RATES if name in _measured(found)]
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
    kinds = [
        kind
        for kind in found.kinds
        if any(
            run["text"]["tokens"] != tokens for (own, *_), run in found.runs.items() if own == kind
        )
    ]
    if not kinds:
        return []
    return [
        "- **Another vocabulary** of as many pieces, trained on the same text in another order,"
        f" have: {'; '.join(TITLES[kind] for kind in kinds)}."
    ]


def _measure(found, name):
    """One measure: all arms at all budgets, and their distances from BERT."""
    heads = [_times(budget) for budget in found.budgets]
    scores = [
        [TITLES[kind], *(pages.percent_cell(found.mean(kind, at, name)) for at in found.budgets)]
        for kind in found.kinds
    ]
    if (floor := found.untrained(name)) is not None:
        scores.append(["random weights", *(pages.percent_cell(floor) for _ in found.budgets)])
    apart = [
        [
            TITLES[kind],
            *(pages.points_cell(found.apart(kind, at, name)) for at in found.budgets),
            pages.points_cell(found.growth(kind, name)),
        ]
        for kind in found.kinds
        if kind != BERT
    ]
    return [
        f"## {_title(name)}",
        pages.table(["", *heads], scores),
        pages.table(["less BERT", *heads, "growth, first to last"], apart),
    ]


def _measured(found):
    """The downstream measures that a run has."""
    return [
        name for name in MEASURES if any(name in run["measures"] for run in found.runs.values())
    ]


def _title(name):
    """What a measure is called at the beginning of a line."""
    title = MEASURES[name]
    return title[0].upper() + title[1:]


def _times(budget):
    return f"{budget} x"
