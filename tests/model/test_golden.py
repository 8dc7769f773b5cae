# SPDX-License-Identifier: Apache-2.0
"""The networks compute what Hugging Face's do; their answers are on file (`make_golden.py`)."""

import numpy as np
import pytest

from electra_jax.core import trees
from support import corpus, hugging_face, odd

GOLDEN = corpus.ROOT / "tests" / "golden"


@pytest.fixture(scope="module", params=hugging_face.SHAPES)
def both(request):
    """(theirs, ours): gen_logits_BLV, hidden_BLD and disc_logits_BL by name."""
    theirs = dict(np.load(GOLDEN / f"hf_{request.param}.npz"))
    leaves = {k.removeprefix("params/"): x for k, x in theirs.items() if k.startswith("params/")}
    config = hugging_face.SHAPES[request.param]
    batch = odd.batch(theirs["ids_BL"], theirs["marks_BL"])
    ours = odd.forward(config)(trees.nested(leaves), batch)
    ours = (ours[0][..., : config.vocab_size], *ours[1:])
    return theirs, dict(zip(("gen_logits_BLV", "hidden_BLD", "disc_logits_BL"), ours))


@pytest.mark.parametrize("name", ["gen_logits_BLV", "hidden_BLD", "disc_logits_BL"])
def test_the_networks_agree_with_hugging_face(both, name):
    """At every token, padding included: a padded query sees all real tokens in both."""
    theirs, ours = both
    assert abs(theirs[name]).max() > 0.5  # there is something to compare
    np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, rtol=0)
