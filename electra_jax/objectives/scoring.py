# SPDX-License-Identifier: Apache-2.0
"""Scores sentences with a trained run: the higher the score, the more natural the sentence.

A score is a sum over tokens. What it adds up, a run says in one of these ways, the first that it
has unless another is asked for:

    detection    one pass: log P(original), of a discriminator (zero-shot, as in prompting by
                 replaced-token detection)
    prediction   log p of each token, of a main network that predicts tokens
                     masked_lm: one pass per token, which is masked in it (pseudo-log-likelihood,
                     Salazar et al. 2020)
                     replace_mlm, all_tokens_mlm: one pass over the text as it is
                     electric: one pass, minus the energies (Clark et al. 2020, EMNLP)
    correction   one pass: log p of each token, of the head of a discriminator that also corrects
    generator    one pass per token, which is masked in it: log p of the generator
    both         as `generator`, and one pass of the discriminator: log p of each token given all
                 others, from what both networks say of it (`by_bayes`)

Scores of one run and one way can be compared with each other, best between sentences of equal
length.

Of each token it also says P(replaced) = 1 - P(original) by detection, else the probability whose
logarithm is summed. That of Electric is not normalised, so it may exceed 1.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.objectives.objective import Objective

WAYS = ("detection", "prediction", "correction", "generator", "both")

ROWS = 64  # rows per batch
_BLOCK = 1024  # sentences whose rows are in memory at once, and sorted by length
_STEP = 32  # lengths are rounded up to a multiple, so that few programs are compiled


@dataclasses.dataclass(frozen=True)
class Token:
    """A token of a text and what a run says of it; one of the two probabilities is None."""

    piece: str  # as people read it, with its `▁` or `##`
    starts_word: bool
    text: str  # the characters that it stands for
    span: tuple[int, int]  # their begin and end in the text
    p_replaced: float | None = None  # by detection
    p: float | None = None  # of this token, in all other ways

    def as_dict(self) -> dict[str, Any]:
        """The token as JSON and notebooks have it, with the one probability that there is."""
        chance = {"p": self.p} if self.p_replaced is None else {"p_replaced": self.p_replaced}
        return {"text": self.text, "piece": self.piece, "span": self.span} | chance


def ways(objective: Objective, params: dict) -> tuple[str, ...]:
    """How these weights can score, the usual way first; none if they cannot.

    There is no `both` if samples may not equal the original, since `by_bayes` counts those too, nor
    if the generator saw every token that it filled in.
    """
    found = []
    if objective.token_scores is not None or objective.masked_scores is not None:
        found.append("detection" if objective.detects else "prediction")
    if objective.correction_scores is not None:
        found.append("correction")
    if objective.generator_scores is not None and "generator" in params:
        found.append("generator")
        if objective.detects and objective.filled_share and not objective.disallow_correct:
            found.append("both")
    return tuple(found)


class _Asked(NamedTuple):
    """What is asked of a network; one of the two is None."""

    one_pass: Callable[..., jax.Array] | None = None  # (params, batch) -> [B, L]
    in_turn: Callable[..., jax.Array] | None = None  # (params, batch, places_B) -> [B]


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Scores sentences with the weights of a run. Its programs are compiled once.

    Raises ValueError when it is made, if these weights cannot score, or not in this way.
    """

    objective: Objective
    params: dict
    vocabulary: vocabulary_lib.Vocabulary
    limit: int  # the most tokens per row, [CLS] and [SEP] included
    by: str | None = None  # one of `ways`; None is the first of them

    def __post_init__(self):
        found, name = ways(self.objective, self.params), type(self.objective).__name__
        if not found:
            raise ValueError(
                f"a run of {name} cannot score: it has neither token_scores nor masked_scores; use"
                " one of masked_lm, electric or an objective that judges"
            )
        if self.by is not None and self.by not in found:
            raise ValueError(
                f"a run of {name} cannot score by {self.by}; it can by {', '.join(found)}"
            )

    @property
    def way(self) -> str:
        """The way that is asked for, or the usual one."""
        return self.by or ways(self.objective, self.params)[0]

    def scores(
        self, sentences: Sequence[str], names: Sequence[str] = (), truncate: bool = False
    ) -> Iterator[float]:
        """The score of each sentence, one after another: the sum of what `of_tokens` gives."""
        return (float(scores_N.sum()) for scores_N in self.of_tokens(sentences, names, truncate))

    def of_tokens(
        self, sentences: Sequence[str], names: Sequence[str] = (), truncate: bool = False
    ) -> Iterator[np.ndarray]:
        """The scores of a sentence's tokens, float64 [n], one sentence after another.

        They are yielded as they are computed.

        Args:
          names: names of the sentences in error messages; by default their numbers.
          truncate: of a sentence with too many tokens, score the beginning.

        Raises:
          ValueError: a sentence without words or with too many. Before any score is computed.
        """
        names = names or [f"sentence {number}" for number in range(1, len(sentences) + 1)]
        for name, count in zip(names, token_counts(self.vocabulary, sentences)):
            _check_length(name, count, self.limit, truncate)

        answers = [self._answers(asked, program, sentences) for asked, program in self._programs]
        if self.way == "both":
            return map(functools.partial(by_bayes, filled=self.objective.filled_share), *answers)
        return answers[0]

    def tokens(self, text: str, scores_N: np.ndarray) -> list["Token"]:
        """The tokens of a text with what their scores say of them."""
        return tokens(self.vocabulary, text, **probabilities(self.way, scores_N))

    def _answers(self, asked, program, sentences):
        """What a network says of each sentence's tokens, one sentence after another."""
        score, pad_id = functools.partial(program, self.params), self.vocabulary.pad_id
        return itertools.chain.from_iterable(
            _added(score, _tasks(asked, self.vocabulary, block, self.limit), len(block), pad_id)
            for block in _blocks(sentences)
        )

    @functools.cached_property
    def _programs(self) -> list[tuple[_Asked, Callable[..., jax.Array]]]:
        """What is asked of each network that is asked, and the compiled function for it."""

        def compiled(asked):
            return jax.jit(
                lambda params, ids_BL, places_B: _scores(
                    asked, params, self.vocabulary, ids_BL, places_B
                )
            )

        objective = _of_any_length(self.objective)
        usual = _Asked(objective.token_scores, objective.masked_scores)
        generator = _Asked(in_turn=objective.generator_scores)
        asked = {
            "correction": [_Asked(one_pass=objective.correction_scores)],
            "generator": [generator],
            "both": [usual, generator],
        }.get(self.way, [usual])
        return [(one, compiled(one)) for one in asked]


