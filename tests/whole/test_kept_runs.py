# SPDX-License-Identifier: Apache-2.0
"""Finished runs are kept beside their page, and another machine continues from them."""

import argparse
import json
import re

import pytest

from benchmarks import crossing, equal_compute, kept_runs
from electra_jax.checks import finished_runs

ABOUT = {"source": "text:wiki/*.txt", "vocab": "some", "steps": 100}


def leave(workdir, characters):
    """An experiment as it is left behind: {run: the characters of its text}."""
    workdir.mkdir(exist_ok=True)
    (workdir / "experiment.json").write_text(json.dumps(ABOUT))
    for name, count in characters.items():
        (workdir / name).mkdir(parents=True)
        (workdir / name / "finished.json").write_text(json.dumps({"text": {"characters": count}}))


def files(workdir):
    return {
        str(path.relative_to(workdir)): json.loads(path.read_text())
        for path in workdir.rglob("*.json")
    }


def test_what_one_machine_has_finished_another_has_too(tmp_path):
    page = str(tmp_path / "docs" / "page.md")
    leave(tmp_path / "one", {"seed0/bert": 5, "seed1/bert": 5})
    kept_runs.pack(str(tmp_path / "one"), page)
    kept_runs.unpack(page, str(tmp_path / "two"))
    assert files(tmp_path / "two") == files(tmp_path / "one")


def test_what_a_workdir_has_stays(tmp_path):
    page = str(tmp_path / "page.md")
    leave(tmp_path / "one", {"seed0/bert": 5})
    kept_runs.pack(str(tmp_path / "one"), page)
    leave(tmp_path / "two", {"seed0/bert": 7})
    kept_runs.unpack(page, str(tmp_path / "two"))
    assert files(tmp_path / "two")["seed0/bert/finished.json"] == {"text": {"characters": 7}}


def test_runs_of_another_experiment_are_not_mixed_in(tmp_path):
    page = str(tmp_path / "page.md")
    leave(tmp_path / "one", {"seed0/bert": 5})
    kept_runs.pack(str(tmp_path / "one"), page)
    leave(tmp_path / "two", {})
    (tmp_path / "two" / "experiment.json").write_text(json.dumps(ABOUT | {"steps": 200}))
    with pytest.raises(SystemExit, match="two holds an experiment with --steps=200, not 100"):
        kept_runs.unpack(page, str(tmp_path / "two"))
    assert list(files(tmp_path / "two")) == ["experiment.json"]


def test_no_path_of_a_machine_is_kept(tmp_path):
    """Folders that were begun before runs were kept have one."""
    leave(tmp_path / "one", {"seed0/bert": 5})
    about = ABOUT | {"source": "text:/home/me/wiki/*.txt"}
    (tmp_path / "one" / "experiment.json").write_text(json.dumps(about))
    kept_runs.pack(str(tmp_path / "one"), str(tmp_path / "page.md"))
    content = json.loads((tmp_path / "page.json").read_text())
    assert content["experiment"]["source"] == "text:wiki/*.txt"
    kept_runs.same_settings(about, {"source": "text:wiki/*.txt"}, "one")


@pytest.mark.parametrize(
    "source, short",
    [
        ("builtin", "builtin"),
        ("text:/home/me/wiki/*.txt.xz", "text:wiki/*.txt.xz"),
        ("text:wiki/*.txt", "text:wiki/*.txt"),
        ("text:/a/b/en/*.txt@2; builtin@1", "text:en/*.txt@2; builtin@1"),
        ("text:/a/wiki/**/*.txt", "text:wiki/**/*.txt"),
        ("text:https://host/a/b/c.txt", "text:https://host/a/b/c.txt"),
        ("hf:owner/name/part:train", "hf:owner/name/part:train"),
    ],
)
def test_of_a_path_its_last_folder_is_kept(source, short):
    assert kept_runs.short(source) == short == kept_runs.short(short)


def test_a_page_without_kept_runs_has_nothing_to_unpack(tmp_path):
    kept_runs.unpack(str(tmp_path / "page.md"), str(tmp_path / "two"))
    assert not (tmp_path / "two").exists()


def test_runs_on_different_texts_are_refused(tmp_path):
    leave(tmp_path / "one", {"seed0/bert": 5, "seed0/electra": 7})
    with pytest.raises(SystemExit, match=r"characters 5 \(seed0/bert\) and 7 \(seed0/electra\)"):
        kept_runs.pack(str(tmp_path / "one"), str(tmp_path / "page.md"))
    assert not (tmp_path / "page.json").exists()


@pytest.mark.parametrize(
    "begin",
    [
        lambda given: kept_runs.begin(given, {}),
        lambda given: equal_compute.begin(crossing.ARMS, given),
    ],
    ids=["kept_runs", "equal_compute"],
)
def test_a_begun_experiment_is_of_one_text_wherever_that_lies(tmp_path, begin):
    leave(tmp_path, {})
    about = ABOUT | {"arms": dict.fromkeys(crossing.ARMS)}
    (tmp_path / "experiment.json").write_text(json.dumps(about))

    def asked(**changes):
        same = {"workdir": str(tmp_path), "source": "text:wiki/*.txt", "corpus": ""}
        return argparse.Namespace(**(same | {"vocab": "some", "steps": 100} | changes))

    begin(asked())
    begin(asked(source="text:/else/where/wiki/*.txt"))
    for other in ("builtin", "text:wiki/*.txt.xz", "text:enwiki/*.txt"):
        with pytest.raises(SystemExit, match=re.escape(f"--source=text:wiki/*.txt, not {other}")):
            begin(asked(source=other))
    with pytest.raises(SystemExit, match="--steps=100, not 200"):
        begin(asked(steps=200))


class Begun(Exception):
    """A run was asked for; nothing is trained."""


def test_a_first_stage_that_was_kept_without_its_weights_is_trained_again(tmp_path, monkeypatch):
    page, arms, asked = str(tmp_path / "page.md"), crossing.KINDS, []
    leave(tmp_path / "one", {"seed0/first_stage": 5})
    kept_runs.pack(str(tmp_path / "one"), page)
    kept_runs.unpack(page, str(tmp_path / "two"))

    def begin(_, folder):
        asked.append(folder)
        if folder.endswith("two_stage"):
            raise Begun

    monkeypatch.setattr(finished_runs.FinishedRun, "of", begin)
    given = argparse.Namespace(
        workdir=str(tmp_path / "two"), source="builtin", vocab="train:sentencepiece:2048",
        downstream="",
    )  # fmt: skip
    about = {"corpus": "", "arms": dict.fromkeys(arms, {"steps": 10})}
    with pytest.raises(Begun):
        equal_compute.run(arms, given, about, "two_stage", 0, ())
    assert [folder.rpartition("/")[2] for folder in asked] == ["first_stage", "two_stage"]
