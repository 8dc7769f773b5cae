# SPDX-License-Identifier: Apache-2.0
"""What a finished encoder knows, asked without training it: linear probes and minimal pairs.

    chunk_accuracy         tags of CoNLL-2000 from the hidden state of each word's first token
    subjectivity_accuracy  subjective or objective (Pang and Lee 2004), from the mean hidden state
    pair_accuracy          the better of two sentences that differ in one word, by their score
    pair_accuracy_in_turn  the same where each word is masked in turn: of a masked language model
                           that is its only score, of replaced-token detection that of both networks

A probe is a ridge regression on indicators of the classes, fitted on the last hidden states of the
main network with all weights frozen; its answer is the class with the largest value. It has a
closed form and one number to choose, the same for all runs. Scores are those of
`electra_jax.score`.
"""

import dataclasses
import functools
import pathlib
import zipfile
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.checks import finished_runs
from electra_jax.core import batch as batch_lib
from electra_jax.model import networks
from electra_jax.objectives import scoring

CHUNKS, SUBJECTIVITY = "conll2000.zip", "subjectivity.zip"  # as NLTK packs them
CHUNK_SENTENCES = 2_000  # to fit on; all of the test set is asked
RIDGE = 1e-3  # times the number of examples
ROWS = 64  # rows at once

