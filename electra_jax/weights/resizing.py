# SPDX-License-Identifier: Apache-2.0
"""Fitting trained tables to another vocabulary or length; a generator from a discriminator.

    tokens            two vocabularies -> which old rows each new row is made of
    rows              a table or bias by token -> the same for the new vocabulary
    positions         a table of positions -> a longer or shorter one
    kept_rows, kept_positions    the same for Adam's moments: only unchanged rows have any
    lower_layers      a discriminator's encoder -> a generator's encoder of the same width

All work on numpy arrays and know no files. A new token begins as the mean of the rows of its old
sub-tokens (Gee et al. 2022, Fast Vocabulary Transfer, arXiv:2402.09977). A token without known
sub-tokens begins as the mean of all rows, which hardly changes the softmax (Hewitt 2021,
Initializing New Word Embeddings for Pretrained Language Models). More positions may be filled by
repeating the table, as in Longformer (Beltagy et al. 2020, arXiv:2004.05150).
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from electra_jax.data import vocabulary as vocabulary_lib

# How paths end of what has one row per token, and of what has one per position
BY_TOKEN = ("embeddings/token", "embeddings_delta/token", "head/bias", "correction/bias")
BY_POSITION = ("embeddings/position", "embeddings_delta/position")
_WHOLE = "norm/"  # the part of an encoder that is not stacked by layer


@dataclasses.dataclass(frozen=True)
class Tokens:
    """What each new row is made of: the mean of the old rows `ids[starts[v] : starts[v + 1]]`.

    An example: old vocabulary `[PAD] [UNK] moon ##light`, new `[PAD] [UNK] moonlight`:

        new token    [PAD]  [UNK]  moonlight
        old rows     0      1      2, 3           ids = 0 1 2 3
        starts_V     0      1      2
        kept_V       True   True   False
    """

    ids: np.ndarray
    starts_V: np.ndarray  # where the old rows of each new token begin in `ids`
    kept_V: np.ndarray  # True if the token is an old one and keeps its row
    lost_V: np.ndarray  # True if nothing of it is known: it becomes the mean of `text_ids`
    text_ids: np.ndarray  # the old tokens that occur in text, that is no special ones
    gone: int  # number of old tokens that the new vocabulary does not have

    def __str__(self):
        kept, lost = int(self.kept_V.sum()), int(self.lost_V.sum())
        return (
            f"{kept} tokens keep their rows, {len(self.kept_V) - kept - lost} begin as the mean of"
            f" their old sub-tokens, {lost} as the mean of all; {self.gone} old ones are gone"
        )


def tokens(old: vocabulary_lib.Vocabulary, new: vocabulary_lib.Vocabulary) -> Tokens:
    """Returns how the tokens of a new vocabulary grow from an old one, of whatever kinds.

    Special tokens correspond by their role, however they are spelled. Any other token is an old one
    if its text and its place in the word (beginning or inside) are equal.
    """
    roles = dict(zip((*new.special_ids, new.unk_id), (*old.special_ids, old.unk_id)))
    kept = roles | _same_tokens(old, new)
    added = [n for n in range(new.size) if n not in kept]
    parts = dict(zip(added, old.encode([_text_of_token(new, n) for n in added])))
    # The marker of a word's beginning, alone, says nothing about the word.
    telling_V = np.array([old.piece(n) != "▁" for n in range(old.size)])
    telling_V[old.unk_id] = False
    parts = {n: ids[telling_V[ids]] for n, ids in parts.items()}

    made = [parts[n] if n in parts else [kept[n]] for n in range(new.size)]
    lost_V = np.array([len(ids) == 0 for ids in made])
    # `rows` sums groups with reduceat, which knows no empty group, and then replaces lost rows.
    made = [ids if len(ids) else [old.unk_id] for ids in made]
    counts_V = np.array([len(ids) for ids in made])
    return Tokens(
        ids=np.concatenate(made).astype(np.int64),
        starts_V=np.cumsum(counts_V) - counts_V,
        kept_V=np.array([n in kept for n in range(new.size)]),
        lost_V=lost_V,
        text_ids=np.array(_text_tokens(old)),
        gone=len(set(_text_tokens(old)) - set(kept.values())),
    )


def rows(old: np.ndarray, fresh: np.ndarray, tokens: Tokens) -> np.ndarray:
    """Returns the old table [old V, ...] for the new vocabulary, in the shape of `fresh`.

    Rows above the new vocabulary's size are those of `fresh`.
    """
    size = len(tokens.kept_V)
    counts_V = np.diff(tokens.starts_V, append=len(tokens.ids))
    sums = np.add.reduceat(old[tokens.ids], tokens.starts_V, axis=0)

    grown = np.array(fresh)
    grown[:size] = sums / counts_V.reshape(-1, *[1] * (old.ndim - 1))
    grown[:size][tokens.lost_V] = old[tokens.text_ids].mean(axis=0)
    return grown


def kept_rows(old: np.ndarray, fresh: np.ndarray, tokens: Tokens) -> np.ndarray:
    """Returns `fresh` with the old rows of only those tokens that are old ones."""
    found = np.array(fresh)
    found[: len(tokens.kept_V)][tokens.kept_V] = old[tokens.ids[tokens.starts_V[tokens.kept_V]]]
    return found


def positions(old: np.ndarray, fresh: np.ndarray, how: str) -> np.ndarray:
    """Returns the old table [positions, E] with as many positions as `fresh`.

    Superfluous positions are cut off. More are made as `how` says:

        'copied'          position p is old position p mod the old number
        'interpolated'    linearly, and the first and the last position stay the same
        'fresh'           all positions are those of `fresh`
    """
    had, count = len(old), len(fresh)
    if count <= had:
        return old[:count]
    if how == "fresh":
        return fresh
    if how == "copied":
        return old[np.arange(count) % had]

    places = np.linspace(0, had - 1, count)
    below = np.minimum(places.astype(int), had - 2) if had > 1 else np.zeros(count, int)
    share = (places - below)[:, None].astype(old.dtype)
    return (1 - share) * old[below] + share * old[np.minimum(below + 1, had - 1)]


def kept_positions(old: np.ndarray, fresh: np.ndarray, how: str) -> np.ndarray:
    """Returns `fresh` with the old rows of the positions that `positions` leaves unchanged."""
    found, both = np.array(fresh), min(len(old), len(fresh))
    if len(fresh) <= len(old) or how == "copied":
        found[:both] = old[:both]
    return found


def lower_layers(
    params: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the generator's projection and encoder, made of the discriminator's lowest layers.

    Args:
      params: the source's arrays by path.
      fresh: the run's arrays by path, or their shapes.

    Raises ValueError, in one line, if shapes differ in more than the number of layers.
    """
    found = {}
    for path, wanted in fresh.items():
        network, _, rest = path.partition("/")
        if network != "generator" or not rest.startswith(("encoder/", "projection/")):
            continue
        theirs = params.get(f"discriminator/{rest}")
        there = None if theirs is None else theirs.shape
        if rest.startswith(("projection/", f"encoder/{_WHOLE}")):
            fits = there == wanted.shape
        else:
            fits = there and there[0] >= wanted.shape[0] and there[1:] == wanted.shape[1:]

        if not fits:
            raise ValueError(
                f"the discriminator's {rest} is {there or 'not there'}, the generator's"
                f" {wanted.shape}; give model.generator the discriminator's shape and at most as"
                " many layers"
            )
        found[path] = theirs[: wanted.shape[0]]
    return found


