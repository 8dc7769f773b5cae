# SPDX-License-Identifier: Apache-2.0
"""Results that a notebook shows as their page."""

import dataclasses

from electra_jax.finetuning.results import page, run_results
from electra_jax.report import notebook


class ShownResults(run_results.Results):
    """Results whose page is what a notebook shows: it calls `_repr_html_` of a cell's value."""

    def _repr_html_(self) -> str:
        return notebook.Page(page.html(self))._repr_html_()


def of(results: run_results.Results) -> ShownResults:
    """The same results, to be shown."""
    fields = dataclasses.fields(results)
    return ShownResults(**{field.name: getattr(results, field.name) for field in fields})
