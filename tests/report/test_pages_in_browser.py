# SPDX-License-Identifier: Apache-2.0
"""Pages in a real Chromium: nothing overlaps, the pointer reads the right value, pages follow runs.

Run with `pytest -m browser`; needs Chromium (`apt-get install chromium`).
"""

import colorsys
import dataclasses
import io
import json
import math
import shutil

import matplotlib.image
import numpy as np
import pytest

from electra_jax.finetuning.results import page as finetuning_page
from electra_jax.finetuning.results import run_results
from electra_jax.report import (
    compared_run,
    comparison,
    comparison_page,
    run_page,
    style,
    view,
    view_html,
    writers,
)
from electra_jax.workdir import starts
from support import browser, made_results
from support.made_runs import workdir

pytestmark = pytest.mark.browser

VISIBLE = "[...document.querySelectorAll('.chart svg')].filter((svg) => svg.checkVisibility())"
# [chart, text, text] for each pair of texts that overlap by more than a pixel and a half, and
# [chart, text] for each text that leaves its card.
MISPLACED = (
    VISIBLE
    + """.flatMap((svg) => {
  const card = svg.closest('.chart').getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].filter((text) => text.textContent.trim());
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const bad = [];
  boxes.forEach((one, i) => {
    const words = texts[i].textContent;
    if (one.left < card.left || one.right > card.right) bad.push([svg.ariaLabel, words]);
    for (let j = 0; j < i; j++) {
      const other = boxes[j];
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1.5 && high > 1.5) bad.push([svg.ariaLabel, words, texts[j].textContent]);
    }
  });
  return bad;
})"""
)
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
# [text, x, y, width, height] for each line of each text that is seen without scrolling sideways.
WORDS = """
const inside = (box, element) => {
  const frame = (element.closest('.table') || document.documentElement).getBoundingClientRect();
  return box.width > 1 && box.left >= frame.left && box.right <= frame.right;
};
[...document.querySelectorAll('main *')].flatMap((element) => {
  if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) return [];
  return [...element.childNodes].flatMap((node) => {
    if (node.nodeType !== Node.TEXT_NODE || !node.textContent.trim()) return [];
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].filter((box) => inside(box, element)).map((box) =>
      [node.textContent.trim(), box.x + scrollX, box.y + scrollY, box.width, box.height]);
  });
})"""
BOX = """((element) => {
  const box = element.getBoundingClientRect();
  return [box.x + scrollX, box.y + scrollY, box.width, box.height];
})"""
LEAST_CONTRAST = 3.0  # of the lightest and the darkest dot; WCAG 2.2 asks for it of large letters
HUES = {"caught": (120, 170), "missed": (0, 20), "alarm": (45, 65)}  # degrees
READING = "document.querySelector('.reading:not([hidden])')?.innerText"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A browser for all tests of this file."""
    binary = browser.found()
    if binary is None:
        pytest.fail("no chromium here; install it: apt-get install chromium")
    with browser.Browser(binary, tmp_path_factory.mktemp("profile")) as one:
        yield one


class Picture:
    """What a page looks like. Boxes are x, y, width, height in points of the page."""

    SCALE = 2  # dots to a point: lines of small letters are thinner than one

    def __init__(self, page):
        self._dots = matplotlib.image.imread(io.BytesIO(page.picture(self.SCALE)))[..., :3]

    def commonest(self, *box):
        """The colour that most dots of a box have, as `#rrggbb`."""
        dots = np.round(255 * self._box(*box)).astype(int)
        colours, counts = np.unique(dots, axis=0, return_counts=True)
        return "#" + "".join(f"{part:02x}" for part in colours[counts.argmax()])

    def contrast(self, *box):
        """The ratio of the lightest to the darkest dot of a box, as WCAG 2.2 defines it."""
        dots = self._box(*box)
        linear = np.where(dots <= 0.04045, dots / 12.92, ((dots + 0.055) / 1.055) ** 2.4)
        light = linear @ [0.2126, 0.7152, 0.0722]
        return (light.max() + 0.05) / (light.min() + 0.05)

    def _box(self, x, y, width, height):
        left, top, right, bottom = (self.SCALE * edge for edge in (x, y, x + width, y + height))
        rows = slice(math.floor(top), math.ceil(bottom))
        return self._dots[rows, math.floor(left) : math.ceil(right)].reshape(-1, 3)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, finished):
    """{name: page} of a real run, of runs side by side, and of fine-tuning with its control."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        workdir(folder, f"{name}-seed{seed}", [9.0, 6.0, loss], seed=seed, objective__disc_weight=w)
        for name, w, losses in (("low", 5.0, (1.0, 2.0, 3.0)), ("high", 50.0, (4.0, 6.0, 8.0)))
        for seed, loss in enumerate(losses)
    ]
    for place, run in enumerate(runs):
        about = {"commit": "c0ffee012345 and changes", "jax": f"0.10.{place // 3}"}
        starts.note(run, {"step": 0, "device_count": 1, "row_flops": [1e9]} | about)
    compared = comparison.compare([compared_run.load(run) for run in runs])
    comparison_page.write(compared, str(folder / "compare.html"), str(folder / "compare.png"))
    control = run_results.Results("fresh", [made_results.task("cola", [0.05, 0.02, 0.1])])
    _, stopped = made_results.going_on(status="stopped", note="no file MNLI/train.tsv in glue")
    tuned = made_results.with_facts(made_results.three())
    tuned = dataclasses.replace(tuned, control=control)
    finetuning_page.write(str(folder / "finetuning.html"), tuned, stopped)
    return {
        "run": finished[0] / "report.html",
        "compare": folder / "compare.html",
        "finetuning": folder / "finetuning.html",
    }