def _text_tokens(vocabulary):
    """Returns the ids of all tokens that are not special."""
    special = {*vocabulary.special_ids, vocabulary.unk_id}
    return [n for n in range(vocabulary.size) if n not in special]


def _same_tokens(old, new):
    """Returns {new token: the same old token}.

    Equal spelling wins over spelling that is equal without the sign of the place in the word, since
    the kinds of vocabularies have different signs.
    """
    exactly = {(old.piece(n), bool(old.starts_word_V[n])): n for n in _text_tokens(old)}
    spelled = {(_without_sign(old, piece), begins): n for (piece, begins), n in exactly.items()}
    found = {}

    for n in _text_tokens(new):
        piece, begins = new.piece(n), bool(new.starts_word_V[n])
        same = exactly.get((piece, begins), spelled.get((_without_sign(new, piece), begins)))
        if same is not None:
            found[n] = same
    return found


def _without_sign(vocabulary, piece):
    """Returns a piece without the sign of its place: '▁' or 'Ġ' at the beginning, '##' inside."""
    for sign in ("▁", "Ġ") if vocabulary.kind == "sentencepiece" else ("##", "▁", "Ġ"):
        if piece.startswith(sign) and piece != sign:
            return piece.removeprefix(sign)
    return piece


def _text_of_token(vocabulary, number):
    """Returns the text that a token stands for; '' for a part of a character."""
    text = _without_sign(vocabulary, vocabulary.decode([number]).strip())
    return "" if "\ufffd" in text else text
