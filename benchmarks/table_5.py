# SPDX-License-Identifier: Apache-2.0
"""The paper's comparison at a size that two cores carry: table 5, and the generator's width.

    python benchmarks/table_5.py --source='text:wiki/*.txt' --downstream=FOLDER
    python benchmarks/table_5.py --report

`equal_compute.py` says what all arms have in common and how a comparison is continued; the page is
written by `table_5_page.py`.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))

if __name__ == "__main__":
    from electra_jax.host import huge_pages

    huge_pages.use_huge_pages()

from benchmarks import equal_compute, table_5_page
from electra_jax.configs import all_tokens_mlm, electra_15, masked_lm, replace_mlm, tiny_paper

Arm, WIDTH = equal_compute.Arm, equal_compute.WIDTH
ARMS = {
    "bert": Arm(lambda: masked_lm.get_config("tiny")),
    "replace_mlm": Arm(lambda: replace_mlm.get_config("tiny")),
    "all_tokens_mlm": Arm(lambda: all_tokens_mlm.get_config("tiny")),
    "electra_15": Arm(lambda: electra_15.get_config("tiny")),
    "electra": Arm(tiny_paper.get_config),
    "electra_quarter": Arm(tiny_paper.get_config, generator=WIDTH // 4),
    "electra_whole": Arm(tiny_paper.get_config, generator=WIDTH),
}
EXPERIMENT = equal_compute.Experiment("table_5", ARMS, table_5_page.write, table_5_page.TITLES)


if __name__ == "__main__":
    equal_compute.main(EXPERIMENT, __doc__.splitlines()[0])
