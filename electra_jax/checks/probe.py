# SPDX-License-Identifier: Apache-2.0
"""The linear probe of check 19: how well hidden states predict the class of the next token.

    rows of training text -> hidden states -> a linear map, fitted on half of the rows
                          -> which answers are right on the other half -> paired differences

The classes are: 0 continues a word, 1 has no letter, 2 one of the most frequent words, 3 others.
"""

import math

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.checks import finished_runs
from electra_jax.core import batch as batch_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.model import networks
from electra_jax.objectives import scoring

ROWS = 512  # half to fit the probe, half to test it
FREQUENT = 50  # words in the class of frequent words


def correct_answers(run: finished_runs.FinishedRun, params: dict) -> list[np.ndarray]:
    """Fits a probe on half of the rows; returns for each other row where it was right, [tokens]."""
    ids, marks = run.training_rows(ROWS)
    vocabulary = run.trained.vocabulary

    @jax.jit
    def encode(params, ids, marks):
        row_B = jnp.arange(len(ids), dtype=jnp.uint32)
        batch = batch_lib.from_lanes(ids, marks, row_B, run.pad_id)
        return networks.discriminator_outputs(run.objective.networks, params, batch)[0]

    hidden_BLD = np.asarray(encode(params, ids.astype(np.int32), marks), np.float64)

    # A word is asked about if the token after it is a word as well; the class is that token's.
    class_V = _token_classes(vocabulary, run.trained.records.unigram()[0])
    word_BL = ~np.isin(ids, run.special_ids)
    asked_BL = word_BL & np.pad(word_BL[:, 1:], ((0, 0), (0, 1)))
    next_BL = class_V[np.roll(ids, -1, axis=1)]

    half = ROWS // 2
    x = hidden_BLD[:half][asked_BL[:half]]
    mean, spread = x.mean(0), x.std(0) + 1e-6

    def features(hidden):
        scaled = (hidden - mean) / spread
        return np.concatenate([scaled, np.ones((*scaled.shape[:-1], 1))], -1)

    # Ridge regression on one-hot classes has a closed form and no settings to tune.
    x, y = features(x), np.eye(4)[next_BL[:half][asked_BL[:half]]]
    kernel = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(x.shape[1]), x.T @ y)

    right_BL = scoring.highest(features(hidden_BLD[half:]) @ kernel) == next_BL[half:]
    return [right[asked] for right, asked in zip(right_BL, asked_BL[half:]) if asked.any()]


def mean_difference(one: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float]:
    """Returns the mean difference per token and its standard error, with rows as the unit."""
    differences = np.array([a.sum() - b.sum() for a, b in zip(one, other)], np.float64)
    tokens = np.array([len(a) for a in one])
    mean = differences.sum() / tokens.sum()
    rest = differences - mean * tokens
    return float(mean), float(math.sqrt((rest**2).sum()) / tokens.sum())


def _token_classes(vocabulary: vocabulary_lib.Vocabulary, counts_V: np.ndarray) -> np.ndarray:
    """Returns the class of each token: 0 within a word, 1 no letter, 2 frequent word, 3 other."""
    letters_V = np.array(
        [any(map(str.isalpha, vocabulary.piece(id_))) for id_ in range(vocabulary.size)]
    )
    frequent = np.argsort(-np.where(letters_V & vocabulary.starts_word_V, counts_V, -1))[:FREQUENT]
    class_V = np.where(vocabulary.starts_word_V, 3, 0)
    class_V[frequent] = 2
    class_V[~letters_V] = 1
    return class_V
