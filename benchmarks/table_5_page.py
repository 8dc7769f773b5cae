# SPDX-License-Identifier: Apache-2.0
"""What the runs of `table_5.py` came to, as a page and a picture beside it. Trains nothing.

    finished.json of every run  ->  collect  ->  seeds in which no arm is missing
                                ->  mean +- standard error of each arm, distances between arms
                                ->  table_5.md, table_5.png

Means, errors and what counts as resolved are those of `electra_jax.compare`.
"""

import dataclasses
import glob
import io
import json
import os
import statistics
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from electra_jax.report import comparison, drawing, style

EXPERIMENT, FINISHED = "experiment.json", "finished.json"
REFERENCE = "electra"  # whose steps are given, and what others are held against

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
DOWNSTREAM = {
    "chunk_accuracy": "chunk tags",
    "subjectivity_accuracy": "subjectivity",
    "pair_accuracy": "minimal pairs",
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


@dataclasses.dataclass(frozen=True)
class Found:
    """The complete seeds, and what all runs share."""

    about: Mapping
    arms: Sequence[str]  # that have finished runs, in the order of the page
    seeds: Sequence[int]  # in which all of these are finished
    left_out: int  # finished runs of other seeds
    runs: Mapping[tuple[str, int], Mapping]  # (arm, seed) -> finished.json

    def values(self, arm: str, name: str) -> list[float]:
        """A measure of an arm's runs over the complete seeds; empty where one has none."""
        found = [self.runs[arm, seed]["measures"].get(name) for seed in self.seeds]
        return [] if None in found else found

    def mean(self, arm: str, name: str) -> comparison.Mean | None:
        """The same as mean and standard error."""
        values = self.values(arm, name) if arm in self.arms else []
        return comparison.mean(values) if values else None

    def untrained(self, name: str) -> comparison.Mean | None:
        """Of the same encoder before training."""
        found = [self.runs[REFERENCE, seed].get("untrained", {}).get(name) for seed in self.seeds]
        return None if None in found else comparison.mean(found)

    def apart(self, arm: str, other: str, name: str) -> comparison.Effect | None:
        """`arm` less `other`."""
        one, two = self.mean(arm, name), self.mean(other, name)
        return None if one is None or two is None else comparison.effect(name, one, two)


def collect(workdir: str) -> Found:
    """Reads what is finished. Raises SystemExit where no seed is complete."""
    path = os.path.join(workdir, EXPERIMENT)
    if not os.path.exists(path):
        raise SystemExit(f"{workdir} holds no {EXPERIMENT}; give the --workdir of an experiment")
    runs = {}
    for name in glob.glob(os.path.join(workdir, "seed*", "*", FINISHED)):
        found = _read(name)
        runs[os.path.basename(os.path.dirname(name)), found["seed"]] = found
    arms = [arm for arm in TITLES if any(arm == name for name, _ in runs)]
    seeds = sorted({seed for _, seed in runs})
    complete = [seed for seed in seeds if all((arm, seed) in runs for arm in arms)]
    if not complete or REFERENCE not in arms:
        raise SystemExit(f"{workdir}: no seed is complete yet ({len(runs)} runs are finished)")
    left_out = sum(seed not in complete for _, seed in runs)
    return Found(_read(path), arms, complete, left_out, runs)


def verdict(apart: comparison.Effect) -> str:
    """Whether a distance is more than luck may make: two standard errors or more."""
    if apart.amount == 0:
        return "equal"
    if apart.resolved is None:
        return "one seed"
    if not apart.resolved:
        return "not resolved"
    return "**higher**" if apart.amount > 0 else "**lower**"


def write(found: Found, page: str) -> None:
    """Writes the page and the picture, each at once or not at all."""
    os.makedirs(os.path.dirname(page) or ".", exist_ok=True)
    picture = os.path.splitext(page)[0] + ".png"
    drawing.write_whole(picture, draw(found))
    drawing.write_whole(page, text(found, os.path.basename(picture)).encode())


def text(found: Found, picture: str) -> str:
    """The page."""
    named = [name for name in DOWNSTREAM if found.mean(REFERENCE, name) is not None]
    blocks = [
        "# Table 5 of the paper at the size of two cores",
        _question(),
        "## What was done",
        _setting(found),
        "## Results",
        _results(found, named),
        _seeds(found),
        f"![accuracies of all arms with errors]({picture})",
        "Diamonds are means, lines two standard errors to either side, dots single runs; dashed is"
        " the encoder before training.",
        "## Against ELECTRA",
        _against(found, named),
        "## The paper's argument, step by step",
        "Differences of the rows above, in points. In the paper they are of the GLUE average.",
        _argument(found, named),
        "## Width of the generator",
        _sweep(found, named),
        "## Minimal pairs by kind",
        _kinds(found),
        "## Pre-training metrics",
        _metrics(found),
        "## How to read this",
        _reading(found, named),
    ]
    return "\n\n".join(map(_wrapped, blocks)) + "\n"


def draw(found: Found) -> bytes:
    """A panel a measure, a row an arm; PNG."""
    palette = style.LIGHT
    titles = DOWNSTREAM | {"disc_auc_unigram": "AUC on unigram replacements"}
    shown = [name for name in titles if found.mean(REFERENCE, name) is not None]
    height = 0.34 * len(found.arms) + 1.1
    figure = mpl_figure.Figure(figsize=(2.6 + 2.7 * len(shown), height), facecolor=palette["card"])
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown):
        scale = 100 if style.is_share(name) else 1
        axes.set_facecolor(palette["card"])
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
        axes.set_title(titles[name] + (", %" if scale == 100 else ""), fontsize=10, loc="left",
                       color=palette["ink"])  # fmt: skip
        axes.grid(axis="x", color=palette["grid"], linewidth=0.8)
        axes.tick_params(colors=palette["muted"], labelsize=8.5, length=0)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=4))
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(found.arms)), [TITLES[arm] for arm in found.arms])
    panels[0].tick_params(axis="y", colors=palette["ink"], labelsize=9.5)
    panels[0].set_ylim(len(found.arms) - 0.5, -0.5)
    figure.tight_layout(w_pad=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


# --- the blocks of the page -------------------------------------------------------------------


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
    about = found.about
    first = found.runs[REFERENCE, found.seeds[0]]
    of_text = first["text"]
    name = of_text["corpus"] or "text"
    rows = about["rows"]
    flops = about["arms"][REFERENCE]["steps"] * about["arms"][REFERENCE]["flops_per_row"] * rows
    tokens = about["arms"][REFERENCE]["steps"] * rows * about["length"]
    minutes = statistics.median(run["seconds"] for run in found.runs.values()) / 60
    return "\n".join(
        [
            f"- **Text**: {name} of {of_text['characters'] / 1e6:.0f} million characters,"
            f" {of_text['documents']:,} documents, {style.count(of_text['tokens'])} tokens;"
            f" SentencePiece vocabulary of {of_text['vocabulary']:,} pieces, trained on it; rows"
            f" of {about['length']} tokens, {rows} rows a step.",
            "- **Networks**: `configs/tiny_paper.py` (two layers of width 128, float32, no dropout)"
            " with rotary positions and norms before each part. One trunk and one optimizer for all"
            " arms; how it was chosen is in [the log](../LOG.md). The generator has two layers of"
            " half the width, tables are shared; BERT has none.",
            f"- **Equal compute**: {flops / 1e12:.1f}e12 training FLOPs an arm, in the honest"
            " convention of `electra_jax.flops` (three forward passes of matrix products, look-ups"
            " free). So an"
            f" arm with a dearer step gets fewer steps; ELECTRA's are {style.count(tokens)} places"
            " in rows. The rate falls in a straight line to 0 over each arm's own steps, after a"
            " tenth of them as warmup.",
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
            "- **Command**: `python benchmarks/table_5.py --workdir=WORKDIR"
            f" --source={_source(about)} --steps={about['arms'][REFERENCE]['steps']}"
            f" --seeds={len(found.seeds)}`, and `--downstream` with the folder of the two sets."
            " Run again, it goes on.",
            f"- **Time**: {minutes:.1f} minutes a run (median) on two cores that did other work"
            " too. Runs go by steps, so that this changes no number.",
        ]
    )


def _source(about):
    """What kind of source it was; its path is of one machine only."""
    kind, has_path, _ = about["source"].partition(":")
    return f"{kind}:TEXT" if has_path else kind


def _results(found, named):
    head = ["", "steps", *(DOWNSTREAM[name] for name in named), "GLUE in the paper"]
    rows = []
    for arm in (arm for arm in TABLE if arm in found.arms):
        cells = [_mean(found.mean(arm, name), name) for name in named]
        steps = f"{found.about['arms'][arm]['steps']:,}"
        rows.append([TITLES[arm], steps, *cells, f"{PAPER[arm]}"])
    floor = [_mean(found.untrained(name), name) for name in named]
    rows.append(["before training", "0", *floor, ""])
    return _table(head, rows)


def _seeds(found):
    count = len(found.seeds)
    seeds = f"{count} seeds" if count > 1 else "one seed, so no error is known"
    error = " Mean ± standard error of the mean over seeds." if count > 1 else ""
    rest = ""
    if found.left_out:
        rest = f" {found.left_out} finished runs of seeds that are not complete are left out."
    return f"{seeds[0].upper()}{seeds[1:]}.{error}{rest}"


def _against(found, named):
    head = ["less ELECTRA", *(DOWNSTREAM[name] for name in named)]
    rows = [
        [TITLES[arm], *(_apart(found.apart(arm, REFERENCE, name), name) for name in named)]
        for arm in found.arms
        if arm != REFERENCE
    ]
    return _table(head, rows)


def _argument(found, named):
    head = ["", "", "paper", *(DOWNSTREAM[name] for name in named)]
    rows = []
    for what, arm, other in ARGUMENT:
        if arm in found.arms and other in found.arms:
            cells = [_apart(found.apart(arm, other, name), name) for name in named]
            paper = f"{PAPER[arm] - PAPER[other]:+.1f}"
            rows.append([what, f"{TITLES[arm]} less {TITLES[other]}", paper, *cells])
    return _table(head, rows)


def _sweep(found, named):
    head = ["generator's width", "steps", *(DOWNSTREAM[name] for name in named),
            "AUC on unigram replacements", "generator's loss less unigram entropy"]  # fmt: skip
    rows = []
    for arm in (arm for arm in SWEEP if arm in found.arms):
        cells = [_mean(found.mean(arm, name), name) for name in (*named, "disc_auc_unigram")]
        steps = f"{found.about['arms'][arm]['steps']:,}"
        rows.append([SWEEP[arm], steps, *cells, _margin(found, arm, "gen_masked_loss")])
    return (
        _table(head, rows) + "\n\nThe paper (section 3.2) finds 1/4 to 1/2 of the discriminator's"
        " width best, and worse with a generator as large as the discriminator. At equal compute a"
        " larger generator also leaves fewer steps."
    )


def _kinds(found):
    head = ["", *KINDS.values()]
    rows = [
        [TITLES[arm], *(_mean(found.mean(arm, name), name) for name in KINDS)] for arm in found.arms
    ]
    rows.append(["before training", *(_mean(found.untrained(name), name) for name in KINDS)])
    return _table(head, rows)


def _metrics(found):
    head = ["held out", "generator's loss less unigram entropy",
            "main network's loss less unigram entropy", "AUC, own generator",
            "AUC on unigram replacements"]  # fmt: skip
    rows = []
    for arm in found.arms:
        margins = [_margin(found, arm, f"{who}_masked_loss") for who in ("gen", "mlm")]
        cells = [_mean(found.mean(arm, name), name) for name in ("disc_auc", "disc_auc_unigram")]
        rows.append([TITLES[arm], *margins, *cells])
    return (
        _table(head, rows) + "\n\nLosses are in nats, below 0 is better than knowing only how"
        " frequent words are. The main network's loss is held against that in BERT alone, where"
        " it is asked at [MASK]: the other two are asked at replaced words, which are rarer. The"
        " first AUC is on each arm's own generator;"
        " the second asks all the same questions. ELECTRA 15 % never hears about untouched tokens,"
        " which both AUCs are of."
    )


def _reading(found, named):
    apart = [
        (arm, name, found.apart(arm, REFERENCE, name))
        for arm in found.arms
        for name in named
        if arm != REFERENCE
    ]
    told = [
        f"{TITLES[arm]} is {_side(effect)} ELECTRA in {DOWNSTREAM[name]}"
        f" ({comparison.signed(name, effect)})"
        for arm, name, effect in apart
        if effect is not None and effect.resolved
    ]
    first = f"Resolved, {len(told)} of {len(apart)} differences: {'; '.join(told)}."
    if not told:
        first = f"None of {len(apart)} differences to ELECTRA is resolved."
    return "\n".join(
        [
            f"- {first} Whatever else is in the tables is **not resolved**: these runs do not tell"
            " it from luck.",
            "- Below two standard errors a difference counts as not resolved." + _weakness(found),
            "- Errors are over seeds: first weights, order and cut of the text, masks, samples. The"
            " questions are the same for all, and how much their choice matters is not in the"
            " errors.",
            "- A linear probe is not fine-tuning, three small sets are not GLUE, and the encoders"
            " are at the very beginning of what they could learn. That one arm leads here does not"
            " say that it would lead later; which of them learn fastest at first is what is seen.",
            "- Trunk and learning rate were chosen on the ELECTRA arm, by two short trials, and are"
            " the same for all: this can only favour ELECTRA.",
        ]
    )


def _weakness(found):
    """How often luck alone goes beyond two errors: Student's t, two means of so many seeds."""
    often = {2: "five", 3: "eight"}.get(len(found.seeds))
    if often is None:
        return ""
    return (
        f" With {len(found.seeds)} seeds that is a weak rule: luck alone passes it about one time"
        f" in {often} (Student's t), so of this many differences some would."
    )


def _wrapped(block):
    """Lines of prose cut at 120 characters; tables, headings and pictures as they are."""
    lines = []
    for line in block.splitlines():
        if line.startswith(("|", "#", "!")):
            lines.append(line)
            continue
        inside = "  " if line.startswith("- ") else ""
        lines += textwrap.wrap(
            line, 120, subsequent_indent=inside, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def _side(effect):
    return "above" if effect.amount > 0 else "below"


def _mean(mean, name):
    return "-" if mean is None else comparison.with_error(name, mean)


def _apart(effect, name):
    return "-" if effect is None else f"{comparison.signed(name, effect)}, {verdict(effect)}"


def _margin(found, arm, name):
    """A loss less the entropy of its own run's text."""
    if name == "mlm_masked_loss" and found.values(arm, "gen_masked_loss"):
        return "-"  # it is shown no [MASK]: `electra_jax/report/baselines.py`
    losses, entropies = found.values(arm, name), found.values(arm, "unigram_entropy")
    if not losses or not entropies:
        return "-"
    mean = comparison.mean([loss - entropy for loss, entropy in zip(losses, entropies)])
    return comparison.with_error(name, mean)


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
