# SPDX-License-Identifier: Apache-2.0
"""Asking a trained discriminator about texts: which of their tokens look replaced?

    path  ->  load  ->  Judge
    texts  ->  rows of `encoding.Tokenizer`  ->  P(replaced) [B, L]  ->  tokens with their places

It is the discriminator of a run or of another program's files, in float32. Of a run
`electra_jax.score --tokens` prints the same, computed as the run computes.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from electra_jax import config as config_lib
from electra_jax.host import cluster, compile_cache
from electra_jax.model import networks
from electra_jax.objectives import scoring
from electra_jax.weights import encoding, reading

_JUDGES = ("judges", "judges slots")  # what `Weights.learnt` says of a discriminator


@dataclasses.dataclass(frozen=True)
class Judge:
    """Says of each token of new texts how likely it is that it was replaced."""

    config: networks.NetworksConfig
    params: dict
    tokenizer: encoding.Tokenizer

    def __call__(
        self, texts: Iterable[str], *, truncate: bool = False
    ) -> list[list[dict[str, Any]]]:
        """Returns the tokens of each text, without [CLS] and [SEP].

        Each is {'text': its characters, 'piece': as the vocabulary has it, 'span': their (begin,
        end) in the text, 'p_replaced': the probability that it was replaced}.

        Args:
          texts: one text alone is refused; put it into a list. An iterator is read to its end.
          truncate: whether to judge only the beginning of a text that is too long.

        Raises ValueError, one line, if a text is none, or is too long and `truncate` is False.
        """
        # A list, since a column of a table is found by its own index, and an iterator ends.
        texts = encoding.strings("texts", texts)
        lanes = self.tokenizer(texts, truncate=truncate)
        sizes_B = lanes["mask_BL"].sum(1)
        found: list[list[dict[str, Any]]] = [[] for _ in texts]

        order = np.argsort(sizes_B, kind="stable")
        for first in range(0, len(order), scoring.ROWS):
            part = order[first : first + scoring.ROWS]
            for number, p_L in zip(part, self._p_replaced(lanes, part, sizes_B[part].max())):
                p_N = p_L[1 : sizes_B[number] - 1]
                tokens = scoring.tokens(self.tokenizer.vocabulary, texts[number], p_replaced=p_N)
                found[number] = [token.as_dict() for token in tokens]
        return found

    def _p_replaced(self, lanes, part, longest) -> np.ndarray:
        """P(replaced) of some rows, [B, L]."""
        # Numbers and lengths are rounded up, so that few programs are compiled.
        length = min(-(-longest // encoding.STEP) * encoding.STEP, lanes["ids_BL"].shape[1])
        more = (1 << (len(part) - 1).bit_length()) - len(part)
        filled = {name: x_BL[part, :length] for name, x_BL in lanes.items()}
        filled = {name: np.pad(x_BL, ((0, more), (0, 0)), "edge") for name, x_BL in filled.items()}
        return np.asarray(self._program(self.params, **filled))[: len(part)]

    @functools.cached_property
    def _program(self) -> Callable[..., jax.Array]:
        """The compiled function from rows to P(replaced)."""

        @jax.jit
        def p_replaced(params, ids_BL, mask_BL, types_BL):
            batch = encoding.batch_of(ids_BL, mask_BL, types_BL)
            return jax.nn.sigmoid(networks.discriminate(self.config, params, batch))

        return p_replaced


def load(path: str | os.PathLike) -> Judge:
    """Opens trained weights that have a discriminator; see `electra_jax.load_discriminator`."""
    cluster.check_chips_are_free()
    compile_cache.keep()
    found = reading.open(path)
    learnt = found.learnt("discriminator")
    if learnt not in _JUDGES:
        raise config_lib.ConfigError(
            f"{found.source} has no discriminator, its main network {learnt or 'is missing'}; give"
            " a run or an export whose objective has one, or an ElectraForPreTraining; of another"
            " run `electra_jax.score --tokens` prints the probability of each token"
        )

    one = found.alone("discriminator")
    return Judge(one.networks, one.params, reading.tokenizer(found))