@pytest.mark.parametrize("name", ["run", "compare", "finetuning"])
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_every_word_of_a_picture_can_be_read(chromium, pages, name, width, dark):
    page = chromium.open(pages[name], width, dark)
    picture = Picture(page)
    palette = style.DARK if dark else style.LIGHT
    assert picture.commonest(0, 0, 4, 4) == palette["page"]

    words = page.run(WORDS)
    assert len(words) > 50
    contrasts = {(text, *box): picture.contrast(*box) for text, *box in words}
    assert {word: found for word, found in contrasts.items() if found < LEAST_CONTRAST} == {}

    charts = page.run(f"{VISIBLE}.map({BOX})")
    assert min(picture.contrast(*box) for box in charts) > LEAST_CONTRAST


@pytest.mark.parametrize("dark", [False, True])
def test_outcomes_of_tokens_differ_by_colour(chromium, tmp_path, dark):
    """Green is what was caught, red what was missed, yellow a false alarm."""
    judged = view.Example(["a"], [True], [False], [False], [None], [False], [0.5])
    (tmp_path / "rows.html").write_text(view_html.page([judged], "rows"))
    page = chromium.open(tmp_path / "rows.html", 1400, dark)
    # As if the discriminator were sure of all of them.
    page.run("document.querySelectorAll('.key .w').forEach((w) => w.style.setProperty('--p', 1))")
    picture, palette = Picture(page), style.DARK if dark else style.LIGHT
    for look, colour in (("caught", "caught"), ("missed", "missed"), ("alarm", "alarm")):
        box = page.run(f"[document.querySelector('.key .{look}')].map({BOX})[0]")
        assert picture.commonest(*box) == palette[colour], look
        red, green, blue = (int(palette[colour][i : i + 2], 16) for i in (1, 3, 5))
        hue = colorsys.rgb_to_hsv(red, green, blue)[0] * 360
        assert HUES[look][0] < hue < HUES[look][1]


@pytest.mark.parametrize("name", ["run", "compare", "finetuning"])
@pytest.mark.parametrize("width, dark", [(400, False), (1400, True)])
def test_nothing_overlaps_and_no_script_complains(chromium, pages, name, width, dark):
    page = chromium.open(pages[name], width, dark)
    for scale in ("linear", "logarithmic"):
        page.click(f"#scale-{scale} + label")
        assert page.run(MISPLACED) == [], scale
        whole, seen = page.run(WIDTHS)
        assert whole <= seen, scale
    assert page.run(f"{VISIBLE}.length") > 2
    assert page.complaints() == []


def test_the_page_follows_the_setting_of_light_or_dark(chromium, pages):
    colour = "getComputedStyle(document.body).backgroundColor"
    page = chromium.open(pages["run"], 1400)
    assert page.run(colour) == "rgb(247, 247, 245)"
    page.look(1400, dark=True)
    assert page.run(colour) == "rgb(19, 21, 23)"


