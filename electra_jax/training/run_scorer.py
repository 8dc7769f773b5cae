# SPDX-License-Identifier: Apache-2.0
"""Scoring texts with a trained run from Python, as `python -m electra_jax.score` does.

workdir  ->  load  ->  RunScorer
texts    ->  one number each, the higher the more natural; or their tokens
"""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from electra_jax.objectives import scoring
from electra_jax.training import trained_run
from electra_jax.weights import encoding


@dataclasses.dataclass(frozen=True)
class RunScorer:
    """Says how natural texts are."""

    scorer: scoring.Scorer

    def __call__(self, texts: Iterable[str], *, truncate: bool = False) -> np.ndarray:
        """Returns the score of each text, float64 [n]; the higher, the more natural.

        Args:
          texts: one text alone is refused; put it into a list. An iterator is read to its end.
          truncate: whether to score only the beginning of a text that is too long.

        Raises ValueError, one line, if a text is none, or is too long and `truncate` is False.
        """
        texts = encoding.strings("texts", texts)
        return np.array([*self.scorer.scores(texts, truncate=truncate)])

    def tokens(self, texts: Iterable[str], *, truncate: bool = False) -> list[list[dict[str, Any]]]:
        """Returns the tokens of each text, without [CLS] and [SEP].

        Each is {'text': its characters, 'piece': as the vocabulary has it, 'span': their (begin,
        end) in the text}, with 'p_replaced', the probability that it was replaced, if scores are by
        detection, else with 'p', its own. Arguments and errors are those of a call.
        """
        texts = encoding.strings("texts", texts)
        return [
            [token.as_dict() for token in self.scorer.tokens(text, scores_N)]
            for text, scores_N in zip(texts, self.scorer.of_tokens(texts, truncate=truncate))
        ]


def load(workdir: str | os.PathLike, by: str | None, step: int | None) -> RunScorer:
    """Opens a run for scoring; see `electra_jax.load_scorer`."""
    return RunScorer(trained_run.of_workdir(workdir, step, with_rows=False).scorer(by))
