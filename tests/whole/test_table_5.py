# SPDX-License-Identifier: Apache-2.0
"""The comparison of table 5: equal compute, and made-up results become the right words."""

import json
import types

import numpy as np
import pytest

from benchmarks import frozen_encoder, table_5, table_5_page


def write(workdir, results, untrained=0.30):
    """Runs as they are left behind: {arm: chunk accuracy of seed 0, 1, ...}."""
    arms = {arm: {"steps": 100, "flops_per_row": 1e6} for arm in table_5.FILES}
    about = {"source": "text:corpus", "rows": 64, "length": 64, "arms": arms}
    (workdir / "experiment.json").write_text(json.dumps(about))
    text = {"corpus": "", "documents": 5, "characters": 2e6, "tokens": 9, "vocabulary": 64}
    for arm, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            measures = {"chunk_accuracy": accuracy, "gen_masked_loss": 5.0, "unigram_entropy": 6.0}
            content = {"seed": seed, "steps": 100, "seconds": 60, "text": text}
            content |= {"measures": measures, "untrained": {"chunk_accuracy": untrained}}
            folder = workdir / f"seed{seed}" / arm
            folder.mkdir(parents=True)
            (folder / "finished.json").write_text(json.dumps(content))
    return str(workdir)


def rows(page, heading):
    """{first cell: other cells} of the table under a heading."""
    block = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in block.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines)}


def test_numbers_become_means_errors_and_verdicts(tmp_path):
    # Means 50, 60, 61; errors 1 / sqrt(3) = 0.58 each. 10 apart is resolved, 1 apart is not.
    found = table_5_page.collect(
        write(tmp_path, {"bert": [0.49, 0.50, 0.51], "replace_mlm": [0.60, 0.61, 0.62],
                         "electra": [0.59, 0.60, 0.61]})
    )  # fmt: skip
    page = table_5_page.text(found, "picture.png")
    assert rows(page, "Results")["BERT (MLM)"] == ["100", "50.00% ± 0.58", "82.2"]
    assert rows(page, "Results")["before training"][1].startswith("30.00%")
    against = rows(page, "Against ELECTRA")
    assert against["BERT (MLM)"] == ["-10.00 ± 0.82 points, **lower**"]
    assert against["Replace MLM"] == ["+1.00 ± 0.82 points, not resolved"]
    argument = rows(page, "The paper's argument, step by step")
    assert argument["all of it"] == [
        "ELECTRA less BERT (MLM)", "+2.8", "+10.00 ± 0.82 points, **higher**",
    ]  # fmt: skip
    assert "Resolved, 1 of 2 differences: BERT (MLM) is below ELECTRA" in page
    assert "3 seeds." in page
    assert rows(page, "Pre-training metrics")["ELECTRA"][0] == "-1.000 ± 0.000"


def test_only_seeds_that_no_arm_lacks_are_shown(tmp_path):
    found = table_5_page.collect(write(tmp_path, {"bert": [0.5, 0.6], "electra": [0.7, 0.7, 0.9]}))
    assert (found.seeds, found.left_out) == ([0, 1], 1)
    assert found.values("electra", "chunk_accuracy") == [0.7, 0.7]
    page = " ".join(table_5_page.text(found, "").split())
    assert "1 finished runs of seeds that are not complete are left out" in page


def test_one_seed_has_no_error(tmp_path):
    found = table_5_page.collect(write(tmp_path, {"bert": [0.5], "electra": [0.7]}))
    page = table_5_page.text(found, "")
    assert rows(page, "Against ELECTRA")["BERT (MLM)"] == ["-20.00 points, one seed"]
    assert "None of 1 differences to ELECTRA is resolved" in page


def test_nothing_complete_is_said_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no experiment.json"):
        table_5_page.collect(str(tmp_path))
    with pytest.raises(SystemExit, match=r"no seed is complete yet \(1 runs are finished\)"):
        table_5_page.collect(write(tmp_path, {"bert": [0.5]}))


def test_page_and_picture_are_written(tmp_path):
    found = table_5_page.collect(write(tmp_path, {"bert": [0.5, 0.6], "electra": [0.7, 0.8]}))
    table_5_page.write(found, str(tmp_path / "docs" / "page.md"))
    assert "(page.png)" in (tmp_path / "docs" / "page.md").read_text()
    assert (tmp_path / "docs" / "page.png").read_bytes().startswith(b"\x89PNG")


def test_arms_cost_the_same(tmp_path):
    found = table_5.equal_compute("builtin", "train:sentencepiece:2048", 1000)
    costs = {arm: one["steps"] * one["flops_per_row"] for arm, one in found.items()}
    assert found["electra"]["steps"] == 1000
    assert found["bert"]["steps"] > 1000 > found["all_tokens_mlm"]["steps"]
    assert found["electra_quarter"]["steps"] > 1000 > found["electra_whole"]["steps"]
    for cost in costs.values():
        assert cost == pytest.approx(costs["electra"], rel=1e-3)


def test_pairs_hold_each_word_in_both_roles():
    for kind, group in frozen_encoder.pairs().items():
        assert len(set(group)) == len(group), kind
        swaps = [set(good.split()) ^ set(bad.split()) for good, bad in group]
        assert all(len(swap) == 2 for swap in swaps), kind
        for words in map(frozenset, swaps):
            right = [good for good, bad in group if set(good.split()) ^ set(bad.split()) == words]
            first = sorted(words)[0]
            assert sum(first in good.split() for good in right) * 2 == len(right), (kind, words)


def test_a_probe_finds_what_is_linear_and_misses_what_was_never_shown():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((400, 3))
    classes = np.where(x[:, 0] > 0, "right", "left")
    assert frozen_encoder.accuracy(x[:300], classes[:300], x[300:], classes[300:]) > 0.95
    assert frozen_encoder.accuracy(x[:300], classes[:300], x[300:], ["up"] * 100) == 0


class Letters:
    """A vocabulary of letters, a piece each."""

    unk_id = 99

    def encode(self, lines):
        return [np.array([ord(letter) - ord("a") for letter in line]) for line in lines]


def test_a_sentence_longer_than_a_row_is_read_in_parts_and_each_word_is_asked_once():
    config = types.SimpleNamespace(data=types.SimpleNamespace(sequence_length=7))
    run = types.SimpleNamespace(opened=types.SimpleNamespace(vocabulary=Letters()), config=config)
    words = ["ab", "cde", "f", "", "abcdefgh"]  # five pieces fit a row
    parts = [
        (row.tolist(), places.tolist(), tags)
        for row, places, tags in frozen_encoder.rows_of(run, words, "VWXYZ")
    ]
    assert parts == [
        ([0, 1, 2, 3, 4], [1, 3], ["V", "W"]),
        ([5, 99], [1, 2], ["X", "Y"]),
        ([0, 1, 2, 3, 4], [1], ["Z"]),
    ]
