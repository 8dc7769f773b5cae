# SPDX-License-Identifier: Apache-2.0
"""Scores against compute: the arms cost what they say, made-up scores become the right words."""

import json

import pytest

from benchmarks import crossing, crossing_page, crossing_picture, crossing_runs, equal_compute

KINDS = ("bert", "electra", "one_trunk", "bert_half", "electra_half", "two_stage", "electra_whole",
         "electra_demo_half", "selection_demo_half")  # fmt: skip


def write(workdir, results):
    """Runs as they are left behind: {arm: chunk accuracy of seed 0, 1, ...}."""
    arms = {arm: {"steps": 100, "flops_per_row": 1e6} for arm in crossing.ARMS}
    about = {"source": "text:here/*.txt", "steps": 100, "rows": 64, "length": 64, "arms": arms}
    (workdir / "experiment.json").write_text(json.dumps(about))
    text = {"corpus": "", "documents": 5, "characters": 2e6, "tokens": 9, "vocabulary": 64}
    for arm, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            content = {"seed": seed, "text": text, "measures": {"chunk_accuracy": accuracy}}
            if arm == "electra":
                content["untrained"] = {"chunk_accuracy": 0.3}
            folder = workdir / f"seed{seed}" / arm
            folder.mkdir(parents=True)
            (folder / "finished.json").write_text(json.dumps(content))
    return crossing_runs.collect(str(workdir), KINDS)


# A score has an error of 1 / sqrt(3) = 0.6 points. Distances within a seed are two times the same
# and once three points higher, so that they have one of 1.0: 10 apart is resolved, 1 apart is not.
CROSSES = {
    "bert": [0.59, 0.60, 0.61],
    "electra": [0.51, 0.49, 0.50],
    "bert_x3": [0.69, 0.70, 0.71],
    "electra_x3": [0.70, 0.68, 0.69],
    "bert_x10": [0.79, 0.80, 0.81],
    "electra_x10": [0.91, 0.89, 0.90],
}


def page_of(found):
    """The page as one line, so that words are found wherever its lines are broken."""
    return " ".join(crossing_page.pages.text(crossing_page.blocks(found, "picture.png")).split())


def test_where_electra_passes_bert_is_said_in_a_sentence(tmp_path):
    found = write(tmp_path, CROSSES)
    assert crossing_page.answer(found, "electra", "bert") == (
        "**ELECTRA, generator 1/2**, less BERT (MLM), in the mean of all measures: -10.0 ± 1.0,"
        " **lower** at 1 x (lower in chunk tags by a probe); -1.0 ± 1.0, not resolved at 3 x; +10.0"
        " ± 1.0, **higher** at 10 x (higher in chunk tags by a probe); from 1 x to 10 x +20.0 ±"
        " 0.0, **higher** (higher in chunk tags by a probe)."
    )
    page = page_of(found)
    assert "above BERT: ELECTRA, generator 1/2, at 10 x (+10.0 ± 1.0, higher)." in page
    assert "| BERT (MLM) | 60.0 ± 0.6 | 70.0 ± 0.6 | 80.0 ± 0.6 |" in page
    assert "| random weights | 30.0 ± 0.0 | 30.0 ± 0.0 | 30.0 ± 0.0 |" in page
    assert (
        "| ELECTRA, generator 1/2 | -10.0 ± 1.0, **lower** | -1.0 ± 1.0, not resolved"
        " | +10.0 ± 1.0, **higher** | +20.0 ± 0.0, **higher** |"
    ) in page


def test_where_no_arm_passes_bert_the_nearest_is_named(tmp_path):
    below = {arm: scores for arm, scores in CROSSES.items() if not arm.endswith("_x10")}
    page = page_of(write(tmp_path, below))
    assert "no arm is above BERT at a budget that was tried. The nearest is ELECTRA" in page
    assert "at 3 x (-1.0 ± 1.0, not resolved)." in page


