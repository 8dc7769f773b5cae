# SPDX-License-Identifier: Apache-2.0
"""Finished runs of an experiment, kept beside its page: another machine continues from them.

    WORKDIR/experiment.json, WORKDIR/seedS/ARM/finished.json  -> pack ->  docs/experiments/X.json
    docs/experiments/X.json  -> unpack ->  the same files, where they are missing

An experiment of days on two cores outlives machines. What a run has come to is small, so it stands
in one file beside the page, and a run that is in it is not trained again. Weights are not kept: a
run that others begin from is trained again where its folder is missing.
"""

import argparse
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.report import drawing

EXPERIMENT, FINISHED = "experiment.json", "finished.json"
SETTINGS = ("source", "vocab", "steps")  # of an experiment, which all of its runs share


def path_of(page: str) -> pathlib.Path:
    """Where the runs of a page are kept."""
    return pathlib.Path(page).with_suffix(".json")


def unpack(page: str, workdir: str) -> None:
    """Writes what is kept beside a page into a workdir, new or begun, where it is missing.

    Raises:
      SystemExit: the workdir holds another experiment; nothing is written.
    """
    path, folder = path_of(page), pathlib.Path(workdir)
    if not path.exists():
        return

    content, begun = json.loads(path.read_text()), folder / EXPERIMENT
    if begun.exists():
        kept = {name: content["experiment"][name] for name in SETTINGS}
        same_settings(json.loads(begun.read_text()), kept, workdir)
    for name, run in content["runs"].items():
        _write_new(folder / name / FINISHED, run)
    _write_new(begun, content["experiment"])


def begin(given: argparse.Namespace, more: Mapping[str, Any]) -> None:
    """Writes experiment.json in the first call; another one with other settings is refused.

    Args:
      given: the command's arguments, with those of `SETTINGS` among them.
      more: what else all runs share.

    Raises:
      SystemExit: the workdir holds an experiment of other settings.
    """
    path = pathlib.Path(given.workdir, EXPERIMENT)
    asked = {name: getattr(given, name) for name in SETTINGS}
    asked["source"] = short(given.source)
    _write_new(path, {**asked, **more})
    same_settings(json.loads(path.read_text()), asked, given.workdir)


def write(folder: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Writes what a run has come to, which marks it as finished."""
    _write(folder / FINISHED, content)


def pack(workdir: str, page: str, same: Sequence[str] = ("characters",)) -> None:
    """Keeps all finished runs of a workdir beside the page.

    Args:
      workdir: the experiment's folder.
      page: the page's path.
      same: what all runs must have in common, of what they say of their text.

    Raises:
      SystemExit: the runs have read different texts.
    """
    about, runs = experiment(workdir), finished(workdir)
    for what in same:
        texts = {run["text"][what]: name for name, run in runs.items()}
        if len(texts) > 1:
            read = " and ".join(f"{value} ({name})" for value, name in texts.items())
            raise SystemExit(
                f"{workdir}: its runs have read different texts: {what} {read}; give --source the"
                f" text that the runs in {path_of(page)} were trained on, or another --page and"
                " --workdir"
            )

    about["source"] = short(about["source"])
    _write(path_of(page), {"experiment": about, "runs": runs})


def experiment(workdir: str) -> dict:
    """What all runs of a workdir share. Raises SystemExit if there is none."""
    path = pathlib.Path(workdir, EXPERIMENT)
    if not path.exists():
        raise SystemExit(f"{workdir} holds no {EXPERIMENT}; give the --workdir of an experiment")
    return json.loads(path.read_text())


def finished(workdir: str) -> dict[str, dict]:
    """{seedS/ARM: finished.json} of all runs of a workdir that are finished."""
    folder = pathlib.Path(workdir)
    return {
        str(path.parent.relative_to(folder)): json.loads(path.read_text())
        for path in sorted(folder.glob(f"seed*/*/{FINISHED}"))
    }


def same_settings(found: Mapping[str, Any], asked: Mapping[str, Any], where: str) -> None:
    """Raises SystemExit if an experiment was begun with other settings than are asked for."""
    for name, value in asked.items():
        there = short(found[name]) if name == "source" else found[name]
        if there != value:
            raise SystemExit(
                f"{where} holds an experiment with --{name}={there}, not {value};"
                " choose another --workdir and --page"
            )


def short(source: str) -> str:
    """A source with the last folder of a path alone, `text:wiki/*.txt`: the rest is a machine's.

    Folder and ending stay, since the order and the cut of the text that a vocabulary is trained on
    follow from them. Addresses and sets are the same on every machine.
    """
    return "; ".join(map(_short, source.split(";")))


def _short(source):
    kind, _, path = source.strip().partition(":")
    if kind != "text" or "://" in path:
        return source.strip()
    parts = path.split("/")
    pattern = next((n for n, part in enumerate(parts) if re.search(r"[*?[]", part)), len(parts) - 1)
    return f"text:{'/'.join(parts[max(0, pattern - 1) :])}"


def _write_new(path, content):
    if not path.exists():
        _write(path, content)


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.write_whole(str(path), json.dumps(content, indent=1).encode())
