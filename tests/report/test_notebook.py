# SPDX-License-Identifier: Apache-2.0
"""A notebook shows the pages of runs as the values of its cells."""

import html
import re

import pytest

import electra_jax
from electra_jax.report import run_page
from support.made_runs import workdir


def _shown(value):
    """The page inside the frame that a notebook gets."""
    frame = value._repr_html_()
    (page,) = re.findall(r'^<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>\n$', frame)
    return html.unescape(page)


def test_a_cell_shows_the_page_as_the_run_wrote_it(tmp_path):
    run_page.write(tmp_path, [], {"name": 'a "<b>" & c', "status": "running"}, picture=False)
    assert _shown(electra_jax.report_page(tmp_path)) == (tmp_path / "report.html").read_text()


def test_a_cell_shows_runs_side_by_side(tmp_path):
    runs = [workdir(tmp_path, name, [2.0], seed=seed) for seed, name in enumerate("ab")]
    assert "2 runs of one configuration" in _shown(electra_jax.compare_page(*runs))


def test_a_workdir_without_a_page_is_refused_in_one_line(tmp_path):
    with pytest.raises(
        ValueError, match=r"no .*report.html; give .* logging.report_every is not 0$"
    ):
        electra_jax.report_page(tmp_path)
    with pytest.raises(ValueError, match="nothing to compare in 1 run"):
        electra_jax.compare_page(workdir(tmp_path, "a", [1.0]))
