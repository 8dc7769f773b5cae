# SPDX-License-Identifier: Apache-2.0
"""The page of a fine-tuning follows the work, and says what it was made with and what it cost."""

import html
import re

import pytest

from electra_jax.finetuning.results import page as page_lib
from electra_jax.finetuning.results import progress, results_file, run_results, shown_results
from support import made_results, pages


def words(page):
    """The words of a page."""
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", page).split()))


def test_the_page_says_what_is_done_now_and_what_is_left():
    results, state = made_results.going_on()
    page = page_lib.html(results, progress=state)
    shown = words(page)
    assert "Fine-tuning: small-wiki running cola, seed 3: step 10 of 20" in shown
    assert "3 of 10 seeds finished · still to come: mrpc: 5 seeds" in shown
    assert 'style="width:35.0%"' in page  # three seeds and half of one, of ten
    assert "loaded again every 30 seconds while seeds are trained" in shown
    # The table has the finished seeds alone, the curves the fourth too.
    assert "cola dev mcc 52.00 52.00 ± 2.00 54.00 3 0.00" in shown
    assert '"seed 3"' in html.unescape(page)
    assert pages.unclosed(page) == []


def test_before_the_first_seed_there_is_a_page_too():
    empty = made_results.with_facts(run_results.Results("x", []))
    page = page_lib.html(empty, progress=progress.Progress("running", "reading the tasks"))
    assert "No seed has finished yet." in page and "reading the tasks" in page
    assert pages.unclosed(page) == []


@pytest.mark.parametrize(("status", "waits"), [("running", True), ("finished", False)])
def test_an_open_page_asks_for_news_only_while_seeds_are_trained(status, waits):
    results, state = made_results.going_on(status=status)
    page = page_lib.html(results, progress=state)
    assert ('data-refresh="30"' in page) == waits
    assert ('<meta http-equiv="refresh" content="30">' in page) == waits
    assert ('class="done"' in page) == waits
    assert "data-refresh=" not in page_lib.html(results)  # such as a cell of a notebook


def test_why_it_stopped_is_text():
    results, state = made_results.going_on(status="stopped", note="no file <train.tsv>")
    page = page_lib.html(results, progress=state)
    assert '<span class="status stopped">stopped</span>' in page
    assert "no file &lt;train.tsv&gt;." in page and "data-refresh=" not in page


def test_settings_cost_and_environment_are_told(tmp_path):
    results, _ = made_results.going_on()
    page = page_lib.html(results)
    shown = words(page)
    assert "last command: 12m30s; all seeds took 0.0417 device-hours" in shown
    # Of what differs from configs/finetune.py only; its tuple of lengths is written as a list.
    assert (
        "Changed from configs/finetune.py field base here recipe.learning_rate 0 0.003 All 3"
    ) in shown
    cost = "Cost last command 12m30s all seeds 1m15s, with evaluation device-hours 0.0417, of all"
    assert cost in shown
    assert "Environment commit c0ffee012345 jax 0.10.2 devices 2 x cpu" in shown

    back = results_file.load(results_file.write(str(tmp_path), results)[0])
    assert back.environment == results.environment
    assert back.device_hours == results.device_hours == pytest.approx(2.5 / 60)


def test_device_hours_are_those_of_all_tasks_or_unknown():
    three = made_results.three()
    assert three.device_hours is None  # of an earlier version
    assert made_results.with_facts(three).device_hours == pytest.approx(3 * 2.5 / 60)


def test_a_notebook_shows_results_as_their_page():
    results, _ = made_results.going_on()
    frame = shown_results.of(results)._repr_html_()
    (page,) = re.findall('^<iframe srcdoc="([^"]*)"', frame)
    assert "Fine-tuning: small-wiki" in html.unescape(page)
