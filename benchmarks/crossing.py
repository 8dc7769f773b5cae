# SPDX-License-Identifier: Apache-2.0
"""Does ELECTRA pass BERT when both get more compute? Arms of table 5 at 1, 3 and 10 times as much.

    python benchmarks/crossing.py --source='text:wiki/*.txt.xz' --downstream=FOLDER --steps=800
    python benchmarks/crossing.py --report

Like figures 2 to 4 of the paper: scores against training FLOPs. A run at three times the compute is
a run of its own, whose rate falls over its own steps. All arms of the smallest budget come first,
all their seeds, then those of the next. All have Muon, with which the encoder of two cores learns
sooner than with AdamW (docs/LOG.md).

`equal_compute.py` says what else all arms have in common and how a comparison is continued; the
page is written by `crossing_page.py`. --arms names kinds, each of which is trained at all budgets.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

import ml_collections

from benchmarks import crossing_page, crossing_runs, equal_compute, kept_runs, section_3
from benchmarks.crossing_runs import BUDGETS, arm_of
from electra_jax.configs import (
    adversarial,
    all_tokens_mlm,
    deberta_v3,
    electra_15,
    masked_lm,
    replace_mlm,
    tiny,
    tiny_paper,
    two_stage,
)

Arm, WIDTH = equal_compute.Arm, equal_compute.WIDTH


def with_muon(
    get_config: Callable[..., ml_collections.ConfigDict], *size: str, rate: float = 0.02
) -> Callable:
    """The same configuration with Muon for the layers' matrices, in bfloat16."""

    def changed():
        tree = get_config(*size)
        tree.model.dtype = "bfloat16"  # a step takes two thirds of float32's time (docs/LOG.md)
        # With 0.01 kernels grow with the steps, and probes fall while losses do (docs/LOG.md).
        tree.optimizer.update(name="muon", muon_learning_rate=rate, weight_decay=0.1)
        return tree

    return changed


def shallow_generator() -> ml_collections.ConfigDict:
    """tiny_paper with one layer in the generator."""
    tree = tiny_paper.get_config()
    tree.model.generator.layers = 1
    return tree


def of_three_tenths(get_config: Callable[..., ml_collections.ConfigDict], *size: str) -> Callable:
    """The same configuration with 30 % of the tokens chosen instead of 15 %."""

    def changed():
        tree = get_config(*size)
        tree.objective.mask_rate = 0.3
        return tree

    return changed


def with_objective(get_config: Callable[[], ml_collections.ConfigDict], name: str) -> Callable:
    """The same configuration with another objective."""

    def changed():
        tree = get_config()
        tree.objective.name = name
        return tree

    return changed


def corrupted_as_the_demo() -> ml_collections.ConfigDict:
    """tiny_paper with the corruption of configs/tiny.py: many slots, all masked, a weak generator.

    The generator's width is the arm's.
    """
    tree = tiny_paper.get_config()
    tiny.corruption(tree)
    return tree


