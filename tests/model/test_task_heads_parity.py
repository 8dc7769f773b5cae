# SPDX-License-Identifier: Apache-2.0
"""Heads of fine-tuning in Hugging Face's transformers, live: equal weights give equal logits."""

import jax
import numpy as np
import pytest

from electra_jax.model import networks, task_heads
from support import hugging_face, odd

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CASES = {  # kind of our head -> their model, {our leaf: their module}
    "two_layer": (
        "ElectraForSequenceClassification",
        {"dense": "classifier.dense", "output": "classifier.out_proj"},
    ),
    "token": ("ElectraForTokenClassification", {"output": "classifier"}),
    "span_plain": ("ElectraForQuestionAnswering", {"output": "qa_outputs"}),
}


@pytest.mark.parametrize("shape", hugging_face.SHAPES)
@pytest.mark.parametrize("kind", CASES)
def test_logits_agree(kind, shape):
    import torch

    config = hugging_face.SHAPES[shape]
    name, modules = CASES[kind]
    head = task_heads.HeadConfig(kind, config.discriminator.width, outputs=3, dropout=0.0)
    params = odd.weights(config)
    own = odd.random_like(jax.eval_shape(lambda: task_heads.init(head, jax.random.key(0))), 5)
    batch = odd.batch(hugging_face.IDS_BL, hugging_face.MARKS_BL)
    model = hugging_face.fine_tuned(config, params, name, own, modules)
    with torch.no_grad():
        said = model(**hugging_face.inputs(batch))

    @odd.jit
    def ours(params, own):
        hidden_BLD = networks.hidden(config, networks.main_trunk(config, params), batch)
        if kind == "span_plain":
            everywhere_BL = np.ones(hugging_face.IDS_BL.shape, bool)
            return task_heads.span_plain(own, hidden_BLD, everywhere_BL)
        return (task_heads.SCORES[kind](head, own, hidden_BLD, batch, None),)

    found = ours(params, own)
    if kind == "span_plain":
        theirs = said.start_logits.numpy(), said.end_logits.numpy()
    else:
        theirs = (said.logits.numpy(),)
    for mine, other in zip(found, theirs, strict=True):
        assert mine.shape == other.shape
        # Padded queries are theirs to differ in; no loss looks at them.
        real = np.asarray(batch.real_BL) if mine.shape[:2] == batch.real_BL.shape else ...
        np.testing.assert_allclose(mine[real], other[real], atol=1e-5, rtol=0)