@pytest.mark.parametrize("scale", ["linear", "logarithmic"])
def test_the_pointer_reads_the_value_of_the_nearest_point(chromium, pages, finished, scale):
    rows = [row for row in writers.read(finished[0] / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [2, 4, 6]
    page = chromium.open(pages["run"], 1400)
    page.click(f"#scale-{scale} + label")

    find = f"{VISIBLE}.find((svg) => svg.ariaLabel.startsWith('Learning rate'))"
    page.run(f"{find}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"{find}.getBoundingClientRect().toJSON()")
    axes = json.loads(page.run(f"{find}.dataset.axes"))
    unit = box["width"] / page.run(f"{find}.viewBox.baseVal.width")
    for row in rows:
        # Where the value is, by the limits that the drawing says; and a little beside it.
        share = (row["step"] - axes["x"][0]) / (axes["x"][1] - axes["x"][0])
        if axes["xlog"]:
            low, high = map(math.log, axes["x"])
            share = (math.log(row["step"]) - low) / (high - low)
        up = (row["learning_rate"] - axes["y"][0]) / (axes["y"][1] - axes["y"][0])
        x = axes["left"] + share * (axes["right"] - axes["left"])
        y = axes["bottom"] + up * (axes["top"] - axes["bottom"])
        page.point(box["x"] + x * unit + 3, box["y"] + y * unit - 3)
        assert page.run(READING) == (
            f"Learning rate {_exponential(row['learning_rate'])}\nstep {row['step']}"
        )

    page.point(5, 5)
    assert page.run(READING) is None


def _exponential(value):
    return f"{value:.3e}".replace("e-0", "e-")


def test_the_button_changes_the_axis_of_all_charts(chromium, pages):
    page = chromium.open(pages["run"], 1400)
    scales = f"[...new Set({VISIBLE}.map((svg) => JSON.parse(svg.dataset.axes).xlog))]"
    count = page.run(f"{VISIBLE}.length")
    assert page.run(scales) == [False]
    page.click("#scale-logarithmic + label")
    assert page.run(scales) == [True]
    assert page.run(f"{VISIBLE}.length") == count


def _write_run(folder, finished, status):
    rows = writers.read(finished / "metrics.jsonl")
    run_page.write(folder, rows, {"status": status, "name": status}, picture=False)
    return folder / "report.html"


def _write_finetuning(folder, _, status):
    results, progress = made_results.going_on(status=status)
    results = dataclasses.replace(results, name=status)
    finetuning_page.write(str(folder / "results.html"), results, progress=progress)
    return folder / "results.html"


def _write_comparison(folder, _, status):
    runs = [
        workdir(folder, f"{status}{seed}", [3.0, 2.0], seed=seed, schedule__steps=20)
        for seed in (0, 1)
    ]
    if status == "running":
        unfinished = folder / runs[1] / "metrics.jsonl"
        unfinished.write_text("".join(unfinished.read_text().splitlines(keepends=True)[:2]))
    found = comparison.compare([compared_run.load(run) for run in runs])
    comparison_page.write(found, str(folder / "c.html"), str(folder / "c.png"), follows=True)
    return folder / "c.html"


@pytest.mark.parametrize("write", [_write_run, _write_finetuning, _write_comparison])
def test_a_page_loads_itself_again_while_the_work_lasts_and_keeps_its_place(
    chromium, tmp_path, finished, write
):
    page = chromium.open(write(tmp_path, finished[0], "running"), 400)
    # What the page would do after a time, the test does when it is ready.
    page.before_scripts("window.setTimeout = (act, after) => { window.due = { act, after }; }")
    page.reload("location.reload()")
    assert page.run("window.due.after") == 30_000
    assert page.run("document.querySelector('header').innerText.includes('running')")
    page.click("#scale-logarithmic + label")
    page.run("window.scrollTo(0, 700)")

    write(tmp_path, finished[0], "finished")
    page.reload("window.due.act()")
    assert not page.run("document.querySelector('header').innerText.includes('running')")
    assert page.run("window.scrollY") == 700
    assert page.run("document.querySelector('#scale-logarithmic').checked") is True
    assert page.run("document.querySelector('[data-refresh], noscript')") is None
    assert page.run("window.due") is None  # no more news


def test_a_copy_needs_no_other_file(chromium, tmp_path, pages):
    for name, path in pages.items():
        alone = tmp_path / name / "page.html"
        alone.parent.mkdir()
        shutil.copy(path, alone)
        page = chromium.open(alone, 1400)
        asked = "performance.getEntriesByType('resource').map((entry) => entry.name)"
        assert page.run(asked) == [] and page.complaints() == []
