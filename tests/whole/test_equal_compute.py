# SPDX-License-Identifier: Apache-2.0
"""Comparisons at equal compute: the arms cost the same, made-up results become the right words."""

import argparse
import json
import sys

import pytest

from benchmarks import (
    equal_compute,
    equal_compute_blocks,
    fine_tuned,
    pages,
    section_3,
    section_3_page,
    table_5,
    table_5_page,
)
from electra_jax import config as config_lib
from electra_jax.checks import finished_runs
from electra_jax.configs import tiny_paper
from electra_jax.workdir import saved_config
from support import downstream
from support.corpus import small_run, write_corpus


def write(workdir, results, untrained=0.30):
    """Runs as they are left behind: {arm: chunk accuracy of seed 0, 1, ...}."""
    arms = {arm: {"steps": 100, "flops_per_row": 1e6} for arm in table_5.ARMS | section_3.ARMS}
    about = {"source": "text:here/*.txt", "rows": 64, "length": 64, "arms": arms}
    (workdir / "experiment.json").write_text(json.dumps(about))
    text = {"corpus": "", "documents": 5, "characters": 2e6, "tokens": 9, "vocabulary": 64}
    for arm, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            measures = {"chunk_accuracy": accuracy, "gen_masked_loss": 5.0, "unigram_entropy": 6.0}
            measures |= {"disc_accuracy": accuracy, "disc_majority": 0.5}
            content = {"seed": seed, "steps": 100, "seconds": 60, "text": text}
            content |= {"measures": measures, "untrained": {"chunk_accuracy": untrained}}
            folder = workdir / f"seed{seed}" / arm
            folder.mkdir(parents=True)
            (folder / "finished.json").write_text(json.dumps(content))
    return str(workdir)


def of_table_5(workdir):
    return equal_compute_blocks.collect(workdir, table_5_page.TITLES)


def text(found):
    return pages.text(table_5_page.blocks(found, "picture.png"))


def rows(page, heading):
    """{first cell: other cells} of the table under a heading."""
    block = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in block.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines)}


def test_numbers_become_means_errors_and_verdicts(tmp_path):
    # Means 50, 60, 61; errors 1 / sqrt(3) = 0.58 each. 10 apart is resolved, 1 apart is not.
    found = of_table_5(
        write(tmp_path, {"bert": [0.49, 0.50, 0.51], "replace_mlm": [0.60, 0.61, 0.62],
                         "electra": [0.59, 0.60, 0.61]})
    )  # fmt: skip
    page = text(found)
    assert rows(page, "Results")["BERT (MLM)"] == ["100", "50.00% ± 0.58", "82.2"]
    assert rows(page, "Results")["before training"][1].startswith("30.00%")
    against = rows(page, "Against ELECTRA")
    assert against["BERT (MLM)"] == ["-10.00 ± 0.82 points, **lower**"]
    assert against["Replace MLM"] == ["+1.00 ± 0.82 points, not resolved"]
    argument = rows(page, "The paper's argument, step by step")
    assert argument["all of it"] == [
        "ELECTRA less BERT (MLM)", "+2.8", "+10.00 ± 0.82 points, **higher**",
    ]  # fmt: skip
    told = " ".join(page.split())
    assert "Resolved, 2 of 3 differences: BERT (MLM) is below ELECTRA in" in told
    assert "Replace MLM is above BERT (MLM) in chunk tags (+11.00 ± 0.82 points)." in told
    assert "3 seeds." in page
    assert rows(page, "Pre-training metrics")["ELECTRA"][0] == "-1.000 ± 0.000"


