# SPDX-License-Identifier: Apache-2.0
"""Real rows with what the networks made of them, ready to be shown (`view.py`).

rows  ->  objective.intermediates: chosen positions, samples, beliefs  ->  one view.Example per row

A few rows are played at a time, so that many of them need no more memory than these.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams
from electra_jax.data import vocabulary as vocabulary_lib
from electra_jax.objectives.objective import Objective
from electra_jax.report import view

TOGETHER = 32  # rows that are played at a time


def compile_intermediates(objective: Objective, pad_id: int) -> Callable[..., dict[str, jax.Array]]:
    """Returns jitted `intermediates(params, ids_BL, marks_BL, first_row, key) -> arrays by name`.

    It masks rows, corrupts them with the generator and judges them with the discriminator, as far
    as the objective has these networks; `examples` calls it.

    Args:
      objective: what the networks learn, on one device.
      pad_id: the id of padding.
    """

    def intermediates(params, ids_BL, marks_BL, first_row, key):
        row_B = first_row + jnp.arange(ids_BL.shape[0], dtype=jnp.uint32)
        batch = batch_lib.from_lanes(ids_BL, marks_BL, row_B, pad_id)
        keys = streams.keys(key, 0, row_B, dropout=False)
        played = objective.intermediates(params, batch, keys, objective.knobs(1.0))

        made = {
            "slots": played.chosen.slots_BN,
            "used": played.chosen.used_BN,
            "masked": played.chosen.masked_BN,
            "seen": played.masked_BL,
        }
        if played.sampled_BN is not None:  # there is a generator
            made |= {"sampled": played.sampled_BN, "replaced": played.replaced_BL}
        if getattr(played, "disc_logits_BL", None) is not None:  # there is a discriminator
            made["believed"] = jax.nn.sigmoid(played.disc_logits_BL)
        if getattr(played, "selection_scores_BNO", None) is not None:
            made["offered"] = played.offered_BNO
            made[view.SELECTION] = jax.nn.softmax(played.selection_scores_BNO)
        if getattr(played, "chances_BNO", None) is not None:
            made["offered"] = played.offered_BNO
            made[view.CORRECTION] = played.chances_BNO
        return made

    return jax.jit(intermediates)


def examples(
    intermediates: Callable[..., dict[str, jax.Array]],
    params: dict,
    vocabulary: vocabulary_lib.Vocabulary,
    ids_BL: np.ndarray,
    marks_BL: np.ndarray,
    key: jax.Array,
    first_row: int = 0,
) -> list[view.Example]:
    """Returns one Example per row, with what the networks made of it.

    Args:
      intermediates: from `compile_intermediates`.
      params: the weights, on the devices of this process.
      vocabulary: that of the rows.
      ids_BL: the rows.
      marks_BL: their marks, as in the records.
      key: all random draws are derived from it.
      first_row: the number of the first row. The draws of a row depend on its number.
    """
    # A kernel that the compiler cannot divide fails on more than one.
    params = jax.device_put(params, jax.local_devices()[0])
    found: list[view.Example] = []
    for begin in range(0, len(ids_BL), TOGETHER):
        ids, marks = ids_BL[begin : begin + TOGETHER], marks_BL[begin : begin + TOGETHER]

        # Too few rows are filled up, because another shape would have to be compiled.
        fill = ((0, TOGETHER - len(ids)), (0, 0))
        rows = np.pad(ids, fill, mode="edge"), np.pad(marks, fill, mode="edge")
        played = jax.device_get(intermediates(params, *rows, np.uint32(first_row + begin), key))
        found += [
            _example(vocabulary, ids_L, {name: array[row] for name, array in played.items()})
            for row, ids_L in enumerate(np.asarray(ids))
        ]
    return found


def _example(vocabulary, ids_L, played) -> view.Example:
    """One row, without its padding. `played` holds the arrays of this row."""
    real = [place for place, id_ in enumerate(ids_L) if id_ != vocabulary.pad_id]
    finder = next((name for name in view.FINDERS if name in played), "")

    # Slots are a padded list of positions; only those that are used count.
    chosen, masked, sampled, offered = set(), set(), {}, {}
    for n, slot in enumerate(map(int, played["slots"])):
        if played["used"][n]:
            chosen.add(slot)
            if "sampled" in played:
                sampled[slot] = int(played["sampled"][n])
            if finder:
                offered[slot] = _offers(vocabulary, played["offered"][n], played[finder][n])
        if played["masked"][n]:
            masked.add(slot)

    def starts(id_):
        return bool(vocabulary.starts_word_V[id_])

    def shown(i):
        """What stands at a kept position, if it is not the original."""
        id_ = int(played["seen"][i])
        if i not in chosen or i in masked or id_ == ids_L[i]:
            return None
        return vocabulary.spelled(id_), starts(id_)

    return view.Example(
        pieces=[vocabulary.spelled(int(ids_L[i])) for i in real],
        starts_word=[starts(ids_L[i]) for i in real],
        masked=[i in masked for i in real],
        kept=[i in chosen and i not in masked for i in real],
        sampled=[vocabulary.spelled(sampled[i]) if i in sampled else None for i in real],
        replaced=["replaced" in played and bool(played["replaced"][i]) for i in real],
        p_replaced=[float(played["believed"][i]) if "believed" in played else None for i in real],
        special=[int(ids_L[i]) in vocabulary.special_ids for i in real],
        sampled_starts_word=[starts(sampled.get(i, ids_L[i])) for i in real],
        shown=[shown(i) for i in real],
        offered=[offered.get(i) for i in real] if finder else (),
        finder=finder,
    )


def _offers(vocabulary, ids_O, p_O) -> list[view.Offer]:
    """The tokens that are offered at a slot, with what the discriminator believes of each."""
    return [
        view.Offer(vocabulary.spelled(int(id_)), bool(vocabulary.starts_word_V[id_]), float(p))
        for id_, p in zip(ids_O, p_O, strict=True)
    ]
