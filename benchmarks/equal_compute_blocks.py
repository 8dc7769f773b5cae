# SPDX-License-Identifier: Apache-2.0
"""What the runs of a comparison at equal compute came to, as blocks of a page. Trains nothing.

    finished.json of every run  ->  collect  ->  seeds in which no arm is missing
                                ->  mean +- standard error of each arm, differences between arms
                                ->  the blocks of a page, and a picture

A page chooses among the blocks and adds its own: `table_5_page.py`, `section_3_page.py`.
"""

import dataclasses
import io
import os
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from benchmarks import kept_runs, pages
from electra_jax.report import comparison, means, style

REFERENCE = "electra"  # whose steps are given, and what others are compared with
DOWNSTREAM = {  # what `frozen_encoder.py` measures -> what pages call it
    "chunk_accuracy": "chunk tags",
    "subjectivity_accuracy": "subjectivity",
    "pair_accuracy": "minimal pairs",
}


@dataclasses.dataclass(frozen=True)
class CompleteSeeds:
    """The complete seeds, and what all runs share."""

    about: Mapping
    titles: Mapping[str, str]  # of the arms, in the order of the page
    arms: Sequence[str]  # that have finished runs, in the order of the page
    seeds: Sequence[int]  # in which all of these are finished
    left_out: int  # finished runs of other seeds
    runs: Mapping[tuple[str, int], Mapping]  # (arm, seed) -> finished.json

    def values(self, arm: str, name: str) -> list[float]:
        """A measure of an arm's runs over the complete seeds; empty where one has none."""
        found = [self.runs[arm, seed]["measures"].get(name) for seed in self.seeds]
        return [] if None in found else found

    def mean(self, arm: str, name: str) -> means.Mean | None:
        """The same as mean and standard error."""
        values = self.values(arm, name) if arm in self.arms else []
        return means.mean(values) if values else None

    def untrained(self, name: str, arm: str = REFERENCE) -> means.Mean | None:
        """Of an arm's encoder before training."""
        found = [self.runs[arm, seed].get("untrained", {}).get(name) for seed in self.seeds]
        return None if None in found else means.mean(found)

    def apart(self, arm: str, other: str, name: str) -> means.Difference | None:
        """`arm` less `other`."""
        one, two = self.mean(arm, name), self.mean(other, name)
        return None if one is None or two is None else comparison.difference(name, one, two)


def collect(workdir: str, titles: Mapping[str, str]) -> CompleteSeeds:
    """Reads what is finished of these arms. Raises SystemExit if no seed is complete."""
    about = kept_runs.experiment(workdir)
    runs: dict[tuple[str, int], Mapping] = {}
    for name, found in kept_runs.finished(workdir).items():
        arm = os.path.basename(name)
        if arm in titles:
            runs[arm, found["seed"]] = found
    arms = [arm for arm in titles if any(arm == name for name, _ in runs)]
    seeds = sorted({seed for _, seed in runs})
    complete = [seed for seed in seeds if all((arm, seed) in runs for arm in arms)]
    if not complete or REFERENCE not in arms:
        raise SystemExit(f"{workdir}: no seed is complete yet ({len(runs)} runs are finished)")
    left_out = sum(seed not in complete for _, seed in runs)
    return CompleteSeeds(about, titles, arms, complete, left_out, runs)


def write(
    found: CompleteSeeds, page: str, blocks: Callable[[CompleteSeeds, str], Sequence[str]]
) -> None:
    """Writes the page of these blocks and the picture of its measures."""
    pages.write_with_picture(page, draw(found), lambda picture: blocks(found, picture))


