# SPDX-License-Identifier: Apache-2.0
"""Held-out rows of a trained run with what its networks made of them, chosen to be shown.

networks, held-out rows  ->  judged:  many rows, corrupted and judged; the run's report shows some
a trained run            ->  of:      the best, the worst or the first of these rows, and a sentence
                                      about all that were judged
workdir of a run         ->  page:    the same, as a page that a notebook's cell shows
"""

import os
from collections.abc import Callable

import jax

from electra_jax import config as config_lib
from electra_jax.core import streams
from electra_jax.data import records as records_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.report import notebook, ranking, samples, view, view_html
from electra_jax.training import run_data, trained_run

JUDGED = 256  # rows, in the report and where nothing else is asked for
ORDERS = {  # in which rows are shown -> the same in words
    "best": "the best first",
    "worst": "the worst first",
    "text": "as in the records",
}


def page(workdir: str | os.PathLike, rows: int, order: str, among: int) -> notebook.Page:
    """Rows as coloured text, for a notebook to show; see `electra_jax.show_page`."""
    if order not in ORDERS:
        raise config_lib.ConfigError(f"order={order!r} is unknown; use one of {', '.join(ORDERS)}")
    for name, count in (("rows", rows), ("among", among)):
        if count < 1:
            raise config_lib.ConfigError(f"{name}={count}: show at least one row")

    run = trained_run.of_workdir(workdir)
    shown, about = of(run, rows, order, among)
    html = view_html.page(shown, title(run), about)
    return notebook.Page(html, height=600)


def title(run: trained_run.TrainedRun) -> str:
    """The run and the step of its checkpoint, in words."""
    return f"{run.config.name}, step {run.step:,}"


def of(
    run: trained_run.TrainedRun, rows: int, order: str, among: int, draw: int = 0
) -> tuple[list[view.Example], str]:
    """Judges held-out rows and chooses some of them.

    Args:
      rows: how many are chosen.
      order: one of ORDERS.
      among: how many are judged; if it is less than `rows`, as many as these.
      draw: another number draws other slots and samples.

    Returns (the chosen rows, a sentence about all that were judged; it is empty if nothing was
    replaced or judged).
    """
    intermediates = samples.compile_intermediates(run.objective.placed(), run.vocabulary.pad_id)
    examples = judged(
        intermediates, run.params, run.vocabulary, run.records, max(rows, among), draw
    )
    if order != "text":
        examples = ranking.ranked(examples, worst_first=order == "worst")
    shown = examples[:rows]

    about = ranking.sentence(examples)
    if about:
        about += f". Shown: {len(shown)} of them, {ORDERS[order]}."
        about += f" {ranking.IN_WORDS}." if order != "text" else ""
    return shown, about


def judged(
    intermediates: Callable[..., dict[str, jax.Array]],
    params: dict,
    vocabulary: vocabulary_lib.Vocabulary,
    records: records_lib.Records,
    rows: int,
    draw: int = 0,
) -> list[view.Example]:
    """The first `rows` held-out rows, corrupted and judged; fewer if there are no more.

    `intermediates` is from `samples.compile_intermediates`. Equal weights and an equal `draw` give
    the same rows with the same samples.
    """
    examples: list[view.Example] = []
    key = streams.stream(jax.random.key(draw), "show")
    for _, ids_BL, marks_BL in run_data.heldout(records, rows):
        few = rows - len(examples)
        examples += samples.examples(
            intermediates,
            params,
            vocabulary,
            ids_BL[:few],
            marks_BL[:few],
            key,
            first_row=len(examples),
        )
    return ranking.judged(examples)
