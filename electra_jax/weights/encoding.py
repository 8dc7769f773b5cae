# SPDX-License-Identifier: Apache-2.0
"""Using a trained encoder: texts -> ids -> vectors, without dropout.

    tokenizer(texts) -> ids, mask, types [B, L]      [CLS] A [SEP] or [CLS] A [SEP] B [SEP], padded
    encode(...)      -> tokens [B, L, D], pooled [B, D]: the state of the first token, [CLS]

Positions count from the beginning of a row, including padding, as in transformers: the same inputs
give the same vectors there. Vectors at padded places have no meaning. `reading.load_encoder`
returns both for a path.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from absl import logging
from jax import lax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.model import networks

STEP = 32  # lengths are rounded up to a multiple of it, so that few programs are compiled
_MEANT = {  # name of an argument -> what it takes
    "texts": "a list of texts",
    "pairs": "a list with the second text of each row",
    "seconds": "a list with the second text of each pair",
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Encoded:
    """The vectors of a batch. ELECTRA has no pooler, so the summary is the state of [CLS]."""

    tokens_BLD: jax.Array
    pooled_BD: jax.Array


def encode(
    config: networks.NetworksConfig,
    params: dict,
    ids_BL: jax.Array,
    mask_BL: jax.Array,
    types_BL: jax.Array,
) -> Encoded:
    """Computes the main network without its head; `mask_BL` is 0 at padding."""
    tokens_BLD = networks.hidden(config, params, batch_of(ids_BL, mask_BL, types_BL))
    return Encoded(tokens_BLD, tokens_BLD[:, 0])


def batch_of(ids_BL: jax.Array, mask_BL: jax.Array, types_BL: jax.Array) -> batch_lib.Batch:
    """The batch of such rows, whose positions count from their beginning."""
    ids_BL = ids_BL.astype(jnp.int32)
    return batch_lib.Batch(
        ids_BL=ids_BL,
        types_BL=types_BL.astype(jnp.int32),
        positions_BL=lax.broadcasted_iota(jnp.int32, ids_BL.shape, 1),
        documents_BL=(mask_BL != 0).astype(jnp.int32),
        row_B=jnp.zeros(ids_BL.shape[:1], jnp.uint32),
        word_starts_BL=jnp.zeros(ids_BL.shape, bool),
    )


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Turns texts into rows of ids."""

    vocabulary: vocabulary_lib.Vocabulary
    limit: int  # the largest number of tokens in a row
    trained: int = 0  # tokens of the longest rows that had learned positions; 0: not known

    def __call__(
        self,
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        truncate: bool = False,
    ) -> dict[str, np.ndarray]:
        """Returns ids_BL, mask_BL and types_BL, int32, padded on the right, as `encode` takes them.

        Args:
          texts: one text per row; an iterator is read to its end.
          pairs: a second text for each row, whose tokens get type 1.
          truncate: whether to cut rows that are too long, token by token from the longer text.

        Raises ValueError if `texts` or `pairs` is no list or holds something other than strings, if
        their numbers differ, or if a row is too long and `truncate` is False.
        """
        texts = strings("texts", texts)
        pairs = None if pairs is None else strings("pairs", pairs)
        encode = self.vocabulary.encode
        first = [ids.tolist() for ids in encode(texts)]
        second = [ids.tolist() for ids in encode(pairs)] if pairs is not None else None
        if second is not None and len(second) != len(first):
            raise ValueError(f"{len(first)} texts but {len(second)} pairs; give one for each")

        rows = []
        for number, a in enumerate(first):
            parts = [a] if second is None else [a, second[number]]
            room = self.limit - 1 - len(parts)
            if not truncate and sum(map(len, parts)) > room:
                raise ValueError(
                    f"text {number} has {sum(map(len, parts))} tokens, more than the {room} that"
                    " fit a row; shorten it, or say truncate=True"
                )

            # Reversed, so that of two equally long texts the second one is cut.
            while sum(map(len, parts)) > room:
                max(reversed(parts), key=len).pop()
            rows.append(parts)

        self._warn_beyond_training(rows)
        return self._padded(rows)

    def _warn_beyond_training(self, rows):
        longest = max((1 + sum(len(part) + 1 for part in parts) for parts in rows), default=0)
        if self.trained and longest > self.trained:
            logging.log_first_n(
                logging.WARNING,
                "a text has %d tokens, and the encoder was trained on rows of at most %d: positions"
                " beyond have their initial values; cut texts, or train longer rows"
                " (schedule.stages)",
                1, longest, self.trained,
            )  # fmt: skip

    def _padded(self, rows):
        vocabulary = self.vocabulary
        sizes = [1 + sum(len(part) + 1 for part in parts) for parts in rows]
        length = min(-(-max(sizes, default=1) // STEP) * STEP, self.limit)
        ids_BL = np.full((len(rows), length), vocabulary.pad_id, np.int32)
        types_BL = np.zeros((len(rows), length), np.int32)

        for row, (parts, size) in enumerate(zip(rows, sizes)):
            ids = [vocabulary.cls_id] + [x for part in parts for x in (*part, vocabulary.sep_id)]
            ids_BL[row, :size] = ids
            types_BL[row, len(parts[0]) + 2 : size] = 1

        mask_BL = (np.arange(length) < np.array(sizes, int)[:, None]).astype(np.int32)
        return {"ids_BL": ids_BL, "mask_BL": mask_BL, "types_BL": types_BL}


def strings(name: str, given: Iterable[str]) -> list[str]:
    """Returns `listed` of texts. Raises ValueError, one line, for one that is none too."""
    texts = listed(name, given)
    check_strings(name, texts)
    return texts


def listed(name: str, given: Iterable, kind: type[ValueError] = ValueError) -> list[Any]:
    """Returns what is given as a list: an iterator would be empty once it was checked.

    Args:
      name: of the argument, a key of `_MEANT`.
      given: its value.
      kind: of the error.

    Raises `kind`, one line, for a single string and for what is no list.
    """
    if isinstance(given, str):
        raise kind(f"{name} is one string; give {_MEANT[name]}")
    try:
        found = iter(given)
    except TypeError:
        raise kind(f"{name} is {given!r:.60}; give {_MEANT[name]}") from None
    return list(found)


def check_strings(name: str, texts: Iterable, kind: type[ValueError] = ValueError) -> None:
    """Raises `kind`, one line, for a text that is none, as None and nan from a table are.

    Args:
      name: what the message calls all of them.
      texts: what is held against str, one by one.
      kind: of the error.
    """
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise kind(f"number {number} of {name} is {text!r}, no text; give '' or leave it out")
