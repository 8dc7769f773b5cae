# SPDX-License-Identifier: Apache-2.0
"""The results of fine-tuning as one HTML file that needs no other file.

    Results  ->  header, warnings  ->  scores by task  ->  where the seeds ended
             ->  beside the control, curves of every seed
             ->  how each task was trained, notes
             ->  settings that differ from configs/finetune.py, cost, environment
    Progress ->  what is done now and what is left; an open page loads itself again until the end

Python chooses what is shown and writes the numbers, `page_charts.py` draws the charts; structure
and words of the page are `templates/finetuning.html.j2`.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from electra_jax import config as config_lib
from electra_jax.configs import finetune
from electra_jax.finetuning import config as finetuning_config
from electra_jax.finetuning.results import page_charts, results_table, run_results
from electra_jax.finetuning.results import progress as progress_lib
from electra_jax.report import drawing, rendering, style


def write(
    path: str,
    results: run_results.Results,
    progress: progress_lib.Progress | None = None,
) -> None:
    """Writes the page to `path`. A failure never leaves half a file.

    Args:
      progress: of the command that makes these results; None if it has ended.
    """
    drawing.write_whole(path, html(results, progress).encode())


_ENVIRONMENT = rendering.environment(pathlib.Path(__file__).parent / "templates")


def html(results: run_results.Results, progress: progress_lib.Progress | None = None) -> str:
    """The whole page; see `write`."""
    facts = results_table.facts(results)
    if results.glue_average is not None:
        facts.append(
            f"GLUE average of {len(run_results.GLUE)} medians: {100 * results.glue_average:.2f}"
        )
    curves = [page_charts.curves(task) for task in _drawn(results, progress)]
    settings, control = results.settings, results.control

    return _ENVIRONMENT.get_template("finetuning.html.j2").render(
        title=f"Fine-tuning: {results.name}",
        name=results.name,
        control=None if control is None else control.name,
        facts=facts,
        **rendering.written(progress is not None and progress.status == "running"),
        progress=progress,
        progress_done=_done(progress),
        warnings=[
            {"task": task.task, "seed": seed, "words": words}
            for task in results.tasks
            for seed, words in task.warnings
        ],
        head=results_table.HEAD,
        scores=_scores(results),
        label_head=results_table.LABEL_HEAD,
        label_tables=results_table.label_tables(results),
        rungs=page_charts.ends(results),
        against=_against(results),
        comparison=results_table.COMPARISON,
        curves=[charts for charts in curves if charts],
        training=[_training(task) for task in results.tasks],
        notes=results_table.all_notes(results),
        changed=_changed(settings),
        settings={name: rendering.fact(value) for name, value in settings.items()},
        cost=_cost(results),
        environment={name: rendering.fact(value) for name, value in results.environment.items()},
    )


def _drawn(results, progress) -> list[run_results.TaskResult]:
    """The tasks whose curves are drawn; of the one that is trained, its unfinished seeds too."""
    now = None if progress is None else progress.task
    others = [task for task in results.tasks if now is None or task.task != now.task]
    return others if now is None else [now, *others]


def _done(progress: progress_lib.Progress | None) -> str | None:
    """The share of all seeds that is done, in percent; None where nothing is going on."""
    if progress is None or not progress.whole or progress.status == "finished":
        return None
    return f"{100 * (progress.done + progress.share) / progress.whole:.1f}"


def _changed(settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """The settings that differ from those of configs/finetune.py."""
    base = config_lib.flatten(finetuning_config.parse(finetune.get_config()))
    return [
        {"name": name, "base": rendering.fact(base[name]), "here": rendering.fact(value)}
        for name, value in settings.items()
        # As they are written, because a tuple comes back from results.json as a list.
        if name in base and rendering.fact(base[name]) != rendering.fact(value)
    ]


def _cost(results: run_results.Results) -> dict[str, str]:
    """What the seeds have used, and how long the last command took."""
    found = {}
    if results.minutes is not None:
        found["last command"] = style.duration(60 * results.minutes)
    each = [task.minutes for task in results.tasks if task.minutes is not None]
    if each:
        found["all seeds"] = f"{style.duration(60 * sum(each))}, with evaluation"
    if results.device_hours is not None:
        found["device-hours"] = f"{results.device_hours:.3g}, of all seeds with evaluation"
    return found


def _scores(results: run_results.Results) -> list[dict[str, Any]]:
    """The rows of the table. Only the first row of a split names the task and the split."""
    rows, before = [], None
    for row in results_table.table_rows(results):
        place = (row.task, row.split)
        again, before = place == before, place
        rows.append(
            {
                "again": again,
                "task": "" if again else row.task,
                "split": "" if again else row.split,
                "metric": row.metric,
                "failed": row.main and not row.learnt,
                "median": row.median,
                "mean": row.mean,
                "best": row.best,
                "count": row.count,
                "guess": row.guess,
            }
        )
    return rows


def _against(results: run_results.Results) -> list[dict[str, str]]:
    """The rows of `results_table.comparison_rows`, the verdict with its colour."""
    marks = {"better": "good", "worse": "bad"}
    names = ("task", "split", "metric", "first", "second", "difference", "verdict")
    return [
        dict(zip(names, row)) | {"mark": marks.get(row[-1], "muted")}
        for row in results_table.comparison_rows(results)[1:]
    ]


def _training(task: run_results.TaskResult) -> dict[str, str]:
    """How a task was trained: a row of the table, in words."""
    speed = task.tokens_per_second
    return {
        "task": task.task,
        "examples": ", ".join(f"{split} {count:,}" for split, count in task.examples.items()),
        "checkpoint": task.choice,
        "took": "-" if task.minutes is None else style.duration(60 * task.minutes),
        "speed": "-" if speed is None else style.count(speed),
        "padding": style.metric("padding_rate", task.padding_rate),
        "settings": ", ".join(f"{name} {value}" for name, value in task.settings.items()),
    }