def draw(found: CompleteSeeds) -> bytes:
    """A panel a measure, a row an arm; PNG."""
    palette = style.LIGHT
    titles = DOWNSTREAM | {"disc_auc_unigram": "AUC on unigram replacements"}
    shown = [name for name in titles if found.mean(REFERENCE, name) is not None]
    height = 0.34 * len(found.arms) + 1.1
    figure = mpl_figure.Figure(figsize=(2.6 + 2.7 * len(shown), height), facecolor=palette["card"])
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown):
        scale = 100 if style.is_share(name) else 1
        for place, arm in enumerate(found.arms):
            mean = found.mean(arm, name)
            if mean is None:
                continue
            colour = palette["third" if arm == REFERENCE else "second"]
            values = [scale * value for value in found.values(arm, name)]
            axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=5,
                      markeredgewidth=0)  # fmt: skip
            middle, spread = scale * mean.value, 2 * scale * (mean.error or 0)
            axes.plot([middle - spread, middle + spread], [place, place], color=colour, linewidth=2)
            axes.plot(middle, place, "D", color=colour, markersize=6.5)
        floor = found.untrained(name)
        if floor is not None:
            axes.axvline(scale * floor.value, color=palette["muted"], linewidth=1.2,
                         linestyle=(0, (4, 3)))  # fmt: skip
        pages.plain_axes(axes, titles[name] + (", %" if scale == 100 else ""), grid="x")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=4))
    panels[0].set_yticks(range(len(found.arms)), [found.titles[arm] for arm in found.arms])
    panels[0].tick_params(axis="y", colors=palette["ink"], labelsize=9.5)
    panels[0].set_ylim(len(found.arms) - 0.5, -0.5)
    figure.tight_layout(w_pad=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


# --- blocks of a page -------------------------------------------------------------------------


def of_text(found: CompleteSeeds) -> str:
    """The text that was trained on."""
    about, text_ = found.about, found.runs[REFERENCE, found.seeds[0]]["text"]
    return (
        f"- **Text**: {text_['corpus'] or 'text'} of {text_['characters'] / 1e6:.0f} million"
        f" characters, {text_['documents']:,} documents, {style.count(text_['tokens'])} tokens;"
        f" SentencePiece vocabulary of {text_['vocabulary']:,} pieces, trained on it; rows"
        f" of {about['length']} tokens, {about['rows']} rows per step."
    )


def of_compute(found: CompleteSeeds) -> str:
    """How many FLOPs and tokens an arm gets."""
    about = found.about
    reference, rows = about["arms"][REFERENCE], about["rows"]
    flops = reference["steps"] * reference["flops_per_row"] * rows
    tokens = reference["steps"] * rows * about["length"]
    return (
        f"- **Equal compute**: {flops / 1e12:.1f}e12 training FLOPs an arm, in the honest"
        " convention of `electra_jax.flops` (three forward passes of matrix products, look-ups"
        " free). So an arm with a dearer step gets fewer steps; ELECTRA's are"
        f" {style.count(tokens)} places in rows. The rate falls in a straight line to 0 over each"
        " arm's own steps, after a tenth of them as warmup."
    )


def of_probes() -> str:
    """What is asked of the encoders."""
    return "\n".join(
        [
            "- **Chunk tags**: CoNLL-2000, 2,000 sentences to fit a linear probe and the whole test"
            " set to try it, from the last hidden state at each word's first token. Share of"
            " words.",
            "- **Subjectivity**: 10,000 sentences, half to fit and half to try, from the mean of"
            " the last hidden states. Share of sentences. Both probes are ridge regressions; the"
            " encoder is frozen.",
            "- **Minimal pairs**: 600 made-up pairs that differ in one word (a or an, this or"
            " these, is or are, was or were); how often the right one scores higher"
            " (`electra_jax.score`: BERT masks each word in turn, the others look once). Who"
            " knows only how frequent words are gets 50 %.",
        ]
    )


def of_command(found: CompleteSeeds, script: str) -> str:
    """How the runs are made again, and how long they took."""
    about = found.about
    minutes = statistics.median(run["seconds"] for run in found.runs.values()) / 60
    return "\n".join(
        [
            f"- **Command**: `python benchmarks/{script}.py --workdir=WORKDIR"
            f" --source={shlex.quote(kept_runs.short(about['source']))}"
            f" --steps={about['arms'][REFERENCE]['steps']} --seeds={len(found.seeds)}"
            f" --arms={','.join(found.arms)}`, and `--downstream` with the folder of the two sets."
            " Run again, it continues.",
            f"- **Time**: {minutes:.1f} minutes a run (median) on two cores that did other work"
            " too. Runs go by steps, so that this changes no number.",
        ]
    )


def measured(found: CompleteSeeds) -> list[str]:
    """The downstream measures that there are."""
    return [name for name in DOWNSTREAM if found.mean(REFERENCE, name) is not None]


def results(
    found: CompleteSeeds, arms: Sequence[str], more: Mapping[str, Mapping[str, str]]
) -> str:
    """A row an arm: steps and downstream measures, and further columns {title: {arm: cell}}."""
    named = measured(found)
    head = ["", "steps", *(DOWNSTREAM[name] for name in named), *more]
    rows = []
    for arm in (arm for arm in arms if arm in found.arms):
        cells = [pages.mean_cell(found.mean(arm, name), name) for name in named]
        others = [column.get(arm, "") for column in more.values()]
        rows.append([found.titles[arm], f"{found.about['arms'][arm]['steps']:,}", *cells, *others])
    rows.append(["before training", "0", *floor(found), *("" for _ in more)])
    return pages.table(head, rows)


def floor(found: CompleteSeeds, arm: str = REFERENCE) -> list[str]:
    """The downstream measures of an arm's encoder before training, as cells."""
    return [pages.mean_cell(found.untrained(name, arm), name) for name in measured(found)]


def of_seeds(found: CompleteSeeds) -> str:
    """How many seeds there are, and what was left out."""
    count = len(found.seeds)
    seeds = f"{count} seeds" if count > 1 else "one seed, so no error is known"
    error = " Mean ± standard error of the mean over seeds." if count > 1 else ""
    rest = ""
    if found.left_out:
        rest = f" {found.left_out} finished runs of seeds that are not complete are left out."
    return f"{seeds[0].upper()}{seeds[1:]}.{error}{rest}"


def against(found: CompleteSeeds, arms: Sequence[str], reference: str = REFERENCE) -> str:
    """Every arm less the reference, in each downstream measure."""
    named = measured(found)
    head = [f"less {found.titles[reference]}", *(DOWNSTREAM[name] for name in named)]
    rows = [
        [
            found.titles[arm],
            *(pages.apart_cell(found.apart(arm, reference, name), name) for name in named),
        ]
        for arm in arms
        if arm in found.arms and arm != reference
    ]
    return pages.table(head, rows)


def told_apart(found: CompleteSeeds, pairs: Sequence[tuple[str, str]]) -> str:
    """Which differences in the tables are resolved, in words.

    Args:
      pairs: (arm, the arm that it is compared with), as the page's tables have them. Two arms that
        several tables compare, in either order, count once.
    """
    once: dict[frozenset[str], tuple[str, str]] = {}
    for pair in pairs:
        if set(pair) <= set(found.arms):
            once.setdefault(frozenset(pair), pair)
    apart = [
        (arm, reference, name, found.apart(arm, reference, name))
        for arm, reference in once.values()
        for name in measured(found)
    ]

    told = [
        f"{found.titles[arm]} is {'above' if difference.amount > 0 else 'below'}"
        f" {found.titles[reference]} in {DOWNSTREAM[name]} ({comparison.signed(name, difference)})"
        for arm, reference, name, difference in apart
        if difference is not None and difference.resolved
    ]
    first = f"Resolved, {len(told)} of {len(apart)} differences: {'; '.join(told)}."
    if not told:
        first = f"None of {len(apart)} differences is resolved."
    return (
        f"- {first} Whatever else is in the tables is **not resolved**: these runs do not tell"
        " it from luck."
    )


def of_errors(found: CompleteSeeds) -> str:
    """What the errors are, and what they are not."""
    often = {2: "five", 3: "eight"}.get(len(found.seeds))
    weakness = ""
    if often is not None:  # Student's t, two means of so many seeds
        weakness = (
            f" With {len(found.seeds)} seeds that is a weak rule: luck alone passes it about one"
            f" time in {often} (Student's t), so of this many differences some would. In bold is"
            " what luck makes less than one time in twenty."
        )
    return "\n".join(
        [
            f"- Below two standard errors a difference counts as not resolved.{weakness}",
            "- Errors are over seeds: first weights, order and cut of the text, masks, samples. The"
            " questions are the same for all, and how much their choice matters is not in the"
            " errors.",
            "- A linear probe is not fine-tuning, three small sets are not GLUE, and the encoders"
            " are at the very beginning of what they could learn. That one arm leads here does not"
            " say that it would lead later; which of them learn fastest at first is what is seen.",
        ]
    )


def of_trunk() -> str:
    """How what all arms share was chosen."""
    return (
        "- Trunk and learning rate were chosen on the ELECTRA arm, by two short trials, and are"
        " the same for all: this can only favour ELECTRA."
    )


def margin_cell(found: CompleteSeeds, arm: str, name: str) -> str:
    """A loss less the entropy of its own run's text."""
    if name == "mlm_masked_loss" and found.values(arm, "gen_masked_loss"):
        return "-"  # it is shown no [MASK]: `electra_jax/report/baselines.py`
    losses, entropies = found.values(arm, name), found.values(arm, "unigram_entropy")
    if not losses or not entropies:
        return "-"
    mean = means.mean([loss - entropy for loss, entropy in zip(losses, entropies)])
    return comparison.with_error(name, mean)
