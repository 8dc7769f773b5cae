# SPDX-License-Identifier: Apache-2.0
"""What the runs of `crossing.py` came to: scores by arm and budget, and how far apart two are.

    finished.json of every run  ->  collect  ->  scores of a kind at a budget, by seed
                                ->  its distance from its rival at that budget
                                ->  how that distance grows from the smallest budget to the largest

Two kinds are compared with the seeds that both have finished. What is written of it, and drawn, is
in `crossing_page.py` and `crossing_picture.py`.
"""

import dataclasses
import os
import re
import statistics
from collections.abc import Mapping, Sequence

from benchmarks import kept_runs
from benchmarks.equal_compute_blocks import REFERENCE
from electra_jax.report import means

BUDGETS = (1, 3, 10)  # times the FLOPs of --steps of ELECTRA
BERTS = BERT, BERT_HALF = "bert", "bert_half"
ELECTRA_HALF = "electra_half"
# The kinds that are followed through the budgets and held against BERT.
CURVES = {
    BERT: "BERT (MLM)",
    REFERENCE: "ELECTRA, generator 1/2",
    "one_trunk": "ELECTRA, one trunk for both",
    BERT_HALF: "BERT (MLM), half the rate",
    ELECTRA_HALF: "ELECTRA, generator 1/2, half the rate",
    "one_trunk_half": "ELECTRA, one trunk for both, half the rate",
    "electra_demo_half": "ELECTRA, corruption of the demo, half the rate",
}
# Those that change one thing of ELECTRA with a generator of half the width, or of another ORIGIN.
VARIANTS = {
    "electra_eighth": "generator 1/8",
    "electra_quarter": "generator 1/4",
    "electra_whole": "generator 1/1",
    "electra_shallow": "generator 1/2 of one layer",
    "two_stage": "two stages",
    "adversarial": "adversarial, a quarter of the rate",
    "electra_15": "ELECTRA 15 %",
    "replace_mlm": "Replace MLM",
    "all_tokens_mlm": "All-Tokens MLM",
    "electra_eighth_half": "generator 1/8, half the rate",
    "electra_quarter_half": "generator 1/4, half the rate",
    "electra_whole_half": "generator 1/1, half the rate",
    "electra_shallow_half": "generator 1/2 of one layer, half the rate",
    "two_stage_half": "two stages, half the rate",
    "electra_30_half": "30 % chosen, half the rate",
    "electra_demo_half": CURVES["electra_demo_half"],  # which is held against BERT too
    "selection_half": "selection of the original, half the rate",
    "selection_demo_half": "corruption of the demo and selection, half the rate",
    "correction_half": "correction of replaced tokens, half the rate",
    "correction_demo_half": "corruption of the demo and correction, half the rate",
    "deberta_v3_half": "DeBERTaV3's detection, half the rate",
    "one_trunk_30_half": "one trunk, 30 % chosen, half the rate",
    "bert_30_half": "BERT, 30 % chosen, half the rate",
}
ORIGINS = {
    "adversarial": ELECTRA_HALF,  # the nearest rate
    "selection_demo_half": "electra_demo_half",
    "correction_demo_half": "electra_demo_half",
    "one_trunk_30_half": "one_trunk_half",
    "bert_30_half": BERT_HALF,
}
TITLES = CURVES | VARIANTS

# What pages call what `fine_tuned.py` and `frozen_encoder.py` measure. All are shares in 0..1, but
# for STS-B, a correlation, and all are written in percent.
MEASURES = {
    "chunking": "chunks by fine-tuning",
    "wikiann_en": "entities by fine-tuning",
    "stsb": "STS-B by fine-tuning",
    "chunk_accuracy": "chunk tags by a probe",
    "subjectivity_accuracy": "subjectivity by a probe",
    "pair_accuracy": "minimal pairs",
}
PAIRS = "pair_accuracy"  # the only one that asks the head of pre-training, and not the encoder
IN_TURN = "pair_accuracy_in_turn"  # the same pairs, read once a word by ELECTRA too
NAMES = MEASURES | {IN_TURN: "minimal pairs word by word"}
MEAN = "mean"  # of all measures, as the paper's figures have the mean of GLUE
MEAN_IN_TURN = "mean_in_turn"  # the same with IN_TURN for PAIRS
ENCODER = "encoder"  # mean of those of the encoder, which is what is kept
MEANS = {
    MEAN: "mean of all measures",
    MEAN_IN_TURN: "mean with minimal pairs word by word",
    ENCODER: "mean without minimal pairs",
}
_NAME = re.compile(r"(?P<kind>.*?)(_x(?P<budget>\d+))?")


def arm_of(kind: str, budget: int) -> str:
    """The arm of a kind at a budget: `bert`, `bert_x3`, `bert_x10`."""
    return kind if budget == 1 else f"{kind}_x{budget}"


