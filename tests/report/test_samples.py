# SPDX-License-Identifier: Apache-2.0
"""Rows are shown with what the networks of their objective made of them, and with nothing else."""

import jax
import numpy as np
import pytest

from electra_jax.objectives import (
    corrective_lm,
    masked_lm,
    multi_word_selection,
    replace_mlm,
    replaced_token_detection,
)
from electra_jax.report import samples, view_html, view_terminal
from support import odd


class Words:
    """A vocabulary whose pieces are words: their numbers."""

    pad_id = odd.PAD
    special_ids = (odd.PAD, odd.CLS, odd.SEP, odd.MASK)
    starts_word_V = np.arange(128) > odd.MASK

    def spelled(self, id_):
        return f"▁{id_}" if self.starts_word_V[id_] else f"[{id_}]"


def rows(kind, **changes):
    objective = odd.objective(kind, **changes)
    params = odd.random_like(jax.eval_shape(objective.init, jax.random.key(0)))
    ids_BL, marks_BL = odd.IDS_BL, odd.MARKS_BL
    intermediates = samples.compile_intermediates(objective, odd.PAD)
    return samples.examples(intermediates, params, Words(), ids_BL, marks_BL, jax.random.key(1))


def others(found):
    """(original piece, what the predicting network was shown instead) of all rows."""
    return [
        (piece, shown)
        for one in found
        for piece, shown in zip(one.pieces, one.shown, strict=True)
        if shown is not None
    ]


def test_a_masked_language_model_has_neither_samples_nor_verdicts():
    found = rows(masked_lm.MaskedLM, mask_token_rate=0.4, random_token_rate=0.4)
    assert not any(one.generated or one.judged or any(one.replaced) for one in found)
    assert sum(sum(one.masked) for one in found) > 0
    assert others(found) and all(piece != shown for piece, (shown, _) in others(found))
    for text in (
        *(view_terminal.to_terminal(one, 200, False) for one in found),
        view_html.page(found, "rows"),
    ):
        words = text.partition("<body")[2] or text  # without the style sheet
        assert "tokens chosen" in words
        for network in ("generator", "discriminator", "tokens replaced", "caught", "belief"):
            assert network not in words


def test_a_random_token_is_shown_where_the_generator_saw_it():
    found = rows(
        replaced_token_detection.ReplacedTokenDetection,
        mask_token_rate=0.2,
        random_token_rate=0.6,
    )
    one = next(one for one in found if any(one.shown))
    assert one.generated and one.judged
    (piece, _), *_ = filter(None, one.shown)
    lines = view_terminal.to_terminal(one, 200, colour=False).splitlines()
    assert f" {piece.removeprefix('▁')} " in next(x for x in lines if x.startswith("masked"))


@pytest.mark.parametrize(
    ("kind", "generated", "judged"),
    [
        (replaced_token_detection.ReplacedTokenDetection, True, True),
        (replace_mlm.ReplaceMLM, True, False),
        (masked_lm.MaskedLM, False, False),
    ],
)
def test_a_network_that_the_objective_has_is_there(kind, generated, judged):
    found = rows(kind)
    assert any(one.generated for one in found) == generated
    assert any(one.judged for one in found) == judged


def test_the_offered_tokens_are_shown_at_the_slots_the_original_first():
    found = rows(multi_word_selection.MultiWordSelection, selection_size=5)
    slots = [(one, i) for one in found for i in range(len(one.pieces)) if one.offered[i]]
    assert len(slots) == sum(one.chosen(i) for one in found for i in range(len(one.pieces))) > 9
    for one, i in slots:
        pieces = [offer.piece for offer in one.offered[i]]
        assert pieces[0] == one.pieces[i]
        assert len(set(pieces)) == 5
        assert sum(offer.p for offer in one.offered[i]) == pytest.approx(1)

    likelier = [max(one.offered[i][1:], key=lambda offer: offer.p) for one, i in slots]
    right = [one.offered[i][0].p > other.p for (one, i), other in zip(slots, likelier)]
    assert [one.found(i)[1] for one, i in slots] == right
    assert {True, False} == set(right)


def test_the_likeliest_tokens_of_a_correction_are_shown_beside_the_original():
    found = rows(corrective_lm.CorrectiveLM)
    slots = [(one, i) for one in found for i in range(len(one.pieces)) if one.offered[i]]
    assert len(slots) == sum(one.chosen(i) for one in found for i in range(len(one.pieces))) > 9
    for one, i in slots:
        first, *others = one.offered[i]
        assert one.finder == "correction" and first.piece == one.pieces[i]
        assert len({offer.piece for offer in one.offered[i]}) == 5
        assert others == sorted(others, key=lambda offer: -offer.p)
        assert sum(offer.p for offer in one.offered[i]) < 1
    assert {one.found(i)[1] for one, i in slots} == {True, False}


def test_nothing_is_offered_where_no_original_is_to_be_found():
    found = rows(replaced_token_detection.ReplacedTokenDetection)
    assert not any(one.finds for one in found)
