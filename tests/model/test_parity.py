# SPDX-License-Identifier: Apache-2.0
"""The same networks in transformers, live: outputs of several shapes and one whole gradient."""

import jax
import numpy as np
import pytest

from electra_jax.core import streams
from support import hugging_face, odd

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("shape", hugging_face.SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_outputs_agree(shape, seed):
    config = hugging_face.SHAPES[shape]
    params, batch = odd.weights(config, seed), odd.batch(hugging_face.IDS_BL, hugging_face.MARKS_BL)
    theirs = hugging_face.outputs(config, params, batch)
    ours = odd.forward(config)(params, batch)
    for mine, other in zip((ours[0][..., : config.vocab_size], *ours[1:]), theirs):
        np.testing.assert_allclose(mine, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", hugging_face.SHAPES)
def test_the_whole_gradient_agrees(shape):
    """Both losses are theirs too; the networks share one module of embeddings."""
    import torch

    config = hugging_face.SHAPES[shape]
    params, objective = odd.weights(config), odd.objective(networks=config)
    batch = odd.batch(hugging_face.IDS_BL, hugging_face.MARKS_BL)
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=True)
    knobs = objective.knobs(0)
    denominators = objective.denominators(batch, knobs)

    @odd.jit
    def gradients(params):
        def total(params):
            sums, _ = objective.loss(params, batch, keys, knobs)
            return objective.total({term: sums[term] / denominators[term] for term in sums})

        return jax.value_and_grad(total)(params), objective.intermediates(
            params, batch, keys, knobs
        )

    (loss, ours), played = jax.device_get(gradients(params))
    generator, discriminator = hugging_face.models(config, params)
    discriminator.electra.embeddings = generator.electra.embeddings
    used_BL = np.zeros_like(hugging_face.IDS_BL, bool)
    for row, slots_N in enumerate(played.chosen.slots_BN):
        used_BL[row, slots_N[played.chosen.used_BN[row]]] = True
    arguments = hugging_face.inputs(batch)

    def judge(model, ids_BL, labels_BL):
        arguments["input_ids"] = torch.tensor(np.asarray(ids_BL, np.int64))
        return model(**arguments, labels=torch.tensor(np.asarray(labels_BL, np.int64))).loss

    gen_labels_BL = np.where(used_BL, hugging_face.IDS_BL, -100)
    total = objective.gen_weight * judge(generator, played.masked_BL, gen_labels_BL)
    total += objective.disc_weight * judge(discriminator, played.corrupted_BL, played.replaced_BL)
    total.backward()
    assert loss == pytest.approx(total.item(), rel=1e-6)
    theirs = hugging_face.gradients(config, params, (generator, discriminator))
    norm = np.sqrt(sum((x**2).sum() for x in theirs.values()))
    for path, mine in odd.flat(ours, np.float64).items():
        scale = max(abs(theirs[path]).max(), 1e-3 * norm)
        assert abs(mine - theirs[path]).max() <= 1e-5 * scale, path
