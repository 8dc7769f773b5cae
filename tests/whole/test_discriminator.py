# SPDX-License-Identifier: Apache-2.0
"""What limits the discriminator: the arms differ in what they say, made-up AUCs become words."""

import json
import pathlib

import pytest

from benchmarks import discriminator, discriminator_page, discriminator_questions
from electra_jax import config as config_lib

ABOUT = {
    "source": "text:here/*.txt", "corpus": "some text", "steps": 1000, "rows": 64, "length": 64,
    "generators": discriminator.GENERATORS,
}  # fmt: skip


def write(workdir, aucs):
    """Runs as they are left behind: {arm: AUC of seed 0, 1, ...} on rows of the unmet generator."""
    (workdir / "experiment.json").write_text(json.dumps(ABOUT))
    for arm, values in aucs.items():
        for seed, auc in enumerate(values):
            one = {"seed": seed, "arm": arm, "text": {"characters": 2e6, "tokens": 5e5}}
            one["auc"] = dict.fromkeys(discriminator_questions.CORRUPTED_BY, 0.5) | {"unmet": auc}
            one["identity_auc"] = dict.fromkeys(discriminator_questions.CORRUPTED_BY, 0.525)
            if arm in ABOUT["generators"]:
                one["generator"] = {"gen_masked_loss": 5.0, "unigram_entropy": 6.25}
            folder = workdir / f"seed{seed}" / arm
            folder.mkdir(parents=True)
            (folder / "finished.json").write_text(json.dumps(one))
    return discriminator_page.collect(str(workdir))


def told(found):
    return discriminator_page.pages.text(discriminator_page.blocks(found, "picture.png"))


def test_an_arm_is_compared_within_each_seed(tmp_path):
    # Seeds differ by 0.1, the arms within each by 0.02 and 0.04: 0.03 with an error of 0.01.
    found = write(tmp_path, {"reference": [0.6, 0.7], "rate_quarter": [0.62, 0.74]})
    apart = found.apart("rate_quarter")
    assert apart.amount == pytest.approx(0.03) and apart.error == pytest.approx(0.01)
    page = told(found)
    assert "| 0.680 ± 0.060 | +0.030 ± 0.010, higher |" in page
    page = " ".join(page.split())
    said = (
        "its own training change, at the full rate? A quarter of the rate +0.030 ± 0.010, higher."
    )
    assert said in page
    assert "Which frozen generator" not in page  # no arm of it is finished
    assert "1.25 nats below the unigram entropy" in page
    assert (
        "- 1 of the 1 distances of several seeds are two standard errors or more, and 0 of" in page
    )
    assert "Luck alone passes two errors in 30% of all cases with 2 seeds" in page
    assert "gives an AUC of 0.525 ± 0.000 (the middle one)" in page
    assert "## Width" not in page  # no arm of it is finished


def test_an_arm_is_compared_with_the_one_that_it_differs_from_in_one_thing(tmp_path):
    """`shared_50` has another weight than `shared_5`; from the reference it differs in three."""
    one_seed = {"reference": [0.6], "along": [0.5], "shared_5": [0.58], "shared_50": [0.55]}
    one_seed |= {"rate_half": [0.625], "half_layers_4": [0.65]}
    page = told(write(tmp_path, one_seed))
    assert "| 4 | 0.500 | 0.500 | 0.500 | 0.500 | 0.650 | +0.025, one seed |" in page
    assert "which suits so few steps better? Twice the layers +0.025, one seed" in page
    assert "| B, weight 50 | 0.500 | 0.500 | 0.500 | 0.500 | 0.550 | -0.030, one seed |" in page
    assert (
        "| A: learns along, nothing shared | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 | -0.100" in page
    )


def test_a_seed_without_the_reference_is_left_out(tmp_path):
    found = write(tmp_path, {"reference": [0.6], "layers_4": [0.62, 0.9]})
    assert found.seeds == [0] and found.auc("layers_4").value == 0.62
    assert "One seed, so no error is known" in told(found)
    with pytest.raises(SystemExit, match="no experiment.json"):
        discriminator_page.collect(str(tmp_path / "nothing"))


def test_a_seed_that_was_stopped_early_is_shown_as_far_as_it_is(tmp_path):
    found = write(tmp_path, {"reference": [0.6, 0.61], "strong": [0.58], "heated_strong": [0.55]})
    page = told(found)
    assert "| the strong one | 0.500 | 0.500 | 0.500 | 0.500 | 0.580 | -0.020, one seed |" in page
    assert "| the strong one, from 2 to 1 | 0.500 | 0.500 | 0.500 | 0.500 | 0.550 | -0.030" in page
    (tmp_path / "seed0" / "heated_strong" / "finished.json").unlink()
    found = discriminator_page.collect(str(tmp_path))
    assert "A temperature that falls" not in told(found)  # nothing to compare


def test_the_page_has_its_picture(tmp_path):
    found = write(
        tmp_path, {"reference": [0.6, 0.61], "rate_half": [0.62, 0.6], "rate_double": [0.5]}
    )
    discriminator_page.write(found, str(tmp_path / "docs" / "page.md"))
    assert (tmp_path / "docs" / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "(page.png)" in (tmp_path / "docs" / "page.md").read_text()


@pytest.mark.parametrize("name", discriminator.ARMS)
def test_an_arm_differs_from_the_reference_in_what_it_says(name):
    """And in nothing else, so that a distance has one cause."""
    folder = pathlib.Path("runs")
    reference, other = (
        config_lib.to_tree(config_lib.parse(discriminator.arm_config(arm, folder)))
        for arm in ("reference", name)
    )
    differing = {
        f"{section}.{field}"
        for section in ("data", "model", "objective", "optimizer", "init")
        for field in reference[section]
        if reference[section][field] != other[section][field]
    }
    arm = discriminator.ARMS[name]
    said = {path for path, value in arm.changes.items() if value != _at(reference, path)}
    assert differing == said | ({"init.generator_from"} if arm.generator != "reference" else set())


def test_every_arm_is_on_the_page_and_every_arm_of_the_page_is_trained():
    shown = {arm for question in discriminator_questions.QUESTIONS for arm in question.arms}
    assert shown == set(discriminator.ARMS)
    for question in discriminator_questions.QUESTIONS:
        assert set(question.values) <= set(question.arms)


def _at(tree, path):
    section, _, field = path.partition(".")
    return tree[section][field]