def rivals(kind: str) -> list[str]:
    """What a kind is held against: BERT, at its own rate, and then its origin if it is a variant.

    BERT at half the rate is held against BERT.
    """
    half = kind.endswith("_half") and kind != BERT_HALF
    found = []
    if kind in CURVES:
        found.append(BERT_HALF if half else BERT)
    if kind in VARIANTS:
        found.append(origin(kind))
    return found


def origin(kind: str) -> str:
    """What a variant changes in one thing."""
    return ORIGINS.get(kind, ELECTRA_HALF if kind.endswith("_half") else REFERENCE)


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
    def curves(self) -> list[str]:
        """Those of them that are held against BERT, and BERT."""
        return [kind for kind in self.kinds if kind in CURVES]

    @property
    def variants(self) -> list[str]:
        """Those of them that are held against ELECTRA."""
        return [kind for kind in self.kinds if kind in VARIANTS]

    @property
    def measures(self) -> list[str]:
        """That a run has, in the order of the page."""
        return [
            name for name in MEASURES if any(name in run["measures"] for run in self.runs.values())
        ]

    @property
    def in_turn(self) -> list[str]:
        """`IN_TURN`, if an ELECTRA was asked."""
        asked = (run["measures"] for (kind, *_), run in self.runs.items() if kind not in BERTS)
        return [IN_TURN] if any(IN_TURN in measured for measured in asked) else []

    @property
    def averages(self) -> list[str]:
        """Those of `MEANS` that say something else than the measures themselves."""
        if len(self.measures) < 3 or PAIRS not in self.measures:
            return [MEAN]
        return [MEAN, MEAN_IN_TURN, ENCODER] if self.in_turn else [MEAN, ENCODER]

    @property
    def budgets(self) -> list[int]:
        """At which a run has finished."""
        return sorted({budget for _, budget, _ in self.runs})

    def ends(self, kind: str, other: str) -> tuple[int, int]:
        """The smallest and the largest budget at which two kinds share a seed."""
        shared = [
            budget
            for budget in self.budgets
            if {*self.seeds(kind, budget)} & {*self.seeds(other, budget)}
        ]
        return (shared[0], shared[-1]) if shared else (self.budgets[0], self.budgets[0])

    def seeds(self, kind: str, budget: int, measure: str | None = None) -> list[int]:
        """That have finished; with a measure or one of `MEANS` those of them that have it."""
        found = sorted(seed for name, at, seed in self.runs if (name, at) == (kind, budget))
        if measure is None:
            return found
        return [seed for seed in found if self.values(kind, budget, measure, [seed])]

    def values(self, kind: str, budget: int, name: str, seeds: Sequence[int]) -> list[float]:
        """A measure, or the mean of all, of these seeds; those that have it."""
        found = (self._score(self.runs[kind, budget, seed]["measures"], name) for seed in seeds)
        return [value for value in found if value is not None]

    def _score(self, measured, name):
        """One measure or one of `MEANS`; None where one is missing."""
        if name not in MEANS:
            return measured.get(name)
        each = [measured.get(measure) for measure in self.asked(name)]
        return None if None in each else statistics.fmean(each)

    def asked(self, mean: str) -> list[str]:
        """The measures that one of `MEANS` is a mean of."""
        if mean == MEAN_IN_TURN:
            return [IN_TURN if name == PAIRS else name for name in self.measures]
        return [name for name in self.measures if mean == MEAN or name != PAIRS]

    def mean(self, kind: str, budget: int, name: str) -> means.Mean | None:
        """Over the seeds that have finished."""
        values = self.values(kind, budget, name, self.seeds(kind, budget))
        return means.mean(values) if values else None

    def apart(self, kind: str, budget: int, name: str, other: str = "") -> means.Difference | None:
        """A kind less another, or without one its first rival, within each seed that has both."""
        other = other or rivals(kind)[0]
        both = sorted({*self.seeds(kind, budget, name)} & {*self.seeds(other, budget, name)})
        one, two = (self.values(arm, budget, name, both) for arm in (kind, other))
        return means.paired(one, two) if both else None

    def growth(self, kind: str, name: str, other: str = "") -> means.Difference | None:
        """How much more a kind is above another at the larger of their `ends` than at the smaller.

        Taken within each seed that has all four runs; None without any.
        """
        both = (kind, other or rivals(kind)[0])
        ends = self.ends(*both)
        seeds = set.intersection(*({*self.seeds(arm, at, name)} for arm in both for at in ends))
        less_at = [
            [
                one - two
                for one, two in zip(*(self.values(arm, at, name, sorted(seeds)) for arm in both))
            ]
            for at in ends
        ]
        first, last = less_at
        return means.paired(last, first) if first and ends[0] != ends[1] else None

    def flops(self, budget: int) -> float:
        """Of a run at a budget."""
        arm = self.about["arms"][REFERENCE]
        return budget * arm["steps"] * arm["flops_per_row"] * self.about["rows"]

    def untrained(self, name: str) -> means.Mean | None:
        """Of ELECTRA's encoders before training."""
        found = [self._score(run.get("untrained", {}), name) for run in self.runs.values()]
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