def test_a_page_speaks_of_the_differences_in_its_tables_and_of_no_others(tmp_path):
    """Networks that share nothing are of another size than ELECTRA's: no table compares the two."""
    results = dict.fromkeys(("electra", "bert", "untied", "tied", "electra_64", "bert_64"))
    for place, arm in enumerate(results):
        results[arm] = [0.5 + place / 10, 0.501 + place / 10, 0.502 + place / 10]
    found = equal_compute_blocks.collect(write(tmp_path, results), section_3_page.TITLES)
    page = " ".join(pages.text(section_3_page.blocks(found, "picture.png")).split())
    # BERT less ELECTRA stands in two tables and, turned round, in that of widths: it counts once.
    assert "Resolved, 3 of 3 differences: BERT (MLM) is above ELECTRA in chunk tags" in page
    assert "all weights shared is above no weights shared in" in page
    assert "ELECTRA, width 64 is below BERT, width 64 in" in page


def test_only_seeds_that_no_arm_lacks_are_shown(tmp_path):
    found = of_table_5(write(tmp_path, {"bert": [0.5, 0.6], "electra": [0.7, 0.7, 0.9]}))
    assert (found.seeds, found.left_out) == ([0, 1], 1)
    assert found.values("electra", "chunk_accuracy") == [0.7, 0.7]
    page = " ".join(text(found).split())
    assert "1 finished runs of seeds that are not complete are left out" in page


def test_one_seed_has_no_error(tmp_path):
    found = of_table_5(write(tmp_path, {"bert": [0.5], "electra": [0.7]}))
    page = text(found)
    assert rows(page, "Against ELECTRA")["BERT (MLM)"] == ["-20.00 points, one seed"]
    assert "None of 1 differences is resolved" in page


def test_nothing_complete_is_said_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no experiment.json"):
        of_table_5(str(tmp_path))
    with pytest.raises(SystemExit, match=r"no seed is complete yet \(1 runs are finished\)"):
        of_table_5(write(tmp_path, {"bert": [0.5]}))


