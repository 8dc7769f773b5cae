# SPDX-License-Identifier: Apache-2.0
"""The page of `learning_curves.py`: curves of both trainers, with bands over seeds.

    metrics.jsonl, peer.json, judged.json of a pair  ->  gathered  ->  its finished.json
    those of all pairs  ->  collect  ->  means, deviations and distances by step
        ->  a page and a picture

Reads files only, and trains nothing.
"""

import dataclasses
import io
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure as mpl_figure
from matplotlib import ticker
from scipy import stats

from benchmarks import kept_runs, pages
from electra_jax.report import comparison, means, style, writers

# name -> (kind of row in metrics.jsonl, title)
CURVES = {
    "gen_masked_loss": ("train", "generator: loss at [MASK], nats"),
    "disc_loss": ("train", "discriminator: loss, nats"),
    "disc_auc": ("eval", "discriminator: held-out AUC"),
}
HELD_OUT = ("gen_masked_loss", "disc_loss", "disc_auc")
SIDES = {"ours": "electra_jax", "peer": "PyTorch"}
UNITS = {"gen_masked_loss": "generator's loss at [MASK]", "disc_loss": "discriminator's loss",
         "disc_auc": "AUC"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Side:
    """The rows of one run, by kind: {'train': [{'step': ..., metric: ...}, ...], 'eval': ...}."""

    rows: Mapping[str, Sequence[Mapping]]

    def curve(self, kind: str, name: str) -> dict[int, float]:
        """step -> value, after step 0."""
        return {row["step"]: row[name] for row in self.rows[kind] if row["step"] and name in row}


@dataclasses.dataclass(frozen=True)
class Size:
    """All finished pairs of one size."""

    name: str
    layers: int
    recipe: Mapping
    peer: Mapping  # versions of the peer
    pairs: Mapping[int, Mapping[str, Side]]  # seed -> {'ours', 'peer'}
    judged: Mapping[int, Mapping[str, float]]  # seed -> our last weights, evaluated by the peer

    def curves(self, side: str, kind: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps [T], values [seeds, T]) of one side."""
        found = [pair[side].curve(kind, name) for pair in self.pairs.values()]
        steps = sorted(set.intersection(*(set(curve) for curve in found)))
        return np.array(steps), np.array([[curve[step] for step in steps] for curve in found])

    def last(self, side: str, name: str) -> means.Mean:
        """A held-out metric at the end, over seeds, both sides evaluated by the peer."""
        if side == "ours":
            return means.mean([judged[name] for judged in self.judged.values()])
        return means.mean([float(x) for x in self.curves(side, "eval", name)[1][:, -1]])

    def apart(self, kind: str, name: str) -> np.ndarray:
        """Our mean less the peer's at each common step, in standard errors of that difference."""
        (at, ours), (there, theirs) = (self.curves(side, kind, name) for side in SIDES)
        _, mine, other = np.intersect1d(at, there, return_indices=True)
        ours, theirs = ours[:, mine], theirs[:, other]
        error = np.sqrt((ours.var(0, ddof=1) + theirs.var(0, ddof=1)) / len(ours))
        distance = ours.mean(0) - theirs.mean(0)
        return np.divide(distance, error, out=np.zeros_like(distance), where=distance != 0)


def size(layers: int) -> str:
    """The folder of a size."""
    return f"{layers}_layers"


def gathered(folder: pathlib.Path) -> dict:
    """What is kept of a finished pair: its recipe, both curves, and our end as the peer sees it."""
    recipe = json.loads((folder / "for_the_peer" / "recipe.json").read_text())
    peer = json.loads((folder / "peer.json").read_text())
    logged = writers.read(folder / "ours" / "metrics.jsonl")
    ours = {kind: [row for row in logged if row["kind"] == kind] for kind in ("train", "eval")}
    return {
        "text": {"characters": recipe["characters"]},
        "recipe": recipe | {"source": kept_runs.short(recipe["source"])},
        "peer": {name: peer[name] for name in ("torch", "transformers")},
        "curves": {"ours": _thinned(ours), "peer": _thinned(peer)},
        "judged": json.loads((folder / "judged.json").read_text()),
    }


def _thinned(rows):
    """Of the rows of one side by kind, the step and what is drawn or stands in a table."""
    wanted = {"train": ("gen_masked_loss", "disc_loss"), "eval": HELD_OUT}
    return {
        kind: [{name: row[name] for name in ("step", *names) if name in row} for row in rows[kind]]
        for kind, names in wanted.items()
    }


def collect(workdir: str) -> list[Size]:
    """Reads the finished pairs. Raises SystemExit if there is none."""
    by_size: dict[str, dict[int, dict]] = {}
    for name, pair in kept_runs.finished(workdir).items():
        by_size.setdefault(pathlib.Path(name).name, {})[pair["recipe"]["seed"]] = pair

    found = []
    for name, pairs in by_size.items():
        one = next(iter(pairs.values()))
        sides = {
            seed: {side: Side(rows) for side, rows in pair["curves"].items()}
            for seed, pair in pairs.items()
        }
        judged = {seed: pair["judged"] for seed, pair in pairs.items()}
        layers = int(name.partition("_")[0])
        found.append(Size(name, layers, one["recipe"], one["peer"], sides, judged))
    if not found:
        raise SystemExit(f"{workdir}: no pair has finished yet")
    return sorted(found, key=lambda one: one.layers)


def write(found: Sequence[Size], page: str) -> None:
    """Writes the page and its picture."""
    pages.write_with_picture(page, draw(found), lambda picture: blocks(found, picture))


def blocks(found: Sequence[Size], picture: str) -> list[str]:
    """The page, block by block."""
    return [
        "# Learning curves beside an independent trainer",
        "Does anything in the training step hold the discriminator back? A trainer that shares no"
        " code with it is given the same initial weights, the same rows in the same order and the"
        " same numbers of the recipe, and both are followed over several seeds.",
        _answer(found),
        "## What was done",
        _setting(found),
        f"![curves of both trainers with bands over seeds]({picture})",
        "Lines are means over seeds, bands reach from the lowest to the highest seed; dashed is the"
        " entropy of the token frequencies.",
        "## At the end",
        "Mean ± standard error over seeds. The peer evaluates our last weights as well as its own,"
        " on the same held-out rows and slots. In training the two draw masks and samples of their"
        " own, so a seed's two runs are as far apart as chance makes them.",
        _ends(found),
        "## On the way",
        "At each step at which both were measured: our mean less the peer's, in units of its"
        " standard error over seeds. The last column is how many chance alone puts beyond 2"
        " (Student's t); neighbouring steps are not independent. Here each side evaluates itself:"
        " our evaluations choose the same slots at every step and seed, the peer's choose anew, and"
        f" the held-out rows are {_held_out(found)}.",
        _on_the_way(found),
    ]


def draw(found: Sequence[Size]) -> bytes:
    """A row a curve, a column a size; PNG."""
    palette = style.LIGHT
    figure = mpl_figure.Figure(figsize=(4.6 * len(found) + 0.6, 8.4), facecolor=palette["card"])
    panels = figure.subplots(len(CURVES), len(found), squeeze=False, sharex="col", sharey="row")
    for column, one in enumerate(found):
        for row, (name, (kind, title)) in enumerate(CURVES.items()):
            axes = panels[row][column]
            for side, colour in zip(SIDES, (palette["third"], palette["second"])):
                steps, values = one.curves(side, kind, name)
                axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.22,
                                  linewidth=0)  # fmt: skip
                axes.plot(steps, values.mean(0), color=colour, linewidth=1.8, label=SIDES[side])
            if name == "gen_masked_loss":
                axes.axhline(one.recipe["unigram_entropy"], color=palette["muted"], linewidth=1.1,
                             linestyle=(0, (4, 3)))  # fmt: skip
            words = title if column == 0 else ""
            above = f"{one.layers} layers" if row == 0 else ""
            pages.plain_axes(axes, "\n".join(filter(None, (above, words))) or " ")
            axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=5))
        panels[-1][column].set_xlabel("step", color=palette["muted"], fontsize=9)
    panels[0][0].legend(frameon=False, fontsize=9, labelcolor=palette["ink"])
    figure.tight_layout(w_pad=2, h_pad=1.2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _setting(found):
    """What both trainers had in common, and what each had of its own."""
    one = found[0]
    recipe = one.recipe
    sizes = " and ".join(str(size_.layers) for size_ in found)
    seeds = " and ".join(f"{len(size_.pairs)}" for size_ in found)
    return "\n".join(
        [
            f"- **Text**: {recipe['corpus']} of {recipe['characters'] / 1e6:.0f} million"
            f" characters; {recipe['rows']} rows of 64 tokens per step,"
            f" {recipe['steps']:,} steps, {recipe['tokens'] / 1e6:.1f}M tokens a run without"
            " padding.",
            f"- **Networks**: `configs/tiny_paper.py` with {sizes} layers in both networks"
            f" ({seeds} seeds): width 128, BERT's trunk, no dropout, shared embeddings, weight of"
            f" the discriminator's loss {recipe['disc_weight']:g}, rate"
            f" {recipe['learning_rate']:g}.",
            "- **The same for both**: initial weights (written by us as Hugging Face folders),"
            " rows and their order, held-out rows, the recipe's numbers.",
            "- **The peer's own**: `benchmarks/learning_curves_peer.py`, PyTorch"
            f" {one.peer['torch']} with transformers {one.peer['transformers']}: networks, choice"
            " of slots, sampling, losses, AdamW and clipping, schedule, evaluation, and all random"
            " numbers. AUC is scikit-learn's.",
            f"- **Command**: `{_command(recipe, found)}`. Run again, it continues.",
        ]
    )


def _command(recipe, found):
    """What was typed; of a text's path the last folder, since the rest is of one machine only."""
    source = "" if recipe["source"] == "builtin" else f" --source={shlex.quote(recipe['source'])}"
    sizes = ",".join(str(one.layers) for one in found)
    return f"python benchmarks/learning_curves.py{source} --sizes={sizes} --steps={recipe['steps']}"


def _held_out(found):
    """How many held-out rows there are; seeds cut the text differently."""
    counts = [one.recipe["heldout_rows"] for one in found]
    few, many = min(counts), max(counts)
    return f"{few:,}" if few == many else f"{few:,} to {many:,}"


def _answer(found):
    """What the last evaluations tell of both trainers, and what they cannot."""
    apart = {}
    for one in found:
        for name in HELD_OUT:
            ends = one.last("ours", name), one.last("peer", name)
            apart[one.layers, name] = comparison.difference(name, *ends)
    known = [difference for difference in apart.values() if difference.error is not None]
    if not known:
        return "No size has two seeds yet, so nothing is known of errors."
    resolved = sum(bool(difference.resolved) for difference in known)
    told = f"{resolved} are" if resolved > 1 else f"{'one' if resolved else 'none'} is"
    aucs = [one.last(side, "disc_auc").value for one in found for side in SIDES]
    errors = [apart[one.layers, "disc_auc"].error or 0 for one in found]
    return (
        f"Of {len(known)} differences at the end {told} two standard errors or more. Both"
        f" discriminators have learnt little by then (AUC {min(aucs):.3f} to {max(aucs):.3f}), and"
        f" a difference of {2 * max(errors):.3f} would not have been seen there. Of longer runs"
        " this says nothing."
    )


def _ends(found):
    """Both sides of every size in a table."""
    rows = []
    for one in found:
        for name in HELD_OUT:
            ours, theirs = one.last("ours", name), one.last("peer", name)
            apart = comparison.difference(name, ours, theirs)
            rows.append(
                [
                    f"{one.layers} layers", UNITS[name], _with_error(ours), _with_error(theirs),
                    f"{apart.amount:+.3f} ± {apart.error or 0:.3f}", pages.verdict(apart),
                ]
            )  # fmt: skip
    return pages.table(["networks", "", *SIDES.values(), "difference", ""], rows)


def _on_the_way(found):
    """How far apart the curves are, over all steps."""
    rows = []
    for one in found:
        if len(one.pairs) < 2:
            continue
        for name, (kind, _) in CURVES.items():
            apart = one.apart(kind, name)
            beyond = int((np.abs(apart) > 2).sum())
            rows.append(
                [
                    f"{one.layers} layers", UNITS[name], f"{len(apart)}", f"{apart.mean():+.2f}",
                    f"{np.median(np.abs(apart)):.2f}", f"{beyond} ({beyond / len(apart):.0%})",
                    f"{2 * stats.t.sf(2, 2 * len(one.pairs) - 2):.0%}",
                ]
            )  # fmt: skip
    head = ["networks", "", "steps compared", "mean", "median size", "beyond 2", "by chance"]
    return pages.table(head, rows)


def _with_error(mean):
    """A mean with its error."""
    return f"{mean.value:.3f}" + (f" ± {mean.error:.3f}" if mean.error is not None else "")
