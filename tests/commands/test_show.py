# SPDX-License-Identifier: Apache-2.0
"""show prints the rows asked for, in the order asked for, and counts over all that it judged."""

import html
import re
import shutil

import pytest
from absl import flags
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import show
from electra_jax.report import ranking
from electra_jax.training import trained_run
from electra_jax.workdir import metadata, saved_config


@pytest.fixture
def shown(finished, capsys):
    """Runs the command with flags; returns what it prints."""
    workdir = str(finished[0])
    config = saved_config.read(workdir)

    def run(**values):
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        with flagsaver.flagsaver(colour="never", **values):
            show.main(config, workdir)
        return capsys.readouterr().out

    return run


def counts(text):
    """(replaced, caught, missed) of each row that is shown, in order."""
    found = re.findall(r"(\d+) of \d+ tokens replaced: (\d+) caught, (\d+) missed", text)
    return [tuple(map(int, row)) for row in found]


def test_the_best_rows_are_the_worst_ones_backwards(shown):
    best, worst = (shown(rows=16, among=16, order=order) for order in ("best", "worst"))
    assert counts(best) == counts(worst)[::-1] and len(counts(best)) == 16
    as_they_are = shown(rows=16, among=16, order="text")
    assert sorted(counts(as_they_are)) == sorted(counts(best))
    assert counts(as_they_are) != counts(best)


def test_what_is_said_of_all_rows_is_the_sum_over_them(shown):
    text = shown(rows=16, among=16)
    rows = counts(text)
    replaced, caught = sum(row[0] for row in rows), sum(row[1] for row in rows)
    said = " ".join(text.split())
    assert f"16 held-out rows, {replaced} tokens replaced: {caught / replaced:.1%} caught" in said
    assert "Shown: 16 of them, the best first." in said


def test_more_rows_are_judged_than_shown_and_a_page_says_the_same(shown, tmp_path):
    text = shown(rows=2, among=16)
    assert len(counts(text)) == 2
    page = tmp_path / "rows.html"
    assert shown(rows=2, among=16, html=str(page)) == f"wrote {page}\n"
    title, _, rest = text.partition("\n\n")
    assert title == "test, step 6" and title in page.read_text()
    about = " ".join(rest.split()).split(" ✓ replaced")[0]
    assert about in page.read_text()
    assert page.read_text().count("<article") == 2


@pytest.mark.usefixtures("second_process")
def test_of_several_processes_the_first_one_shows(shown):
    assert shown(rows=1) == ""


def test_a_notebook_shows_what_the_page_has(shown, finished, tmp_path):
    """Only the style of its frame is another one."""
    file = tmp_path / "rows.html"
    for order in ("best", "worst"):
        shown(rows=2, among=16, order=order, html=str(file))
        page = electra_jax.show_page(finished[0], rows=2, order=order, among=16)
        assert page.html == file.read_text()
    assert "<iframe" in page._repr_html_() and len(repr(page)) < 80


def test_the_report_shows_the_same_rows_and_says_what_ranks_them(finished):
    def articles(page):
        """The rows of a page, as text."""
        found = re.findall("<article.*?</article>", page, re.DOTALL)
        return [" ".join(re.sub("<[^>]*>", " ", article).split()) for article in found]

    report = (finished[0] / "report.html").read_text()
    page = electra_jax.show_page(finished[0], rows=5).html
    assert articles(report)[:5] == articles(page)
    worst = electra_jax.show_page(finished[0], rows=3, order="worst").html
    assert articles(report)[5:] == articles(worst)
    for shown in (report, page, worst):
        assert ranking.IN_WORDS in " ".join(html.unescape(shown).split())
    as_they_are = electra_jax.show_page(finished[0], rows=1, order="text").html
    assert ranking.IN_WORDS not in html.unescape(as_they_are)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"order": "good"}, "^order='good' is unknown; use one of best, worst, text$"),
        ({"rows": 0}, "^rows=0: show at least one row$"),
        ({"among": -1}, "^among=-1: show at least one row$"),
        ({"workdir": "nowhere"}, "^nowhere has no config.json; give that of a run$"),
    ],
)
def test_a_notebook_that_asks_for_nothing_gets_one_line(finished, given, message):
    with pytest.raises(config_lib.ConfigError, match=message):
        electra_jax.show_page(**{"workdir": finished[0]} | given)


def test_a_damaged_checkpoint_is_shown_by_no_other_if_it_was_asked_for(finished, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(finished[0], workdir)
    (workdir / "checkpoints" / "6" / "_CHECKPOINT_METADATA").write_text("{")
    config = saved_config.read(str(workdir))
    assert trained_run.open(config, str(workdir)).step == 4
    with pytest.raises(metadata.CheckpointError, match="leave --step out for the newest"):
        trained_run.open(config, str(workdir), 6)