def test_the_mean_is_of_all_measures_of_a_run_that_has_all(tmp_path):
    found = write(tmp_path, {"bert": [0.5, 0.6, 0.7]})
    found.runs["bert", 1, 0]["measures"]["stsb"] = 0.1
    found.runs["bert", 1, 1]["measures"]["stsb"] = 0.2
    assert found.measures == ["stsb", "chunk_accuracy"]
    assert found.values("bert", 1, "mean", [0, 1, 2]) == pytest.approx([0.3, 0.4])


def test_a_mean_without_minimal_pairs_stands_beside_that_of_all(tmp_path):
    """They ask the head of pre-training, which is not what is fine-tuned."""
    found = write(tmp_path, {"bert": [0.50, 0.51], "electra": [0.49, 0.51]})
    assert found.averages == ["mean"]
    for (kind, *_), run in found.runs.items():
        run["measures"]["stsb"] = 0.4 if kind == "bert" else 0.6
        run["measures"]["pair_accuracy"] = 0.9 if kind == "bert" else 0.5
    assert found.averages == ["mean", "encoder"]
    assert found.values("electra", 1, "encoder", [0, 1]) == pytest.approx([0.545, 0.555])
    page = page_of(found)
    assert "In the mean of all measures no arm is above BERT at a budget that was tried." in page
    assert (
        "In the mean without minimal pairs, above BERT: ELECTRA, generator 1/2, at 1 x (+9.7 ± 0.3,"
        " higher) (higher in STS-B by fine-tuning)."
    ) in " ".join(page.split())
    assert "## Mean without minimal pairs" in page


def test_minimal_pairs_word_by_word_have_a_mean_of_their_own(tmp_path):
    """BERT reads a sentence once a word in any case; ELECTRA does so where both networks answer."""
    found = write(tmp_path, {"bert": [0.50, 0.51], "electra": [0.49, 0.51], "electra_x3": [0.5]})
    for (kind, *_), run in found.runs.items():
        run["measures"]["stsb"] = 0.6
        run["measures"]["pair_accuracy"] = 0.9 if kind == "bert" else 0.5
    found.runs["bert", 1, 0]["measures"]["pair_accuracy_in_turn"] = 0.9
    found.runs["bert", 1, 1]["measures"]["pair_accuracy_in_turn"] = 0.9
    assert found.averages == ["mean", "encoder"], "that of BERT alone says nothing new"
    found.runs["electra", 1, 0]["measures"]["pair_accuracy_in_turn"] = 0.8
    found.runs["electra", 1, 1]["measures"]["pair_accuracy_in_turn"] = 0.8
    assert found.averages == ["mean", "mean_in_turn", "encoder"]
    assert found.values("electra", 1, "mean_in_turn", [0, 1]) == pytest.approx([0.63, 0.6366667])
    assert found.values("electra", 3, "mean_in_turn", [0]) == [], "not known is not 0"

    page = page_of(found)
    assert (
        "In the mean with minimal pairs word by word no arm is above BERT at a budget that was"
        " tried. The nearest is ELECTRA, generator 1/2, at 1 x (-3.5 ± 0.2, lower)."
    ) in page
    assert "## Minimal pairs word by word" in page
    assert "| ELECTRA, generator 1/2 | 80.0 ± 0.0 | - |" in page
    assert "score --by=both" in page


def test_a_measure_that_some_seeds_lack_is_compared_within_those_that_have_it(tmp_path):
    arms = ("bert", "bert_x3", "electra", "electra_x3")
    found = write(tmp_path, dict.fromkeys(arms, [0.1, 0.2, 0.3]))
    scored = {"bert": [0.1, 0.5, None], "electra": [None, 0.3, 0.9]}
    for (kind, budget, seed), run in found.runs.items():
        value = 0.7 if budget == 3 else scored[kind][seed]
        run["measures"] |= {} if value is None else {"pair_accuracy_in_turn": value}
    apart = found.apart("electra", 1, "pair_accuracy_in_turn")
    assert apart.amount == pytest.approx(-0.2) and apart.error is None
    growth = found.growth("electra", "pair_accuracy_in_turn")
    assert growth.amount == pytest.approx(0.2)


