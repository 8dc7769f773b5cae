# SPDX-License-Identifier: Apache-2.0
"""Results of fine-tunings that never ran."""

import dataclasses

from electra_jax.finetuning.results import progress, run_results


def seed(number, value, *, metric="mcc", split="dev", curve=(), warnings=(), **others):
    scores = {split: {**others, metric: value}}
    return run_results.SeedResult(number, scores, curve, chosen_step=20, warnings=warnings)


def task(name, values, *, metric="mcc", split="dev", guess=0.0, kind="classification", **fields):
    """A task with one seed a value; each has a curve of two points that ends there."""
    seeds = [
        seed(
            number,
            value,
            metric=metric,
            split=split,
            curve=[
                run_results.CurvePoint(10, 0.7, {metric: value / 2}),
                run_results.CurvePoint(20, 0.5 - number / 10, {metric: value}),
            ],
        )
        for number, value in enumerate(values)
    ]
    fields = {"examples": {"train": 8551, split: 1043}, "minutes": 1.25} | fields
    return run_results.TaskResult(
        name, kind, metric, seeds, baselines={split: {metric: guess}}, **fields
    )


def three():
    """Accuracy with a failed seed, a correlation with two metrics, and two dev splits."""
    cola = task("cola", [0.50, 0.52, 0.54, 0.0, 0.53])
    stsb = run_results.TaskResult(
        "stsb",
        "regression",
        "spearman",
        [seed(0, 0.8, metric="spearman", mse=0.75), seed(1, 0.9, metric="spearman", mse=0.25)],
        choice="best",
        baselines={"dev": {"spearman": 0.0, "mse": 2.25}},
        notes=["3 pairs cut to 128 tokens"],
    )
    mnli = run_results.TaskResult(
        "mnli",
        "classification",
        "accuracy",
        [
            run_results.SeedResult(
                0, {f"dev_{m}": {"accuracy": 0.3} for m in ("matched", "mismatched")}
            )
        ],
        baselines={"dev_matched": {"accuracy": 0.35}},
    )
    return run_results.Results(
        "small-wiki",
        [cola, stsb, mnli],
        encoder={"workdir": "runs/small", "step": 10000, "parameters": 13_549_057},
        device="2 CPU cores",
        minutes=12.5,
        settings={"seeds": 5},
        notes=["weights are the averaged ones"],
    )


def with_facts(results):
    """The same results with environment, device-hours and settings."""
    return dataclasses.replace(
        results,
        tasks=[dataclasses.replace(task, device_minutes=2.5) for task in results.tasks],
        environment={"commit": "c0ffee012345", "jax": "0.10.2", "devices": "2 x cpu"},
        settings={"seeds": 5, "recipe.learning_rate": 3e-3, "run.lengths": [32, 64, 128, 256, 512]},
    )


def going_on(**changes):
    """(results, progress) of a command: three seeds are finished, a fourth is trained."""
    finished = task("cola", [0.50, 0.52, 0.54], device_minutes=2.5)
    fourth = dataclasses.replace(
        finished.seeds[0], seed=3, scores={}, curve=finished.seeds[0].curve[:1]
    )
    now = dataclasses.replace(finished, seeds=[*finished.seeds, fourth])
    state = progress.Progress(
        status="running",
        now="cola, seed 3: step 10 of 20",
        left=["mrpc: 5 seeds"],
        done=3,
        whole=10,
        share=0.5,
        task=now,
    )
    whole = dataclasses.replace(three(), tasks=[finished], notes=[])
    return with_facts(whole), dataclasses.replace(state, **changes)