_CONSONANT = (
    "river film team song book player town station school building member district language"
    " village mountain game group king war writer band bridge castle park museum road system"
    " train mayor teacher"
)
_VOWEL = (
    "album actor island area artist author airport event episode engine engineer institution"
    " organization official office officer election empire example element object article animal"
    " award attack agreement idea instrument inhabitant opera"
)


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Sentences as words, each word or each sentence with a class."""

    sentences: Sequence[Sequence[str]]
    classes: Sequence  # of a sentence: a list with one a word, or one for all of it


def read_chunks(folder: str) -> tuple[Labelled, Labelled]:
    """(to fit, to try) of CoNLL-2000: a word a line, its tag in the third column."""
    with zipfile.ZipFile(_file(folder, CHUNKS)) as archive:
        parts = []
        for name in ("conll2000/train.txt", "conll2000/test.txt"):
            blocks = archive.read(name).decode().strip().split("\n\n")
            rows = [[line.split() for line in block.splitlines()] for block in blocks]
            words = [[row[0] for row in sentence] for sentence in rows]
            parts.append(Labelled(words, [[row[2] for row in sentence] for sentence in rows]))
    fit, tried = parts
    return Labelled(fit.sentences[:CHUNK_SENTENCES], fit.classes[:CHUNK_SENTENCES]), tried


def read_subjectivity(folder: str) -> tuple[Labelled, Labelled]:
    """(to fit, to try): the set has no split, so every other sentence is tried."""
    sentences, classes = [], []
    with zipfile.ZipFile(_file(folder, SUBJECTIVITY)) as archive:
        for label, name in (("subjective", "quote"), ("objective", "plot")):
            text = archive.read(f"subjectivity/{name}.tok.gt9.5000").decode("latin-1")
            lines = [line.split() for line in text.splitlines() if line.strip()]
            sentences += lines
            classes += [label] * len(lines)
    return tuple(Labelled(sentences[half::2], classes[half::2]) for half in (0, 1))


def pairs() -> dict[str, list[tuple[str, str]]]:
    """kind -> (grammatical, not), which differ in one word.

    Each kind holds its two words in both roles equally often, so that whoever knows only how
    frequent words are is right half of the time.
    """
    found: dict[str, list[tuple[str, str]]] = {"a_an": [], "this_these": [], "verb": []}

    def add(kind, frame, noun, right, wrong):
        found[kind].append(
            (frame.format(right, noun=noun).strip(), frame.format(wrong, noun=noun).strip())
        )

    for nouns, right, wrong in ((_CONSONANT, "a", "an"), (_VOWEL, "an", "a")):
        for noun in nouns.split():
            for frame in ("it was {} {noun}.", "there is {} {noun} in the north."):
                add("a_an", frame, noun, right, wrong)
    for noun in f"{_CONSONANT} {_VOWEL}".split():
        for form, this, these, verbs in (
            (noun, "this", "these", (("is", "are"), ("was", "were"))),
            (f"{noun}s", "these", "this", (("are", "is"), ("were", "was"))),
        ):
            for frame in ("the name of {} {noun} is known.", "he wrote about {} {noun}."):
                add("this_these", frame, form, this, these)
            for right, wrong in verbs:
                add("verb", "the {noun} {} in the north.", form, right, wrong)
    return found


def measure(run: finished_runs.FinishedRun, params: dict, folder: str | None) -> dict[str, float]:
    """All accuracies of these weights in the run's networks; without a folder only the pairs'."""
    found = pair_accuracies(run, params)
    if run.objective.masked_scores is not None:
        found["pair_accuracy_in_turn"] = found["pair_accuracy"]
    elif "both" in scoring.ways(run.objective, params):
        both = pair_accuracies(run, params, by="both")
        found["pair_accuracy_in_turn"] = both["pair_accuracy"]
    if folder:
        found["chunk_accuracy"] = probe_words(run, params, *read_chunks(folder))
        found["subjectivity_accuracy"] = probe_sentences(run, params, *read_subjectivity(folder))
    return found


def pair_accuracies(
    run: finished_runs.FinishedRun, params: dict, by: str | None = None
) -> dict[str, float]:
    """How often the grammatical sentence scores higher, over all pairs and by kind; ties half.

    `by` is the way to score, as in `electra_jax.objectives.scoring`.
    """
    kinds = pairs()
    flat = [text for group in kinds.values() for pair in group for text in pair]
    limit = run.config.data.sequence_length
    scorer = scoring.Scorer(run.objective, params, run.trained.vocabulary, limit, by)
    good, bad = np.array(list(scorer.scores(flat))).reshape(-1, 2).T
    won = (good > bad) + 0.5 * (good == bad)
    ends = np.cumsum([len(group) for group in kinds.values()])[:-1]
    found = {"pair_accuracy": float(won.mean())}
    for kind, part in zip(kinds, np.split(won, ends)):
        found[f"pair_accuracy/{kind}"] = float(part.mean())
    return found


def probe_words(
    run: finished_runs.FinishedRun, params: dict, fit: Labelled, tried: Labelled
) -> float:
    """Share of the words whose tag the probe finds.

    A sentence that is longer than a row is read in parts; every word is asked once.
    """

    def features(labelled):
        rows, places, classes = [], [], []
        for words, tags in zip(labelled.sentences, labelled.classes):
            for row, firsts, named in rows_of(run, words, tags):
                rows.append(row)
                places.append(firsts)
                classes += named
        states = hidden_states(run, params, rows)
        return np.concatenate([x[at] for x, at in zip(states, places)]), classes

    return accuracy(*features(fit), *features(tried))


def probe_sentences(
    run: finished_runs.FinishedRun, params: dict, fit: Labelled, tried: Labelled
) -> float:
    """Share of the sentences whose class the probe finds; one longer than a row is cut."""

    def features(labelled):
        limit = run.config.data.sequence_length - 2
        pieces = run.trained.vocabulary.encode([" ".join(words) for words in labelled.sentences])
        states = hidden_states(run, params, [row[:limit] for row in pieces])
        means = [x[1 : len(row[:limit]) + 1].mean(0) for x, row in zip(states, pieces)]
        return np.stack(means), labelled.classes

    return accuracy(*features(fit), *features(tried))


def hidden_states(
    run: finished_runs.FinishedRun, params: dict, rows: Sequence[np.ndarray]
) -> np.ndarray:
    """Last hidden states of the main network, [rows, L, D], of [CLS] pieces [SEP]."""
    words, length = run.trained.vocabulary, run.config.data.sequence_length
    ids = np.full((-(-len(rows) // ROWS) * ROWS, length), words.pad_id, np.int32)
    marks = np.zeros(ids.shape, np.uint8)
    marks[: len(rows), 0] = batch_lib.DOCUMENT_START
    for line, row in zip(ids, rows):
        line[0], line[1 : len(row) + 1], line[len(row) + 1] = words.cls_id, row, words.sep_id
    shapes = run.objective.networks
    parts = [
        np.asarray(_encode(shapes, run.pad_id, params, ids[n : n + ROWS], marks[n : n + ROWS]))
        for n in range(0, len(ids), ROWS)
    ]
    return np.concatenate(parts)[: len(rows)]


def rows_of(
    run: finished_runs.FinishedRun, words: Sequence[str], tags: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray, list[str]]]:
    """(pieces, place of each word's first piece behind [CLS], tags) of rows that hold them."""
    vocabulary, limit = run.trained.vocabulary, run.config.data.sequence_length - 2
    row, firsts, named = [], [], []
    for pieces, tag in zip(vocabulary.encode(words), tags):
        pieces = list(pieces[:limit]) or [vocabulary.unk_id]  # a character that is no text
        if len(row) + len(pieces) > limit:
            yield np.array(row), np.array(firsts), named
            row, firsts, named = [], [], []
        firsts.append(len(row) + 1)
        row += pieces
        named.append(tag)
    if row:
        yield np.array(row), np.array(firsts), named


def accuracy(
    x_ND: np.ndarray, classes: Sequence[str], tried_MD: np.ndarray, answers: Sequence[str]
) -> float:
    """Fits a ridge regression on the first pair and tries it on the second.

    An answer that was not there to be fitted counts as missed.
    """
    mean, spread = x_ND.mean(0, dtype=np.float64), x_ND.std(0, dtype=np.float64) + 1e-6

    def features(hidden):
        scaled = (hidden - mean) / spread
        return np.concatenate([scaled, np.ones((len(scaled), 1))], 1)

    names = sorted(set(classes))
    number = {name: n for n, name in enumerate(names)}
    x, y = features(x_ND), np.eye(len(names))[[number[name] for name in classes]]
    penalty = RIDGE * len(x) * np.eye(x.shape[1])
    penalty[-1, -1] = 0  # the constant is free
    kernel = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    said = (features(tried_MD) @ kernel).argmax(1)
    return float(np.mean([number.get(name) == n for name, n in zip(answers, said)]))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _encode(config, pad_id, params, ids_BL, marks_BL):
    row_B = jnp.arange(len(ids_BL), dtype=jnp.uint32)
    batch = batch_lib.from_lanes(ids_BL, marks_BL, row_B, pad_id)
    return networks.hidden(config, params, batch)


def _file(folder, name):
    path = pathlib.Path(folder) / name
    if not path.is_file():
        raise SystemExit(f"--downstream={folder} has no {name}; leave it out to probe nothing")
    return path