def test_page_and_picture_are_written(tmp_path):
    found = of_table_5(write(tmp_path, {"bert": [0.5, 0.6], "electra": [0.7, 0.8]}))
    table_5_page.write(found, str(tmp_path / "docs" / "page.md"))
    assert "(page.png)" in (tmp_path / "docs" / "page.md").read_text()
    assert (tmp_path / "docs" / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arms", [table_5.ARMS, section_3.ARMS], ids=["table_5", "section_3"])
def test_arms_cost_the_same(arms):
    found = equal_compute.equal_compute(arms, "builtin", "train:sentencepiece:2048", 1600)
    assert found["electra"]["steps"] == 1600
    stages = {arm.after for arm in arms.values()}
    for name in arms.keys() - stages:
        first = found.get(arms[name].after, {"steps": 0, "flops_per_row": 0})
        cost = sum(one["steps"] * one["flops_per_row"] for one in (found[name], first))
        reference = 1600 * found[arms[name].budget]["flops_per_row"]
        assert cost / reference == pytest.approx(arms[name].share, rel=1e-3), name
        assert first["steps"] in (0, found[name]["steps"])


def test_a_cheaper_step_leaves_more_of_them():
    found = equal_compute.equal_compute(table_5.ARMS, "builtin", "train:sentencepiece:2048", 1000)
    assert found["bert"]["steps"] > 1000 > found["all_tokens_mlm"]["steps"]
    assert found["electra_quarter"]["steps"] > 1000 > found["electra_whole"]["steps"]


def test_the_second_stage_starts_from_the_first_of_its_seed():
    def init(name):
        arm = section_3.ARMS[name]
        tree = equal_compute.config(arm, name, 2, 100, "builtin", "train:wordpiece:500", "runs")
        return tree.init["from"], tree.init.generator_from

    first = "runs/seed2/first_stage"
    assert init("two_stage") == (first, first)
    assert init("two_stage_fresh") == ("", first)
    assert init("electra") == init("first_stage") == ("", "")


def test_asked_for_a_second_stage_the_first_is_trained_before_it():
    asked = equal_compute.chosen(section_3.ARMS, "two_stage_fresh,electra")
    assert asked == ["electra", "first_stage", "two_stage_fresh"]
    assert equal_compute.chosen(section_3.ARMS, "") == list(section_3.ARMS)
    with pytest.raises(SystemExit, match="--arms=gan is no arm; there are electra, "):
        equal_compute.chosen(section_3.ARMS, "gan")


def test_arms_differ_in_nothing_else():
    """What a comparison would be worth if the arms had other rates, rows or trunks."""
    free = {"name", "objective", "init"}
    first_of_width = {}
    for arm in (table_5.ARMS | section_3.ARMS).values():
        tree = equal_compute.config(
            arm, "x", 0, 100, "builtin", "train:wordpiece:500", "runs"
        ).to_dict()
        for field in ("generator", "sharing"):
            del tree["model"][field]
        first = first_of_width.setdefault(arm.width, tree)
        for section in tree.keys() - free:
            assert tree[section] == first[section], section

    assert set(first_of_width) == {128, 64, 32}
    wide, narrow, _ = first_of_width.values()
    assert len(wide.keys() - free) > 8
    assert all(wide[section] == narrow[section] for section in wide.keys() - free - {"model"})


def test_the_page_of_section_3_shows_the_parts_that_were_trained(tmp_path):
    # Means 60 and 50, errors 0.58 each; the discriminator is 10 and 0 points beyond the majority.
    made = {"electra": [0.59, 0.60, 0.61], "adversarial": [0.49, 0.50, 0.51], "first_stage": [0.9]}
    found = equal_compute_blocks.collect(write(tmp_path, made), section_3_page.TITLES)
    assert (found.seeds, found.left_out) == ([0, 1, 2], 0)
    page = pages.text(section_3_page.blocks(found, "picture.png"))

    heading = "Other ways to train the generator"
    assert rows(page, heading)["ELECTRA"][:2] == ["-1.000 ± 0.000", "-"]  # the last of its tables
    assert rows(page, heading)["ELECTRA"][-1] == "+10.00 ± 0.58 points"
    assert rows(page, heading)["adversarial"][-1] == "0.00 ± 0.58 points"
    assert "| adversarial | -10.00 ± 0.82 points, **lower** |" in page
    assert "Weights that both networks share" not in page
    assert "Less compute" not in page


def test_the_page_of_section_3_compares_networks_of_one_width(tmp_path):
    made = {
        "electra": [0.59, 0.60, 0.61], "bert": [0.49, 0.50, 0.51],
        "electra_64": [0.40, 0.41, 0.42], "bert_64": [0.42, 0.43, 0.44],
    }  # fmt: skip
    found = equal_compute_blocks.collect(write(tmp_path, made), section_3_page.TITLES)
    page = pages.text(section_3_page.blocks(found, "picture.png"))

    for line in (
        "| BERT, width 64 | 100 | 43.00% ± 0.58 |",
        "| before training, width 64 | 0 | 30.00% ± 0.00 |",
        "| width 128 | +10.00 ± 0.82 points, **higher** |",
        "| width 64 | -2.00 ± 0.82 points, lower |",
    ):
        assert line in page
    assert "width 32" not in page
    # Networks of other widths have other budgets, so they are held against those of their width.
    told = page.split("Resolved, ")[1].split(" Whatever")[0]
    assert " ".join(told.split()) == (
        "2 of 2 differences: BERT (MLM) is below ELECTRA in chunk tags (-10.00 ± 0.82 points);"
        " ELECTRA, width 64 is below BERT, width 64 in chunk tags (-2.00 ± 0.82 points)."
    )


def test_a_run_with_other_settings_is_refused(tmp_path):
    """An arm may have been changed since, or its experiment's text."""
    asked = config_lib.parse(small_run("builtin", "", schedule__steps=8))
    equal_compute.refuse_other_settings(str(tmp_path), asked)  # nothing is there yet
    saved_config.write(str(tmp_path), asked)
    equal_compute.refuse_other_settings(str(tmp_path), asked)
    for changes in ({"schedule__steps": 9}, {"optimizer__learning_rate": 0.5}):
        other = config_lib.parse(small_run("builtin", "", **{"schedule__steps": 8} | changes))
        with pytest.raises(SystemExit, match="was trained with other settings .*; delete it"):
            equal_compute.refuse_other_settings(str(tmp_path), other)


def test_a_stopped_run_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(finished_runs.loop, "train", lambda config, workdir: None)
    asked = config_lib.parse(small_run("builtin", ""))
    with pytest.raises(SystemExit, match=f"{tmp_path} was stopped; the same command continues"):
        equal_compute.finished_run(asked, str(tmp_path))


def test_an_experiment_takes_in_arms_that_it_did_not_know(tmp_path):
    asked = argparse.Namespace(
        workdir=str(tmp_path), source="builtin", vocab="train:wordpiece:500", steps=100, corpus=""
    )
    few = {name: section_3.ARMS[name] for name in ("electra", "half")}
    begun = equal_compute.begin(few, asked)
    assert list(begun["arms"]) == ["electra", "half"]
    grown = equal_compute.begin(section_3.ARMS, asked)
    assert grown["arms"].keys() == section_3.ARMS.keys()
    assert grown["arms"]["bert"]["steps"] > 100
    assert json.loads((tmp_path / "experiment.json").read_text()) == grown


@pytest.mark.slow
def test_a_run_is_trained_fine_tuned_and_kept(tmp_path, monkeypatch):
    folder = downstream.write_probes(tmp_path / "downstream")
    write_corpus(tmp_path / "text.txt", 300)
    arms = {"electra": equal_compute.Arm(tiny_paper.get_config, width=32, generator=32)}
    flags = {
        "workdir": tmp_path / "work", "source": f"text:{tmp_path / 'text.txt'}", "steps": 4,
        "vocab": "train:sentencepiece:64", "seeds": 1, "tasks": "chunking", "downstream": folder,
        "page": tmp_path / "page.md",
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["", *(f"--{name}={value}" for name, value in flags.items())])
    given = equal_compute.arguments("x", arms, "")
    equal_compute.train(arms, given, ["electra"])

    kept = json.loads((tmp_path / "page.json").read_text())["runs"]["seed0/electra"]
    for measures in (kept["measures"], kept["untrained"]):
        assert measures.keys() >= {"chunking", "chunk_accuracy", "pair_accuracy"}

    # What is finished is neither trained nor measured again.
    path = tmp_path / "work" / "seed0" / "electra" / "finished.json"
    before = path.stat().st_mtime_ns
    equal_compute.train(arms, given, ["electra"])
    assert path.stat().st_mtime_ns == before


def test_all_seeds_have_the_vocabulary_of_the_first(tmp_path):
    asked, workdir = "train:sentencepiece:64", str(tmp_path)
    assert equal_compute.vocabulary(asked, 1, workdir) == asked  # no run has left one yet
    model = tmp_path / "seed0" / "bert" / "vocab" / "vocab.model"
    model.parent.mkdir(parents=True)
    model.touch()
    assert equal_compute.vocabulary(asked, 0, workdir) == asked
    assert equal_compute.vocabulary(asked, 1, workdir) == str(model)


def test_a_task_is_missed_before_anything_is_trained(tmp_path):
    folder = str(downstream.write_probes(tmp_path))
    assert fine_tuned.named("chunking", folder) == ["chunking"]
    assert fine_tuned.named("chunking", None) == fine_tuned.named("", folder) == []
    with pytest.raises(SystemExit, match="--tasks=squad is no task; there are chunking, "):
        fine_tuned.named("squad", folder)
    with pytest.raises(SystemExit, match="--tasks=stsb: .*STS-B"):
        fine_tuned.named("stsb", folder)
