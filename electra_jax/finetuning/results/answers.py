# SPDX-License-Identifier: Apache-2.0
"""From the scores of positions in windows to the text that answers a question.

    scores of a window  ->  Beams (starts, and the ends after each)
                        ->  spans that may be an answer  ->  n-best of all windows of a question
                        ->  Answer (text, null score)    ->  decided: the text, or "" for no answer

The rules are those of the SQuAD code that BERT and ELECTRA were released with:

- A span starts and ends in the context and has at most `longest` tokens, 30 unless set.
- No other window of the question has more context around the span's first token.
- Of spans with equal texts the best one counts.
- The null score of a question is the lowest of its windows'.

The text is cut from the context by characters, so it keeps the context's accents, capitals and
blanks. R windows, L tokens, S starts, T ends after each start.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

N_BEST = 20
LONGEST = 30  # tokens in an answer


@dataclasses.dataclass(frozen=True)
class Windows:
    """Where the tokens of each window come from; one entry per window."""

    example_R: Sequence[int]  # the question's place in the list of contexts
    offsets: Sequence[np.ndarray]  # int [L, 2]: begin and end in characters; -1 outside the context
    best_context: Sequence[np.ndarray]  # bool [L]: no other window has more context around it


@dataclasses.dataclass(frozen=True)
class Beams:
    """The best starts of each window, and the best ends after each of them."""

    start_RS: np.ndarray  # positions in the window
    start_score_RS: np.ndarray  # of the joint head log-probabilities, of the plain one logits
    end_RST: np.ndarray
    end_score_RST: np.ndarray
    null_R: np.ndarray | None = None  # the larger, the likelier it is that there is no answer
    relative: bool = False  # whether the best span's score is to be subtracted from null_R


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One span that may answer a question."""

    text: str
    score: float  # of start and end together, as in `Beams`
    probability: float  # softmax over the n-best
    start: int  # in characters of the context
    end: int


@dataclasses.dataclass(frozen=True)
class Answer:
    """The best span of a question; its text is empty if no span may be an answer."""

    text: str
    null: float | None
    n_best: Sequence[Candidate]


def plain(
    start_score_RL: np.ndarray,
    end_score_RL: np.ndarray,
    allowed_RL: np.ndarray,
    best: int = N_BEST,
) -> Beams:
    """The beams of a head that scores starts and ends separately: all pairs of the best of each.

    The score of no answer is that of position 0, as in BERT, and a question's null score is that
    score less the best span's.

    Args:
      allowed_RL: the positions that count, which are the tokens of the context. Position 0 may be
        among them.
      best: how many starts and how many ends are kept.
    """
    start_RS, start_score_RS = _top(start_score_RL, allowed_RL, best)
    end_RT, end_score_RT = _top(end_score_RL, allowed_RL, best)

    shape = (*start_RS.shape, end_RT.shape[1])
    return Beams(
        start_RS,
        start_score_RS,
        np.broadcast_to(end_RT[:, None], shape),
        np.broadcast_to(end_score_RT[:, None], shape),
        null_R=start_score_RL[:, 0] + end_score_RL[:, 0],
        relative=True,
    )


def answer(
    contexts: Sequence[str],
    windows: Windows,
    beams: Beams,
    *,
    n_best: int = N_BEST,
    longest: int = LONGEST,
) -> list[Answer]:
    """One Answer per question, in the order of `contexts` (the text that each one asks about).

    Raises:
      ValueError: beams and windows differ in number, or a question has no window.
    """
    rows = len(windows.example_R)
    if len(beams.start_RS) != rows:
        raise ValueError(f"beams of {len(beams.start_RS)} windows for {rows} windows")

    rows_of: list[list[int]] = [[] for _ in contexts]
    for row, question in enumerate(windows.example_R):
        rows_of[question].append(row)

    found = []
    for question, (context, mine) in enumerate(zip(contexts, rows_of)):
        if not mine:
            raise ValueError(f"question {question} has no window; it cannot be answered")

        spans = sorted(span for row in mine for span in _spans(windows, beams, row, longest))
        kept: dict[str, tuple[float, int, int]] = {}
        for negative_score, first, last in spans:
            text = context[first:last]
            first += len(text) - len(text.lstrip())  # some tokens include the blank before them
            text = text.strip()
            if text and text not in kept:
                kept[text] = (-negative_score, first, first + len(text))
                if len(kept) == n_best:
                    break

        candidates = _candidates(kept)
        null = None if beams.null_R is None else float(min(beams.null_R[row] for row in mine))
        if null is not None and beams.relative:
            # Without any span there is nothing to compare with: the question has no answer.
            null = null - candidates[0].score if candidates else math.inf
        found.append(Answer(candidates[0].text if candidates else "", null, candidates))
    return found


def decided(answers: Sequence[Answer], threshold: float | None) -> list[str]:
    """The texts, "" for a null score above the threshold; without a threshold all are answered."""
    if threshold is None:
        return [one.text for one in answers]
    return ["" if one.null > threshold else one.text for one in answers]


def _top(score_RL, allowed_RL, best) -> tuple[np.ndarray, np.ndarray]:
    """The allowed positions with the largest scores, best first; equal scores in order."""
    score_RL = np.where(allowed_RL, score_RL, -np.inf)
    place_RS = np.argsort(-score_RL, axis=1, kind="stable")[:, :best]
    return place_RS, np.take_along_axis(score_RL, place_RS, axis=1)


def _spans(windows: Windows, beams: Beams, row: int, longest: int) -> list[tuple]:
    """(-score, first character, character after the last) of each span that may be an answer."""
    offsets_L2 = np.asarray(windows.offsets[row])
    context_L = offsets_L2[:, 0] >= 0
    opens_L = context_L & np.asarray(windows.best_context[row], bool)
    length = len(context_L)

    start_ST = np.broadcast_to(beams.start_RS[row][:, None], beams.end_RST[row].shape)
    end_ST = beams.end_RST[row]
    score_ST = beams.start_score_RS[row][:, None] + beams.end_score_RST[row]
    # Batches pad their rows, so a beam may point behind the end of the window.
    allowed_ST = (start_ST <= end_ST) & (end_ST < length) & (end_ST - start_ST < longest)
    start_ST, end_ST = np.minimum(start_ST, length - 1), np.minimum(end_ST, length - 1)
    allowed_ST = allowed_ST & opens_L[start_ST] & context_L[end_ST] & np.isfinite(score_ST)

    return [
        (-float(score), int(offsets_L2[start, 0]), int(offsets_L2[end, 1]))
        for score, start, end in zip(score_ST[allowed_ST], start_ST[allowed_ST], end_ST[allowed_ST])
    ]


def _candidates(kept) -> tuple[Candidate, ...]:
    """Best first, each with its probability among them."""
    scores = np.array([score for score, _, _ in kept.values()], np.float64)
    weights = np.exp(scores - scores.max()) if len(scores) else scores
    shares = weights / weights.sum() if len(scores) else scores
    return tuple(
        Candidate(text, score, float(share), first, last)
        for (text, (score, first, last)), share in zip(kept.items(), shares)
    )
