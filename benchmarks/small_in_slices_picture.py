# SPDX-License-Identifier: Apache-2.0
"""The picture of small_in_slices.py: both networks' learning against the tokens they have seen.

rows of metrics.jsonl -> PNG
"""

import io
from collections.abc import Mapping, Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from benchmarks import pages
from electra_jax.report import style


def picture(rows: Sequence[Mapping]) -> bytes:
    """Left the generator's loss, in training and on held-out rows; right the discriminator's AUC.

    Without an evaluation the right half is empty, and the left one has no line for what is known
    without learning.
    """
    palette = style.LIGHT
    trained = [row for row in rows if row["kind"] == "train"]
    held_out = [row for row in rows if row["kind"] == "eval"]
    figure = mpl_figure.Figure(figsize=(9.8, 3.9), facecolor=palette["card"])
    generator, discriminator = figure.subplots(1, 2)

    pages.plain_axes(generator, "Generator: loss of masked tokens, nats")
    line = dict(linewidth=1.5, color=palette["second"])
    generator.plot(*curve(trained, "gen_masked_loss"), label="training", **line)
    dots = dict(marker="o", markersize=5, linewidth=0, color=palette["third"])
    generator.plot(*curve(held_out, "gen_masked_loss"), label="held out", **dots)
    if held_out:
        generator.axhline(
            held_out[-1]["unigram_entropy"], color=palette["muted"], linewidth=1.1, linestyle="--",
            label="token frequencies alone",
        )  # fmt: skip

    pages.plain_axes(discriminator, "Discriminator: AUC on held-out rows")
    dots["linewidth"] = 1.2
    discriminator.plot(*curve(held_out, "disc_auc"), label="its own generator", **dots)
    dots["color"] = palette["second"]
    discriminator.plot(*curve(held_out, "disc_auc_unigram"), label="draws by frequency", **dots)
    discriminator.set_ylim(0.5, 1)

    for axes in (generator, discriminator):
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda tokens, _: f"{tokens / 1e6:g}M"))
        axes.set_xlabel("tokens seen", color=palette["muted"], fontsize=9)
        axes.legend(frameon=False, fontsize=9, labelcolor=palette["ink"])
    figure.tight_layout(w_pad=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def curve(rows: Sequence[Mapping], name: str) -> tuple[list, list]:
    """Tokens and values of the rows whose value is finite."""
    found = [row for row in rows if row.get(name) is not None]
    return [row["tokens_seen"] for row in found], [row[name] for row in found]
