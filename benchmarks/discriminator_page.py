# SPDX-License-Identifier: Apache-2.0
"""The page of `discriminator.py`: what each change is worth to the discriminator's AUC.

    finished.json of every run  ->  collect  ->  seeds that have the reference
                                ->  AUC of each arm, and its distance from the reference, by seed
                                ->  a table a question, and a picture

Runs of one seed share text, generators and held-out rows, so an arm is compared with the reference
within each seed: the error is that of the mean of these distances. Trains nothing.
"""

import dataclasses
import io
import shlex
from collections.abc import Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker
from scipy import stats

from benchmarks import kept_runs, pages
from benchmarks.discriminator_questions import (
    ANSWERS,
    CORRUPTED_BY,
    QUESTIONS,
    REFERENCE,
    UNMET,
)
from electra_jax.report import comparison, means, style


@dataclasses.dataclass(frozen=True)
class FinishedArms:
    """The finished runs of all seeds that have the reference."""

    about: Mapping
    seeds: Sequence[int]
    runs: Mapping[tuple[str, int], Mapping]  # (arm, seed) -> finished.json

    def has(self, arm: str) -> bool:
        """Whether any seed has it."""
        return any(name == arm for name, _ in self.runs)

    def auc(self, arm: str, by: str = UNMET) -> means.Mean:
        """On the rows that this generator has corrupted; the mean over the arm's seeds."""
        return means.mean([self.runs[arm, seed]["auc"][by] for seed in self.seeds_of(arm)])

    def apart(self, arm: str, other: str = REFERENCE) -> means.Difference | None:
        """An arm less another, within each seed; None if no seed has both."""
        found = [
            self.runs[arm, seed]["auc"][UNMET] - self.runs[other, seed]["auc"][UNMET]
            for seed in self.seeds_of(arm)
            if (other, seed) in self.runs
        ]
        if not found:
            return None
        nothing = means.Mean(0.0, 0.0 if len(found) > 1 else None, len(found))
        return comparison.difference("disc_auc", means.mean(found), nothing)

    def identity(self, by: str) -> means.Mean | None:
        """The AUC of what an id says by itself, on these rows."""
        found = [self.runs[by, seed].get("identity_auc", {}).get(by) for seed in self.seeds_of(by)]
        found = [value for value in found if value is not None]
        return means.mean(found) if found else None

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds for which an arm is finished."""
        return [seed for seed in self.seeds if (arm, seed) in self.runs]


def collect(workdir: str) -> FinishedArms:
    """Reads what is finished. Raises SystemExit if no seed has the reference."""
    about, read = kept_runs.experiment(workdir), kept_runs.finished(workdir).values()
    seeds = sorted(one["seed"] for one in read if one["arm"] == REFERENCE)
    if not seeds:
        raise SystemExit(f"{workdir}: the reference is not finished for any seed")
    runs = {(one["arm"], one["seed"]): one for one in read if one["seed"] in seeds}
    return FinishedArms(about, seeds, runs)


def write(found: FinishedArms, page: str) -> None:
    """Writes the page and its picture."""
    pages.write_with_picture(page, draw(found), lambda picture: blocks(found, picture))


def blocks(found: FinishedArms, picture: str) -> list[str]:
    """The page, block by block."""
    return [
        "# What limits the discriminator",
        "Discriminators that differ in one setting. Most learn from a generator that was trained"
        " before and is frozen, some from one that learns along. All read the same held-out rows;"
        " the measure is the AUC of finding replaced words among words, where chance is 0.5. It"
        " is read off rows of a generator as strong as the middle one, which no"
        " discriminator but its own has met.",
        *_answer(found),
        "## What was done",
        _setting(found),
        f"![AUC against {', '.join(one.heading.lower() for one in _shown(found))}]({picture})",
        "Rows of the generator that none has met. Bars are two standard errors over seeds, where"
        " there are several. In the tables a column is the AUC on the rows that one generator has"
        " corrupted.",
        *(block for question in QUESTIONS for block in _part(found, question)),
        "## How to read this",
        _reading(found),
    ]


def _answer(found):
    """What `ANSWERS` asks, with the distances that are finished."""
    lines = []
    for asked, distances in ANSWERS:
        told = [
            f"{words} {pages.apart_cell(found.apart(arm, other), 'disc_auc')}"
            for arm, other, words in distances
            if found.apart(arm, other) is not None
        ]
        if told:
            if asked.endswith("?"):
                told[0] = told[0][0].upper() + told[0][1:]
            lines.append(f"- {asked} {'; '.join(told)}.")
    if not lines:
        return []
    return [
        "## In short",
        "Distances of AUC on the rows of the generator that none has met, within each seed."
        " *Tables* are the embeddings; with `gdes` the discriminator adds its own changes to the"
        " generator's, as in DeBERTaV3; a head of `cls_context` also reads [CLS]. *Higher* and"
        " *lower* are two standard errors or more; in bold where luck alone makes such a distance"
        f" in less than one case of twenty (Student's t), which with {len(found.seeds)} seeds asks"
        " for much.",
        "\n".join(lines),
        "`configs/tiny.py` has shared tables, a weight of 5, and half the reference's rate for the"
        " discriminator alone; docs/LOG.md has its own trials."
        " What twelve layers learn from a hundred times as many tokens is in"
        " [first light](first_light.md).",
    ]


def draw(found: FinishedArms) -> bytes:
    """A panel for each question whose arms lie on an axis; PNG."""
    palette = style.LIGHT
    shown = _shown(found)
    columns = min(4, max(1, len(shown)))
    lines = -(-max(1, len(shown)) // columns)
    size = (2.9 * columns + 0.6, 2.5 * lines + 0.4)
    figure = mpl_figure.Figure(figsize=size, facecolor=palette["card"])
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)

    for axes, question in zip(panels.flat, shown):
        points = _on_axis(found, question)
        middles = [found.auc(arm) for arm, _ in points]
        axes.errorbar(
            [place for _, place in points], [mean.value for mean in middles],
            yerr=[2 * (mean.error or 0) for mean in middles],
            color=palette["third"], marker="o", markersize=5, linewidth=1.6, capsize=2,
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks([place for _, place in points], [question.arms[arm] for arm, _ in points])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5))
        pages.plain_axes(axes, question.heading)
    figure.tight_layout(w_pad=1.6, h_pad=1.6)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _shown(found):
    """The questions that have a panel."""
    return [question for question in QUESTIONS if len(_on_axis(found, question)) > 1]


def _on_axis(found, question):
    """(arm, place) of the finished arms of a question that lie on an axis."""
    return [(arm, place) for arm, place in question.values.items() if found.has(arm)]


def _setting(found):
    """What all runs have in common."""
    about, seeds = found.about, len(found.seeds)
    text = found.runs[REFERENCE, found.seeds[0]]["text"]
    tokens = about["rows"] * about["length"]
    before = []
    for name, title in CORRUPTED_BY.items():
        own = [found.runs[name, seed].get("generator") for seed in found.seeds_of(name)]
        if own and own[0]:
            below = means.mean([one["unigram_entropy"] - one["gen_masked_loss"] for one in own])
            steps = round(about["generators"][name] * about["steps"])
            before.append(
                f"{title} after {style.count(steps * tokens)} places in rows,"
                f" {below.value:.2f} nats below the unigram entropy"
            )
    source = shlex.quote(kept_runs.short(about["source"]))
    command = f"python benchmarks/discriminator.py --source={source}"
    return "\n".join(
        [
            f"- **Text**: {about['corpus']}, {text['characters'] / 1e6:.0f} million characters,"
            f" {style.count(text['tokens'])} tokens; one vocabulary for all runs.",
            "- **The reference**: two layers of width 128 with rotary positions and norms before"
            " each part, in bfloat16, Muon with a weight decay of 0.1,"
            f" {about['rows']} rows of {about['length']} tokens per step, {about['steps']:,} steps:"
            f" {style.count(about['steps'] * tokens)} places in rows. Its generator, one layer of"
            " width 64 with tables of its own, was trained before and is frozen.",
            f"- **Generators**: {'; '.join(before)}.",
            f"- **Seeds**: {seeds}. A seed has its own order and cut of the text, generators and"
            " first weights; the held-out documents are the same for all. Arms are compared within"
            " each seed.",
            *_identity(found),
            f"- **Command**: `{command}`. It trains all arms, or those of `--arms`;"
            " run again, it continues.",
        ]
    )


def _identity(found):
    """What an AUC above chance is without any context."""
    cells = [
        f"{comparison.with_error('disc_auc', mean)} ({title})"
        for by, title in CORRUPTED_BY.items()
        if (mean := found.identity(by)) is not None
    ]
    if not cells:
        return []
    return [
        "- **Without context**: how often an id is replaced in other rows gives an AUC of"
        f" {', '.join(cells)}."
    ]


def _part(found, question):
    """The table of one question; nothing if there is nothing to compare."""
    arms, against = [arm for arm in question.arms if found.has(arm)], dict(question.pairs)
    if not any(against.get(arm) in arms for arm in arms):
        return []

    rows = []
    for arm in arms:
        cells = [comparison.with_error("disc_auc", found.auc(arm, by)) for by in CORRUPTED_BY]
        apart = found.apart(arm, against[arm]) if arm in against else None
        rows.append(
            [question.arms[arm], *cells, pages.apart_cell(apart, "disc_auc") if apart else ""]
        )
    less = "less what it differs from" if question.against else "less the reference"
    head = [question.column, *CORRUPTED_BY.values(), less]
    return [f"## {question.heading}", question.words, pages.table(head, rows)]


def _reading(found):
    """What the numbers are, and what they are not."""
    pairs = dict.fromkeys(pair for question in QUESTIONS for pair in question.pairs)
    compared = [found.apart(*pair) for pair in pairs if all(map(found.has, pair))]
    distances = [apart for apart in compared if apart is not None]
    known = [apart for apart in distances if apart.error is not None]
    resolved = [apart for apart in known if apart.resolved]
    firm = sum(apart.beyond_luck for apart in known)
    seeds = len(found.seeds)
    lines = [
        "- One seed, so no error is known."
        if seeds < 2
        else f"- {len(resolved)} of the {len(known)} distances of several seeds are two standard"
        f" errors or more, and {firm} of them more than luck makes in one case of twenty. Luck"
        f" alone passes two errors in {2 * stats.t.sf(2, seeds - 1):.0%} of all cases with {seeds}"
        " seeds (Student's t), and where the reference is lucky, in many at once. Equal settings"
        " on two machines passed it too (*Luck*).",
        "- A larger AUC is a better discriminator of these rows. It is no promise for fine-tuning.",
        "- One setting is changed at a time, and no other is tuned to it. Rows of other lengths"
        " have other shares of [CLS] and [SEP], and here their discriminators read rows of 64.",
    ]
    return "\n".join(lines)