def test_a_variant_that_another_one_changes_has_one_row(tmp_path):
    scores = {name: [0.5, 0.6] for name in ("bert_half", "electra_half", "electra_demo_half")}
    page = page_of(write(tmp_path, scores | {"selection_demo_half": [0.7, 0.8]}))
    variants = page.split("## Variants at 1 x")[1].split("less what it changes")[0]
    assert variants.count("| ELECTRA, corruption of the demo, half the rate |") == 1
    assert "| corruption of the demo and selection, half the rate | 75.0" in variants


def test_measures_are_told_together_or_by_name(tmp_path):
    found = write(tmp_path, {"bert": [0.5, 0.51], "electra": [0.7, 0.71]})
    for (kind, *_), run in found.runs.items():
        run["measures"]["stsb"] = 0.5 if kind == "bert" else 0.4
    said = "(lower in STS-B by fine-tuning; higher in chunk tags by a probe)"
    assert said in crossing_page.answer(found, "electra", "bert")
    found.runs["electra", 1, 0]["measures"]["stsb"] = 0.6
    found.runs["electra", 1, 1]["measures"]["stsb"] = 0.6
    assert "(all higher)" in crossing_page.answer(found, "electra", "bert")


def test_another_kind_of_electra_has_a_sentence_of_its_own(tmp_path):
    found = write(tmp_path, CROSSES | {"one_trunk": [0.71, 0.69, 0.70]})
    page, said = page_of(found), "- **ELECTRA, one trunk for both**, less BERT (MLM)"
    assert f"{said}, in the mean of all measures: +10.0 ± 1.0, **higher** at 1 x (higher in" in page
    assert page.index("- **ELECTRA, generator 1/2**") < page.index(said)


def test_a_variant_is_held_against_electra_in_a_table_of_its_own(tmp_path):
    found = write(tmp_path, CROSSES | {"electra_whole": [0.39, 0.40, 0.41]})
    assert found.curves == ["bert", "electra"] and found.variants == ["electra_whole"]
    page = page_of(found)
    assert "## Variants at 1 x" in page and "Variants at 3 x" not in page
    assert "| generator 1/1 | 40.0 ± 0.6 | 40.0 ± 0.6 |" in page
    assert "| generator 1/1 | -10.0 ± 1.0, **lower** | -10.0 ± 1.0, **lower** |" in page
    assert "less ELECTRA, generator 1/2, in the mean of all measures: -10.0 ± 1.0" in page
    crossing_picture.draw(found)


def test_an_arm_may_be_held_against_bert_and_against_what_it_changes(tmp_path):
    scores = {"bert": [0.5, 0.5], "electra": [0.4, 0.4], "bert_half": [0.6, 0.6]}
    scores |= {"electra_half": [0.5, 0.5], "electra_demo_half": [0.7, 0.7]}
    scores |= {"electra_demo_half_x3": [0.8]}  # where there is nothing that it changes
    found = write(tmp_path, scores)
    page, said = page_of(found), "- **ELECTRA, corruption of the demo, half the rate**, less"
    assert f"{said} BERT (MLM), half the rate, in the mean of all measures: +10.0" in page
    assert f"{said} ELECTRA, generator 1/2, half the rate, in the mean of all measures: +20" in page
    assert "## Variants at 1 x" in page and "## Variants at 3 x" not in page
    table = page[page.index("less what it changes") :]
    assert "| ELECTRA, corruption of the demo, half the rate | +20.0 ± 0.0" in table
    crossing_picture.draw(found)


def test_in_bold_is_what_luck_hardly_makes(tmp_path):
    """Two seeds: 30 and 70 points apart are 2.5 errors, which luck makes in one case of four."""
    found = write(tmp_path, {"bert": [0.1, 0.2], "electra": [0.4, 0.9]})
    said = crossing_page.answer(found, "electra", "bert")
    assert "+50.0 ± 20.0, higher at 1 x (higher in" in said


