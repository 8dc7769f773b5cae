# SPDX-License-Identifier: Apache-2.0
"""The records of `hour.py` and the page that is made of them. Trains nothing."""

import json
import math
import os
from collections.abc import Mapping, Sequence

from benchmarks import pages
from benchmarks.equal_compute_blocks import DOWNSTREAM
from electra_jax.report import drawing, means, style

TASKS = {  # task -> what the page calls it
    "chunking": "chunks (CoNLL-2000), F1",
    "wikiann_en": "entities (WikiANN), F1",
    "stsb": "STS-B, Spearman",
    "sst2": "SST-2, accuracy",
    "sst2_all": "SST-2, all examples",
    "mrpc": "MRPC, accuracy",
}
OBJECTIVE, BASELINE = "replaced_token_detection", "masked_lm"
# What docs/experiments/fine_tuning.md has: half an hour of tiny_paper's networks.
BEFORE = {"chunking": 83.43, "wikiann_en": 57.30, "stsb": 26.97, "sst2": 75.25, "mrpc": 66.23}


def add(page: str, found: Mapping) -> None:
    """Puts a record beside the others; one of the same day and change replaces the older."""
    kept = [one for one in records(page) if _name(one) != _name(found)]
    os.makedirs(os.path.dirname(page) or ".", exist_ok=True)
    content = json.dumps([*kept, found], indent=1) + "\n"
    drawing.write_whole(_path(page), content.encode())


def records(page: str) -> list[dict]:
    """All records in the order in which they were made; none if there is no file."""
    if not os.path.exists(_path(page)):
        return []
    with open(_path(page), encoding="utf-8") as file:
        return json.load(file)


def write(page: str) -> None:
    """Writes the page. Raises SystemExit if there is no record."""
    found = records(page)
    if not found:
        raise SystemExit(f"{_path(page)} has no records yet; hour.py without --report makes one")
    drawing.write_whole(page, pages.text(blocks(found)).encode())


def blocks(found: Sequence[Mapping]) -> list[str]:
    """The page, block by block."""
    last = [one for one in found if one["objective"] == OBJECTIVE][-1]
    baselines = [one for one in found if one["objective"] == BASELINE]
    return [
        "# The hour",
        "How good an encoder do two CPU cores make in sixty minutes of training? Each row is one"
        " trial with everything allowed that is a setting; `configs/hour.py` is the last one that"
        " was kept. Compiling, evaluating and saving do not count, fine-tuning neither.",
        "## Records",
        _records(found),
        "Dev sets; mean ± standard error over seeds of fine-tuning, of sentences and pairs on at"
        " most 8,000 training examples where nothing else is said. How the newest was fine-tuned is"
        " below; hour.json has that of all rows but the first, which is by [CLS]. There is one"
        " encoder in each row, so the errors do not include the variation of pre-training. An hour"
        " of another host, or beside other programs, has other steps: FLOPs are 3 x those of the"
        " forward matrix products, of the first three records the steps times those of one. The"
        " rates of fine-tuning were chosen on these dev sets"
        " (docs/LOG.md). In STS-B random weights fail by fine-tuning: on random vectors a ridge"
        " regression reaches 70.",
        f"## The newest: {last['change']}",
        _setting(last),
        _recipes(last),
        _tasks(last),
        _seeds(last),
        _probes(last),
        *(_beside(found, baselines[-1]) if baselines else []),
        "## Again",
        "`python benchmarks/hour.py --source='text:wiki/*.txt' --downstream=FOLDER --change=WORDS`"
        " trains, fine-tunes, and adds a row. The script says what FOLDER holds.",
    ]


def _records(found):
    """A row a record, below what there was before."""
    about = ["date", "what was tried", "minutes", "tokens", "FLOPs", "parameters"]
    head = [*about, *TASKS.values()]
    before = ["2026-11-21", "`tiny_paper`'s networks (fine_tuning.md)", "28", "19.5M", "", "0.93M"]
    rows = [[*before, *(f"{BEFORE[task]:.1f}" if task in BEFORE else "" for task in TASKS)]]
    for one in found:
        scores = one["tasks"]["trained"]
        cells = [_cell(scores[task]) if task in scores else "" for task in TASKS]
        about = [one["date"], one["change"], f"{one['minutes']:g}", style.count(one["tokens"])]
        rows.append([*about, _flops(one), style.count(one["parameters"]), *cells])
    return pages.table(head, rows)