def by_bayes(original_N: np.ndarray, written_N: np.ndarray, *, filled: float) -> np.ndarray:
    """log p of tokens given all others, from what both networks of a run say of them.

    In training the generator fills a share r of the places, and writes this token there with
    probability g; the text has it there with probability p, which is asked for. So the token stands
    there as the original with probability p (1 - r + r g), and as a replacement with (1 - p) r g.
    An ideal discriminator says the odds of the two, o. Hence p / (1 - p) = o r g / (1 - r + r g):
    what the generator says, put right by the discriminator.

    Args:
      original_N: log P(original) of the discriminator.
      written_N: log g, of the generator that sees all tokens but this one.
      filled: r, the share of places that the generator filled in training without seeing them.
    """
    original_N = np.minimum(original_N, -np.finfo(np.float32).tiny)
    log_odds_N = original_N - np.log(-np.expm1(original_N))
    with np.errstate(divide="ignore"):  # log 0 where the generator fills all places
        log_left = np.log1p(-filled)
    log_filled_N = np.log(filled) + written_N
    log_share_N = log_filled_N - np.logaddexp(log_left, log_filled_N)
    return -np.logaddexp(0, -(log_odds_N + log_share_N))


def probabilities(by: str, scores_N: np.ndarray) -> dict[str, np.ndarray]:
    """What the scores of tokens mean: {"p_replaced": [n]} or {"p": [n]}, as in `Token`."""
    if by == "detection":
        return {"p_replaced": -np.expm1(scores_N)}
    with np.errstate(over="ignore"):  # minus an energy may be any number
        return {"p": np.exp(scores_N)}


def tokens(
    vocabulary: vocabulary_lib.Vocabulary, text: str, **probabilities: np.ndarray
) -> list[Token]:
    """The tokens of a text with their probabilities, `p_replaced` or `p`: [n].

    A text that was cut has as many tokens as there are probabilities.
    """
    ((name, p_N),) = probabilities.items()
    ((ids_N, spans_N2),) = vocabulary.encode_with_offsets([text])
    return [
        Token(
            piece=vocabulary.spelled(id_),
            starts_word=bool(vocabulary.starts_word_V[id_]),
            text=text[begin:end],
            span=(begin, end),
            **{name: p},
        )
        for id_, (begin, end), p in zip(ids_N.tolist(), spans_N2.tolist(), p_N.tolist())
    ]