# TEAMS: the discriminator also finds the original among a few tokens. COCO-LM: it also corrects.
SELECTION, SELECTION_DEMO, CORRECTION, CORRECTION_DEMO = (
    with_objective(get_config, name)
    for name in ("multi_word_selection", "corrective_lm")
    for get_config in (tiny_paper.get_config, corrupted_as_the_demo)
)
ELECTRA, ELECTRA_HALF = (with_muon(tiny_paper.get_config, rate=rate) for rate in (0.02, 0.01))
KINDS = {
    "bert": Arm(with_muon(masked_lm.get_config, "tiny")),
    "electra": Arm(ELECTRA),
    "electra_eighth": Arm(ELECTRA, generator=WIDTH // 8),
    "electra_quarter": Arm(ELECTRA, generator=WIDTH // 4),
    "electra_whole": Arm(ELECTRA, generator=WIDTH),
    "electra_shallow": Arm(with_muon(shallow_generator)),
    "one_trunk": Arm(with_muon(section_3.shared, "all"), generator=WIDTH),
    "first_stage": Arm(with_muon(two_stage.get_config, "tiny,generator"), generator=WIDTH),
    "two_stage": Arm(
        with_muon(two_stage.get_config, "tiny,discriminator"), generator=WIDTH, after="first_stage"
    ),
    # At half of Muon's rate, with which a discriminator of few steps learns sooner.
    "bert_half": Arm(with_muon(masked_lm.get_config, "tiny", rate=0.01)),
    "electra_half": Arm(ELECTRA_HALF),
    "electra_eighth_half": Arm(ELECTRA_HALF, generator=WIDTH // 8),
    "electra_quarter_half": Arm(ELECTRA_HALF, generator=WIDTH // 4),
    "electra_whole_half": Arm(ELECTRA_HALF, generator=WIDTH),
    "electra_shallow_half": Arm(with_muon(shallow_generator, rate=0.01)),
    "one_trunk_half": Arm(with_muon(section_3.shared, "all", rate=0.01), generator=WIDTH),
    "first_stage_half": Arm(
        with_muon(two_stage.get_config, "tiny,generator", rate=0.01), generator=WIDTH
    ),
    "two_stage_half": Arm(
        with_muon(two_stage.get_config, "tiny,discriminator", rate=0.01),
        generator=WIDTH,
        after="first_stage_half",
    ),
    # What later work has changed of both methods.
    "bert_30_half": Arm(with_muon(of_three_tenths(masked_lm.get_config, "tiny"), rate=0.01)),
    "electra_30_half": Arm(with_muon(of_three_tenths(tiny_paper.get_config), rate=0.01)),
    "electra_demo_half": Arm(with_muon(corrupted_as_the_demo, rate=0.01)),
    "selection_half": Arm(with_muon(SELECTION, rate=0.01)),
    "selection_demo_half": Arm(with_muon(SELECTION_DEMO, rate=0.01)),
    "correction_half": Arm(with_muon(CORRECTION, rate=0.01)),
    "correction_demo_half": Arm(with_muon(CORRECTION_DEMO, rate=0.01)),
    "deberta_v3_half": Arm(with_muon(deberta_v3.get_config, "tiny", rate=0.01), generator=WIDTH),
    "one_trunk_30_half": Arm(
        with_muon(of_three_tenths(section_3.shared, "all"), rate=0.01), generator=WIDTH
    ),
    # At the demo's rate its generator collapses (docs/LOG.md).
    "adversarial": Arm(with_muon(adversarial.get_config, "tiny", rate=0.005), learning_rate=1e-3),
    "electra_15": Arm(with_muon(electra_15.get_config, "tiny")),
    "replace_mlm": Arm(with_muon(replace_mlm.get_config, "tiny")),
    "all_tokens_mlm": Arm(with_muon(all_tokens_mlm.get_config, "tiny")),
}
ARMS = {
    arm_of(kind, budget): dataclasses.replace(
        arm, share=float(budget), after=arm.after and arm_of(arm.after, budget)
    )
    for budget in BUDGETS
    for kind, arm in KINDS.items()
}


def main() -> None:
    """Trains what is missing, and writes the page of what there is."""
    summary = __doc__.splitlines()[0]
    given = equal_compute.arguments("crossing", KINDS, summary, tasks="chunking,stsb")
    asked = equal_compute.chosen(KINDS, given.arms)
    kept_runs.unpack(given.page, given.workdir)
    if not given.report:
        for budget in BUDGETS:
            equal_compute.train(ARMS, given, names(asked, budget))

    found = crossing_runs.collect(given.workdir, asked)
    crossing_page.write(found, given.page)
    print(f"{given.page}: {len(found.runs)} runs")


def names(kinds: Sequence[str], budget: int) -> list[str]:
    """The arms of these kinds at one budget."""
    return [arm_of(kind, budget) for kind in kinds]


if __name__ == "__main__":
    main()