def _setting(one):
    """With what the newest record was made."""
    return "\n".join(
        [
            f"- **Text**: {one['corpus']}; {style.count(one['tokens'])} tokens in"
            f" {one['steps']:,} steps.",
            f"- **Encoder**: `{one['config']}`, {style.count(one['parameters'])} parameters that"
            " are fine-tuned.",
            f"- **Machine**: {one['host']}; {one['minutes']:g} minutes of training; commit"
            f" {one['commit'] or 'unknown'}.",
            "- **Held out**: "
            + ", ".join(f"{name} {value:.3f}" for name, value in one["heldout"].items())
            + ".",
        ]
    )


def _recipes(one):
    """How both sides were fine-tuned, where that differs from the published recipe."""
    recipes = {
        (weights, group): recipe
        for weights, groups in one["recipes"].items()
        for group, recipe in groups.items()
    }
    fields = list(dict.fromkeys(field for recipe in recipes.values() for field in recipe))
    rows = [
        [weights, group, *(str(recipe.get(field, "")) for field in fields)]
        for (weights, group), recipe in recipes.items()
    ]
    return pages.table(["weights", "tasks", *(f"`recipe.{field}`" for field in fields)], rows)


def _tasks(one):
    """Trained against random weights of the same shape, if any, and one answer for all."""
    rows = []
    trained, random = one["tasks"]["trained"], one["tasks"].get("random", {})
    for task, title in TASKS.items():
        if task not in trained:
            continue
        ours, theirs = trained[task], random.get(task)
        beside = (_cell(theirs), _difference(ours, theirs)) if theirs else ("", "")
        guess = ours["one_answer"]
        rows.append(
            [
                title, ours["split"], _cell(ours), *beside,
                "" if guess is None else f"{100 * guess:.1f}",
            ]
        )  # fmt: skip
    head = ["task", "split", "trained", "random weights", "difference", "one answer for all"]
    return pages.table(head, rows)


def _seeds(one):
    """Of how many seeds the scores are."""
    counts = {
        name: ", ".join(f"{task} {score['seeds']}" for task, score in scores.items())
        for name, scores in one["tasks"].items()
    }
    random = f"; of random weights {counts['random']}" if "random" in counts else ""
    return f"Seeds of fine-tuning: of the trained encoder {counts['trained']}{random}."


def _probes(one):
    """What the frozen encoder knows."""
    rows = [
        [title, f"{100 * one['probes'][name]:.1f}", f"{100 * one['untrained_probes'][name]:.1f}"]
        for name, title in DOWNSTREAM.items()
        if name in one["probes"]
    ]
    return pages.table(["frozen encoder, accuracy", "trained", "before training"], rows)


def _beside(found, baseline):
    """A masked language model against the record whose FLOPs are nearest to its own."""
    ours = min(
        (one for one in found if one["objective"] == OBJECTIVE),
        key=lambda one: abs(math.log(one["flops"] / baseline["flops"])),
    )
    both, rows = (ours, baseline), []
    for task, title in TASKS.items():
        scores = [one["tasks"]["trained"].get(task) for one in both]
        if all(scores):
            rows.append([title, *map(_cell, scores), _difference(*scores)])
    for name, title in DOWNSTREAM.items():
        shares = [one["probes"].get(name) for one in both]
        if None not in shares:
            rows.append([f"{title}, frozen", *(f"{100 * share:.1f}" for share in shares), ""])

    columns = [f"{name}, {_flops(one)} FLOPs" for name, one in zip(("ours", "BERT"), both)]
    return [
        "## Beside a masked language model",
        f"An hour of BERT's objective ({baseline['change']}) beside the record whose FLOPs are"
        f" nearest ({ours['change']}). A step without detection costs less, so it has read"
        f" {style.count(baseline['tokens'])} tokens, and the other"
        f" {style.count(ours['tokens'])}. One encoder each: the errors are of fine-tuning.",
        pages.table(["task", *columns, "difference"], rows),
    ]


def _flops(one):
    return f"{one['flops']:.2g}"


def _cell(score):
    """A mean with its error, in hundredths."""
    error = "" if score["error"] is None else f" ± {100 * score['error']:.1f}"
    return f"{100 * score['mean']:.1f}{error}"


def _difference(ours, theirs):
    """Trained less random, with the error of the difference if both have one."""
    apart = means.difference(*map(_mean, (ours, theirs)), higher_is_better=True)
    if apart.error is None:
        return f"{100 * apart.amount:+.1f}, one seed"
    resolved = "" if apart.resolved else ", not resolved"
    return f"{100 * apart.amount:+.1f} ± {100 * apart.error:.1f}{resolved}"


def _mean(score):
    return means.Mean(score["mean"], score["error"], score["seeds"])


def _name(one):
    return one["date"], one["change"]


def _path(page):
    return os.path.splitext(page)[0] + ".json"