def token_counts(vocabulary: vocabulary_lib.Vocabulary, sentences: Sequence[str]) -> list[int]:
    """How many tokens each sentence has, without [CLS] and [SEP]."""
    return [len(ids) for block in _blocks(sentences) for ids in vocabulary.encode(block)]


def preferred(groups: Sequence[Sequence[float]]) -> list[int | None]:
    """Which alternative of each group has the highest score.

    None where two are equally high or a score is NaN: no alternative is preferred then, and the
    group does not count as right.
    """
    return [place if place >= 0 else None for place in (int(highest(group)) for group in groups)]


def highest(scores: npt.ArrayLike) -> np.ndarray:
    """The index of the highest score along the last axis; -1 where several are equally high or one
    is NaN."""
    scores = np.asarray(scores)
    alone = (scores == scores.max(-1, keepdims=True)).sum(-1) == 1  # the maximum of a NaN is NaN
    return np.where(alone, scores.argmax(-1), -1)


def _of_any_length(objective):
    """The objective with plain attention: kernels of accelerators want rows of certain lengths."""
    shape = objective.networks
    plain = {
        name: dataclasses.replace(getattr(shape, name), attention="einsum")
        for name in ("discriminator", "generator")
    }
    return dataclasses.replace(objective, networks=dataclasses.replace(shape, **plain))


def _check_length(name, count, limit, truncate):
    """Raises ValueError for a sentence that has no words, or too many of them for a row."""
    if not count:
        raise ValueError(f"{name} has no words")
    if count + 2 > limit and not truncate:
        raise ValueError(
            f"{name} has {count} tokens, more than the {limit - 2} that fit a row of {limit}, the"
            " longest whose positions this run knows; shorten it, or take --long=truncate or"
            " --long=skip, in Python truncate=True"
        )


def _blocks(sentences):
    return (sentences[first : first + _BLOCK] for first in range(0, len(sentences), _BLOCK))


def _tasks(asked, vocabulary, sentences, limit):
    """(row, place, sentence) of each pass: one per sentence, or one per token to be masked."""
    rows = [
        np.concatenate([[vocabulary.cls_id], ids[: limit - 2], [vocabulary.sep_id]])
        for ids in vocabulary.encode(sentences)
    ]
    if asked.one_pass is not None:
        return [(row, 0, number) for number, row in enumerate(rows)]
    return [
        (row, place, number) for number, row in enumerate(rows) for place in range(1, len(row) - 1)
    ]


def _scores(asked, params, vocabulary, ids_BL, places_B):
    """Scores of all tokens of a row in one pass, or of the one that is masked, else 0: [B, L]."""
    marks_BL = jnp.zeros_like(ids_BL).at[:, 0].set(batch_lib.DOCUMENT_START)
    row_B = jnp.arange(len(ids_BL), dtype=jnp.uint32)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, row_B, vocabulary.pad_id)
    if asked.one_pass is not None:
        return asked.one_pass(params, batch)

    found_B = asked.in_turn(params, batch, places_B)
    is_masked_BL = jnp.arange(ids_BL.shape[1]) == places_B[:, None]
    return jnp.where(is_masked_BL, found_B[:, None], 0)


def _added(
    score: Callable, tasks: list[tuple[np.ndarray, int, int]], count: int, pad_id: int
) -> list[np.ndarray]:
    """Runs tasks of (row, place, sentence) in batches of similar length.

    Returns what all passes of a sentence say of each of its tokens, without [CLS] and [SEP].
    """
    sizes = {number: len(row) - 2 for row, _, number in tasks}
    added = [np.zeros(sizes[number]) for number in range(count)]

    tasks = sorted(tasks, key=lambda task: len(task[0]))
    for first in range(0, len(tasks), ROWS):
        part = tasks[first : first + ROWS]
        length = -(-max(len(row) for row, _, _ in part) // _STEP) * _STEP

        ids_BL = np.full((ROWS, length), pad_id, np.int32)
        places_B = np.zeros(ROWS, np.int32)
        for at, (row, place, _) in enumerate(part):
            ids_BL[at, : len(row)], places_B[at] = row, place

        found_BL = np.asarray(score(ids_BL, places_B), np.float64)
        for at, (row, _, number) in enumerate(part):
            added[number] += found_BL[at, 1 : len(row) - 1]

    return added