def test_arms_below_random_weights_are_named(tmp_path):
    """Those have 30 points."""
    found = write(tmp_path, CROSSES | {"one_trunk": [0.29, 0.30, 0.28], "bert_half": [0.1] * 3})
    said = "in the same way: BERT (MLM), half the rate, in chunk tags by a probe at 1 x."
    assert said in page_of(found)  # 29 ± 0.6 is not two errors below


def test_the_auc_of_each_discriminator_is_a_row(tmp_path):
    found = write(tmp_path, {"bert": [0.5], "electra": [0.7, 0.8], "electra_x3": [0.7]})
    for (kind, _, seed), run in found.runs.items():
        if kind == "electra":
            run["measures"]["disc_auc"] = 0.6 + seed / 50
    assert "| ELECTRA, generator 1/2 | 0.610 ± 0.010 | 0.600 |" in page_of(found)


def test_a_distance_is_of_the_seeds_that_both_have(tmp_path):
    found = write(tmp_path, {"bert": [0.5, 0.6], "electra": [0.7, 0.8, 0.1], "two_stage_x3": [0.5]})
    apart = found.apart("electra", 1, "chunk_accuracy")
    assert apart.amount == pytest.approx(0.2)  # 0.75 less 0.55, without the third seed
    assert found.mean("electra", 1, "chunk_accuracy").count == 3
    assert found.apart("two_stage", 3, "chunk_accuracy") is None  # BERT has no run there
    assert found.budgets == [1, 3] and found.kinds == ["bert", "electra", "two_stage"]
    crossing_picture.draw(found)


def test_an_arm_at_half_the_rate_is_compared_with_bert_at_half_the_rate(tmp_path):
    scores = {"bert": [0.5, 0.6], "bert_half": [0.7, 0.8], "electra_half": [0.8, 0.9]}
    found = write(tmp_path, scores)
    assert found.apart("electra_half", 1, "chunk_accuracy").amount == pytest.approx(0.1)
    assert found.apart("bert_half", 1, "chunk_accuracy").amount == pytest.approx(0.2)  # of BERT's
    said = "- **ELECTRA, generator 1/2, half the rate**, less BERT (MLM), half the rate, in"
    assert said in page_of(found)


def test_an_arm_of_one_seed_is_in_the_tables_only(tmp_path):
    found = write(tmp_path, CROSSES | {"one_trunk": [0.9]})
    page = page_of(found)
    assert "| ELECTRA, one trunk for both | 90.0 | - | - |" in page
    assert "**ELECTRA, one trunk for both**" not in page


def test_arms_that_read_the_text_in_other_pieces_are_named(tmp_path):
    found = write(tmp_path, {"bert": [0.5], "bert_half": [0.7]})
    page = page_of(found)
    assert "Another vocabulary" not in page
    found.runs["bert_half", 1, 0]["text"]["tokens"] += 1
    assert "in another order, have: BERT (MLM), half the rate." in page_of(found)
    found.runs["bert_half", 3, 0] = found.runs["bert", 1, 0]
    assert "have: BERT (MLM), half the rate at 1 x. Some" in page_of(found)


def test_growth_is_taken_within_each_seed(tmp_path):
    # ELECTRA less BERT: 0.1 and 0.0 at 1 x, 0.3 and 0.4 at 10 x. So 0.2 and 0.4 more.
    scores = {"bert": [0.5, 0.6], "electra": [0.6, 0.6, 0.1]}
    scores |= {"bert_x10": [0.5, 0.5], "electra_x10": [0.8, 0.9], "two_stage": [0.5]}
    found = write(tmp_path, scores)
    grown = found.growth("electra", "chunk_accuracy")
    assert grown.amount == pytest.approx(0.3) and grown.error == pytest.approx(0.1)
    assert found.growth("two_stage", "chunk_accuracy") is None  # it has no run at 10 x


