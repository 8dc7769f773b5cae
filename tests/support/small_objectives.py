# SPDX-License-Identifier: Apache-2.0
"""Every objective over the smallest networks that it can have, with weights and keys."""

import dataclasses

import jax
import numpy as np

from electra_jax.core import streams
from electra_jax.objectives import (
    adversarial_generator,
    all_tokens_mlm,
    corrective_lm,
    decoupled_detection,
    electric,
    fixed_generator,
    frozen_generator,
    masked_lm,
    masked_token_detection,
    multi_word_selection,
    replace_mlm,
    replaced_token_detection,
)
from support import odd

SHALLOW = dataclasses.replace(
    odd.NETWORKS,
    generator=dataclasses.replace(odd.NETWORKS.generator, layers=1),
    discriminator=dataclasses.replace(odd.NETWORKS.discriminator, layers=1),
)
KEY = jax.random.key(11)
UNIGRAM_V = np.where(np.arange(128) < 37, np.arange(128), 0)

# kind -> (settings, how it shares, the subtrees that learn)
KINDS = {
    "replaced_token_detection": (
        replaced_token_detection.ReplacedTokenDetection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "masked_token_detection": (
        masked_token_detection.MaskedTokenDetection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "multi_word_selection": (
        multi_word_selection.MultiWordSelection, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "corrective_lm": (
        corrective_lm.CorrectiveLM, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "decoupled_detection": (
        decoupled_detection.DecoupledDetection, {}, "gdes",
        ("embeddings", "generator", "discriminator"),
    ),
    "adversarial_generator": (
        adversarial_generator.AdversarialGenerator, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
    "frozen_generator": (
        frozen_generator.FrozenGenerator, {}, "none", ("embeddings", "discriminator"),
    ),
    "fixed_generator": (
        fixed_generator.FixedGenerator, {"weights_V": UNIGRAM_V}, "embeddings",
        ("embeddings", "discriminator"),
    ),
    "electric": (
        electric.Electric, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "masked_lm": (
        masked_lm.MaskedLM, {"random_token_rate": 0.2}, "embeddings",
        ("embeddings", "discriminator"),
    ),
    "replace_mlm": (
        replace_mlm.ReplaceMLM, {}, "embeddings", ("embeddings", "generator", "discriminator"),
    ),
    "all_tokens_mlm": (
        all_tokens_mlm.AllTokensMLM, {}, "embeddings",
        ("embeddings", "generator", "discriminator"),
    ),
}  # fmt: skip


def make(name, **changes):
    """The objective of this kind, in `KINDS`, but for these changes."""
    kind, settings, sharing, _ = KINDS[name]
    config = dataclasses.replace(SHALLOW, sharing=sharing)
    return odd.objective(kind, **{"networks": config} | settings | changes)


def weights(objective):
    """Random parameters of an objective."""
    return odd.random_like(jax.eval_shape(objective.init, KEY))


def keys(batch, step=0):
    """The keys of a batch's rows in one step, those of dropout included."""
    return streams.keys(KEY, step, batch.row_B, dropout=True)
