# SPDX-License-Identifier: Apache-2.0
"""What the pages tell a reader to type beside the package's commands: benchmarks, torture, pytest.

`documented_programs.py` finds these command lines. All are read here up to where the work would
begin; the exhaustive tier runs the benchmarks in small.
"""

import argparse
import os
import re
import runpy
import subprocess
import sys

import pytest

from support import corpus, documented_programs
from support.corpus import ROOT

PROGRAMS = documented_programs.programs()
WITH_ARGPARSE = [one for one in PROGRAMS if one.what != "pytest"]
OF_PYTEST = [one for one in PROGRAMS if one.what == "pytest"]

# What makes each benchmark small enough for a test; later flags win.
SMALLER = {
    "benchmarks/against_peer.py": (
        "--config=tiny_paper --batch_size=2 --length=32 --vocab_size=512 --rounds=1 --steps=1"
    ),
    "benchmarks/canary.py": "",
    "benchmarks/cpu_products.py": "--calls=1",
    "benchmarks/crossing.py": "--vocab=train:wordpiece:150 --steps=2 --seeds=1 --arms=electra",
    "benchmarks/discriminator.py": (
        "--vocab=train:wordpiece:150 --steps=6 --seeds=1 --arms=cls_context"
    ),
    "benchmarks/fused_attention.py": "--rows=2 --length=16 --heads=1 --size=8 --steps=1",
    "benchmarks/section_3.py": (
        "--vocab=train:wordpiece:150 --steps=16 --seeds=1 --arms=electra,two_stage"
    ),
    "benchmarks/step_trace.py": (
        "--config=tiny_paper --batch_size=2 --length=32 --vocab_size=512 --steps=1 --dtype=float32"
    ),
    "benchmarks/table_5.py": "--vocab=train:wordpiece:150 --steps=2 --seeds=1 --arms=electra",
}
# Parts of commands that are read and not run here, and why.
ONLY_READ = {
    "gpu_checks": "runs for ten minutes on a GPU",
    "small_in_slices": "tests/whole/test_small_in_slices.py runs it",
    "learning_curves": "needs torch; test_learning_curves.py runs it",
    "scaling_table": "compiles for half an hour; speed/test_cost_model.py has the tables",
    "tests.torture": "test_torture.py runs it",
    "--downstream": "needs the two sets that NLTK packs; test_frozen_encoder.py has the probes",
    "--report": "writes the page of runs that are there; test_equal_compute.py",
    "--rounds=5": "needs torch: this holds ours against the peer",
    "against_peer.py --config=small --batch_size=16": "the same",
}


class Parsed(Exception):
    """The program has read its flags."""


def test_the_pages_have_programs():
    """If none are found, nothing below would fail."""
    assert {one.what for one in PROGRAMS} == {
        "benchmarks/against_peer.py", "benchmarks/canary.py", "benchmarks/cpu_products.py",
        "benchmarks/crossing.py",
        "benchmarks/discriminator.py", "benchmarks/fused_attention.py",
        "benchmarks/gpu_checks.py", "benchmarks/hour.py",
        "benchmarks/learning_curves.py", "benchmarks/scaling_table.py", "benchmarks/section_3.py",
        "benchmarks/small_in_slices.py", "benchmarks/step_trace.py", "benchmarks/table_5.py",
        "tests.torture", "pytest",
    }  # fmt: skip
    assert len(OF_PYTEST) > 7


@pytest.mark.parametrize("program", WITH_ARGPARSE, ids=lambda program: program.name)
def test_a_program_reads_its_flags(program, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_only(self):
        parse(self)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [program.what, *program.words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")  # or it would begin anew
    with pytest.raises(Parsed):
        if program.what.endswith(".py"):
            runpy.run_path(str(ROOT / program.what), run_name="__main__")
        else:
            runpy.run_module(program.what, run_name="__main__", alter_sys=True)


def test_pytest_knows_every_marker_option_and_file_that_pages_name(request):
    markers = {re.match(r"\w+", line)[0] for line in request.config.getini("markers")}
    options = []
    for program in OF_PYTEST:
        words = list(program.words)
        if "-m" in words:
            place = words.index("-m")
            assert words[place + 1] in markers, program.name
            del words[place : place + 2]
        for word in words:
            assert not word.startswith("tests/") or (ROOT / word).exists(), program.name
        options += [word for word in words if not word.startswith("tests/")]

    one_file = ["--collect-only", "-qq", "tests/core/test_batch.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *one_file],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", WITH_ARGPARSE, ids=lambda program: program.name)
def test_a_program_runs(program, tmp_path):
    for part, why in ONLY_READ.items():
        if part in program.name:
            pytest.skip(why)
    corpus.write_corpus(tmp_path / "text.txt", 60)
    done = subprocess.run(
        [sys.executable, str(ROOT / program.what), *program.words, *SMALLER[program.what].split()],
        cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"{program.name}\n{done.stderr[-3000:]}"
    assert done.stdout.strip(), program.name