def test_growth_ends_where_both_have_runs(tmp_path):
    scores = {"bert": [0.5], "bert_x3": [0.6], "bert_x10": [0.7], "electra": [0.4]}
    found = write(tmp_path, scores | {"electra_x3": [0.55]})
    assert found.budgets == [1, 3, 10] and found.ends("electra", "bert") == (1, 3)
    assert found.growth("electra", "chunk_accuracy").amount == pytest.approx(0.05)
    page = page_of(found)
    assert "| less BERT at the same rate | 1 x | 3 x | 10 x | growth, first to last |" in page


def test_page_and_picture_are_written(tmp_path):
    crossing_page.write(write(tmp_path, CROSSES), str(tmp_path / "docs" / "page.md"))
    assert (tmp_path / "docs" / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "(page.png)" in (tmp_path / "docs" / "page.md").read_text()


def test_nothing_finished_is_said_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no experiment.json"):
        crossing_runs.collect(str(tmp_path), KINDS)
    with pytest.raises(SystemExit, match=f"no run of {', '.join(KINDS)} is finished yet"):
        write(tmp_path, {})


def test_an_arm_costs_its_budget_whatever_its_steps_cost():
    arms = {
        name: arm for name, arm in crossing.ARMS.items() if name.partition("_x")[0] in KINDS
    } | {name: crossing.ARMS[name] for name in ("first_stage", "first_stage_x3", "first_stage_x10")}
    found = equal_compute.equal_compute(arms, "builtin", "train:sentencepiece:2048", 800)
    assert found["electra"]["steps"] == 800 and found["electra_x10"]["steps"] == 8000
    one = 800 * found["electra"]["flops_per_row"]
    for kind in KINDS:
        for budget in crossing_runs.BUDGETS:
            name = crossing_runs.arm_of(kind, budget)
            cost = found[name]["steps"] * found[name]["flops_per_row"]
            if kind == "two_stage":
                first = found[crossing_runs.arm_of("first_stage", budget)]
                assert first["steps"] == found[name]["steps"]
                cost += first["steps"] * first["flops_per_row"]
            assert cost / one == pytest.approx(budget, rel=2e-3), name


def test_all_arms_have_the_same_optimizer_and_a_title():
    for kind, arm in crossing.KINDS.items():
        optimizer, slower = arm.tree().optimizer, 4 if kind == "adversarial" else 1
        rate = 0.01 if kind.endswith("_half") else 0.02 / slower
        assert (optimizer.name, optimizer.muon_learning_rate) == ("muon", rate), kind
        assert arm.learning_rate == 4e-3 / slower, kind
        assert optimizer.weight_decay == 0.1, "with less, kernels grow with the budget"
    assert set(crossing.KINDS) == {*crossing_runs.TITLES, "first_stage", "first_stage_half"}


@pytest.mark.parametrize(
    "kind, rate, masked, layers, rivals",
    [
        ("electra_half", 0.15, 0.85, 2, ["bert_half"]),
        ("electra_30_half", 0.3, 0.85, 2, ["electra_half"]),
        ("electra_demo_half", 0.3, 1.0, 1, ["bert_half", "electra_half"]),
        ("deberta_v3_half", 0.15, 1.0, 1, ["electra_half"]),
        ("one_trunk_30_half", 0.3, 0.85, 2, ["one_trunk_half"]),
        ("bert_30_half", 0.3, 0.8, 2, ["bert_half"]),
    ],
)
def test_corruption_and_rivals_of_an_arm(kind, rate, masked, layers, rivals):
    tree = equal_compute.config(crossing.KINDS[kind], kind, 0, 8, "builtin", "train:x:1", "")
    objective = tree.objective
    assert (objective.mask_rate, objective.mask_token_rate) == (rate, masked)
    assert tree.model.generator.layers == layers and crossing_runs.rivals(kind) == rivals
    assert tree.model.generator.width == (64 if kind.startswith(("electra", "bert")) else 128)
