# SPDX-License-Identifier: Apache-2.0
"""Predictions in the formats that others read: GLUE's zip, SQuAD's JSON, lines of JSON.

    {task: label of each test row}  ->  glue   ->  one zip with a TSV per task (index, prediction)
    answers, their ids              ->  squad  ->  predictions.json, null_odds.json, n_best.json
    any task, example by example    ->  lines  ->  predictions.jsonl

GLUE's site wants eleven files. The remarks that `glue` returns name those that are missing.
"""

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.finetuning.results import answers as answers_lib
from electra_jax.report import drawing

_BINARY = ("0", "1")
_INFERENCE = ("entailment", "neutral", "contradiction")
_TWO_WAY = ("entailment", "not_entailment")

# Task -> (its file, the labels it may hold (none: a number from 0 to 5), rows of GLUE's test set).
GLUE = {
    "cola": ("CoLA.tsv", _BINARY, 1_063),
    "sst2": ("SST-2.tsv", _BINARY, 1_821),
    "mrpc": ("MRPC.tsv", _BINARY, 1_725),
    "stsb": ("STS-B.tsv", (), 1_379),
    "mnli_matched": ("MNLI-m.tsv", _INFERENCE, 9_796),
    "mnli_mismatched": ("MNLI-mm.tsv", _INFERENCE, 9_847),
    "qnli": ("QNLI.tsv", _TWO_WAY, 5_463),
    "qqp": ("QQP.tsv", _BINARY, 390_965),
    "rte": ("RTE.tsv", _TWO_WAY, 3_000),
    "wnli": ("WNLI.tsv", _BINARY, 146),
    "ax": ("AX.tsv", _INFERENCE, 1_104),
}


def glue(path: str, predictions: Mapping[str, Sequence]) -> list[str]:
    """Writes the zip. Returns remarks: files that are missing or of unexpected length.

    Args:
      predictions: task of GLUE -> the label of each row of its test set, in order: words for MNLI,
        AX, QNLI and RTE, 0 or 1 for the others, a number for stsb (cut to 0..5).

    Raises:
      ValueError: a task is unknown, or a label is not one of its task's.
    """
    unknown = sorted(predictions.keys() - GLUE.keys())
    if unknown:
        raise ValueError(f"GLUE has no task {unknown[0]!r}; use {', '.join(GLUE)}")

    remarks, files, missing = [], {}, []
    for task, (name, labels, rows) in GLUE.items():
        if task in predictions:
            found = predictions[task]
            files[name] = _tsv([_label(task, labels, one, n) for n, one in enumerate(found)])
            if len(found) != rows:
                remarks.append(f"{name} has {len(found):,} rows; GLUE's test set has {rows:,}")
        else:
            missing.append(name)

    if missing:
        remarks.append(f"without {', '.join(missing)}, whose tasks were not run")

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in files.items():
            # With a fixed date equal predictions make equal files.
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)

    drawing.write_whole(path, archive.getvalue())
    return remarks


def read_glue(path: str) -> dict[str, list[str]]:
    """Returns what `glue` has written, as text; {} if there is no such file, or it is damaged."""
    names = {name: task for task, (name, *_) in GLUE.items()}
    try:
        with zipfile.ZipFile(path) as archive:
            files = {
                names[name]: archive.read(name).decode().splitlines()[1:]
                for name in archive.namelist()
                if name in names
            }
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error):
        return {}
    return {task: [row.partition("\t")[2] for row in rows] for task, rows in files.items()}


def squad(
    folder: str,
    ids: Sequence[str],
    answers: Sequence[answers_lib.Answer],
    threshold: float | None = None,
) -> list[str]:
    """Writes the files that SQuAD's evaluation reads; returns their paths.

    predictions.json   {id: text}, with the threshold applied
    null_odds.json     {id: null score}, if questions have null scores
    best_spans.json    {id: text} without a threshold, if questions have null scores; with
                       null_odds.json the evaluation of 2.0 finds its own best threshold
    n_best.json        the spans of each question with score and probability

    Args:
      threshold: None for 1.1, where every question is answered.
    """
    twice = len(ids) - len(set(ids))
    if twice or len(ids) != len(answers):
        raise ValueError(f"{len(answers)} answers for {len(ids)} ids, {twice} of them twice")

    files = {"predictions.json": dict(zip(ids, answers_lib.decided(answers, threshold)))}
    if all(one.null is not None for one in answers):
        # JSON has no infinity, and no threshold is larger than this.
        files["null_odds.json"] = {key: min(one.null, 1e30) for key, one in zip(ids, answers)}
        files["best_spans.json"] = {key: one.text for key, one in zip(ids, answers)}
    files["n_best.json"] = {
        key: [
            {
                "text": span.text,
                "probability": round(span.probability, 6),
                "score": round(span.score, 6),
                "answer_start": span.start,
            }
            for span in one.n_best
        ]
        for key, one in zip(ids, answers)
    }
    return [_write_json(os.path.join(folder, name), content) for name, content in files.items()]


def lines(
    path: str, ids: Sequence, predictions: Sequence, labels: Sequence | None = None, **lanes: Any
) -> str:
    """Writes one JSON object per example: id, prediction, label if known, and further columns.

    Args:
      lanes: further columns by name, one value per example, such as scores=[[0.1, 0.9], ...];
        floats keep six digits after the point.
    """
    columns = {"id": ids, "prediction": predictions}
    columns |= {} if labels is None else {"label": labels}
    columns |= lanes
    for name, values in columns.items():
        if len(values) != len(ids):
            raise ValueError(f"{name} has {len(values)} values for {len(ids)} examples")

    rows = [dict(zip(columns, map(_plain, row))) for row in zip(*columns.values())]
    text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    drawing.write_whole(path, text.encode())
    return path


def _tsv(labels: Sequence[str]) -> str:
    rows = "".join(f"{place}\t{label}\n" for place, label in enumerate(labels))
    return "index\tprediction\n" + rows


def _label(task: str, labels: Sequence[str], found, row: int) -> str:
    if not labels:
        if not math.isfinite(float(found)):
            raise ValueError(f"{task}, row {row}: {found} is not a number from 0 to 5")
        return f"{min(max(float(found), 0.0), 5.0):.3f}"
    text = str(found)
    if text not in labels:
        raise ValueError(f"{task}, row {row}: {text!r} is none of its labels {', '.join(labels)}")
    return text


def _plain(value):
    """The value in types that JSON has; numpy is unwrapped, not finite numbers are null."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _write_json(path: str, content) -> str:
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    drawing.write_whole(path, text.encode())
    return path
