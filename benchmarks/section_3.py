# SPDX-License-Identifier: Apache-2.0
"""Section 3 of the paper at a size of two cores: shared weights, ways to train, less of all.

    python benchmarks/section_3.py --source='text:wiki/*.txt' --downstream=FOLDER
    python benchmarks/section_3.py --report

Section 3.2 compares weights that networks of one size share, and two other ways to train the
generator: by two stages and against the discriminator. Section 3.3 trains for a share of the
compute, and section 3.5 smaller networks. `equal_compute.py` says what all arms have in common and
how a comparison is continued; the page is written by `section_3_page.py`.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

from benchmarks import equal_compute, section_3_page
from electra_jax.configs import adversarial, masked_lm, tiny_paper, two_stage, unigram_generator

Arm, WIDTH = equal_compute.Arm, equal_compute.WIDTH


def shared(sharing):
    """tiny_paper with other weights shared between generator and discriminator."""
    tree = tiny_paper.get_config()
    tree.model.sharing = sharing
    return tree


def second_stage_from_fresh_weights():
    """The second of two stages, whose discriminator does not begin as the generator."""
    tree = two_stage.get_config("tiny,discriminator")
    tree.init["from"] = ""
    return tree


ARMS = {
    "electra": Arm(tiny_paper.get_config),
    "adversarial": Arm(lambda: adversarial.get_config("tiny")),
    "first_stage": Arm(lambda: two_stage.get_config("tiny,generator"), generator=WIDTH),
    "two_stage": Arm(
        lambda: two_stage.get_config("tiny,discriminator"), generator=WIDTH, after="first_stage"
    ),
    "two_stage_fresh": Arm(second_stage_from_fresh_weights, generator=WIDTH, after="first_stage"),
    "bert": Arm(lambda: masked_lm.get_config("tiny")),
    "unigram": Arm(lambda: unigram_generator.get_config("tiny")),
    "untied": Arm(lambda: shared("none"), generator=WIDTH),
    "tied_embeddings": Arm(tiny_paper.get_config, generator=WIDTH),
    "tied": Arm(lambda: shared("all"), generator=WIDTH),
    "half": Arm(tiny_paper.get_config, share=1 / 2),
    "quarter": Arm(tiny_paper.get_config, share=1 / 4),
    "eighth": Arm(tiny_paper.get_config, share=1 / 8),
    "sixteenth": Arm(tiny_paper.get_config, share=1 / 16),
    # Smaller networks: ELECTRA with as many steps, and BERT with the FLOPs of that.
    "electra_64": Arm(tiny_paper.get_config, width=64, generator=32, budget="electra_64"),
    "bert_64": Arm(lambda: masked_lm.get_config("tiny"), width=64, budget="electra_64"),
    "electra_32": Arm(tiny_paper.get_config, width=32, generator=16, budget="electra_32"),
    "bert_32": Arm(lambda: masked_lm.get_config("tiny"), width=32, budget="electra_32"),
}
EXPERIMENT = equal_compute.Experiment(
    "section_3", ARMS, section_3_page.write, section_3_page.TITLES
)


if __name__ == "__main__":
    equal_compute.main(EXPERIMENT, __doc__.splitlines()[0])
