# SPDX-License-Identifier: Apache-2.0
"""A reader sees what was replaced and what the discriminator thought of it."""

import dataclasses
import html
import re

import pytest

from electra_jax.objectives import scoring
from electra_jax.report import style, view, view_html, view_terminal
from support import pages

_ = None

# Every outcome once: "chef" caught, "ooked" missed, "the" accused, "meal" guessed, "now" kept.
EXAMPLE = view.Example(
    #            0        1      2       3    4          5      6       7      8
    pieces=     ["[CLS]", "the", "chef", "c", "##ooked", "the", "meal", "now", "[SEP]"],
    starts_word=[False,   True,  True,   True, False,    True,  True,   True,  False],
    masked=     [False,   False, True,  False, True,     False, True,   False, False],
    kept=       [False,   False, False, False, False,    False, False,  True,  False],
    sampled=    [_,       _,     "man", _,     "##alled", _,    "meal", "now", _],
    replaced=   [False,   False, True,  False, True,     False, False,  False, False],
    p_replaced= [0.0,     0.0,   0.87,  0.0,   0.12,     0.64,  0.31,   0.02,  0.0],
    special=    [True,    False, False, False, False,    False, False,  False, True],
)  # fmt: skip


def test_each_token_comes_to_one_outcome():
    outcomes = [EXAMPLE.outcome(i) for i in range(9)]
    assert outcomes[2] == view.CAUGHT
    assert outcomes[4] == view.MISSED
    assert outcomes[5] == view.FALSE_ALARM
    assert outcomes[6] == view.LUCKY
    # A kept token that the generator copies from its input is no guess.
    assert [outcomes[i] for i in (0, 1, 3, 7, 8)] == [view.PLAIN] * 5
    assert sum(EXAMPLE.counts().values()) == 9


def test_four_lines_stand_under_each_other_and_can_be_read_without_colour():
    assert view_terminal.to_terminal(EXAMPLE, width=80, colour=False) == (
        "original       [CLS]  the  chef    cooked   the   meal    now  [SEP]\n"
        "masked         [CLS]  the  [MASK]  c[MASK]  the   [MASK]  now  [SEP]\n"
        "generator      [CLS]  the  man     called   the   meal    now  [SEP]\n"
        "discriminator              ✓87%    ✗12%     !64%  =31%    ·2%\n"
        "\n"
        "2 of 9 tokens replaced: 1 caught, 1 missed; 1 false alarm; 1 lucky guess\n"
    )


def _offers(*pieces_and_beliefs):
    """What is offered at a slot, the original first: `chef 0.2`, `man 0.7`, ..."""
    offers = (words.split() for words in pieces_and_beliefs)
    return [view.Offer(piece, not piece.startswith("##"), float(p)) for piece, p in offers]


# "chef" is taken for "man", "ooked" and "meal" are found, between "now" and "here" it is undecided.
SELECTED = dataclasses.replace(
    EXAMPLE,
    offered=[
        *[_, _, _offers("chef 0.2", "man 0.7", "dog 0.1"), _],
        *[_offers("##ooked 0.5", "##alled 0.3", "##ars 0.2"), _],
        *[_offers("meal 0.98", "dish 0.01", "fish 0.01"), _offers("now 0.4", "here 0.4", "so 0.2")],
        _,
    ],
    finder="selection",
)


def test_what_was_selected_among_the_offered_tokens_is_a_line_of_its_own():
    assert view_terminal.to_terminal(SELECTED, width=80, colour=False) == (
        "original       [CLS]  the  chef      cooked   the   meal    now        [SEP]\n"
        "masked         [CLS]  the  [MASK]    c[MASK]  the   [MASK]  now        [SEP]\n"
        "generator      [CLS]  the  man       called   the   meal    now        [SEP]\n"
        "discriminator              ✓87%      ✗12%     !64%  =31%    ·2%\n"
        "selection                  ✗man 70%  ✓50%           ✓98%    ✗here 40%\n"
        "\n"
        "2 of 9 tokens replaced: 1 caught, 1 missed; 1 false alarm; 1 lucky guess;"
        " the original selected at 2 of 4 slots\n"
    )
    assert "which is named" in view_terminal.terminal_key([EXAMPLE, SELECTED], colour=False)
    assert "selection" not in view_terminal.terminal_key([EXAMPLE], colour=False)
    assert "\nselection: chef 20%" not in view_html.to_html(EXAMPLE)
    assert "\nselection: man 70%, chef 20%, dog 10%" in view_html.to_html(SELECTED)
    assert "among which tokens" in view_html.html_key([SELECTED])
    assert "among which tokens" not in view_html.html_key([EXAMPLE])


def test_what_a_discriminator_writes_in_place_of_tokens_is_a_line_of_its_own():
    corrected = dataclasses.replace(SELECTED, finder="correction")
    assert view_terminal.to_terminal(corrected, width=80, colour=False) == (
        "original       [CLS]  the  chef      cooked   the   meal    now        [SEP]\n"
        "masked         [CLS]  the  [MASK]    c[MASK]  the   [MASK]  now        [SEP]\n"
        "generator      [CLS]  the  man       called   the   meal    now        [SEP]\n"
        "discriminator              ✓87%      ✗12%     !64%  =31%    ·2%\n"
        "correction                 ✗man 70%  ✓50%           ✓98%    ✗here 40%\n"
        "\n"
        "2 of 9 tokens replaced: 1 caught, 1 missed; 1 false alarm; 1 lucky guess;"
        " the original written at 2 of 4 slots\n"
    )
    key = view_terminal.terminal_key([corrected], colour=False)
    assert "\ncorrection: ✓ the original" in key
    assert "\ncorrection: man 70%, chef 20%, dog 10%" in view_html.to_html(corrected)
    assert "the likeliest other" in view_html.html_key([corrected])
    assert "among which tokens" not in view_html.html_key([corrected])


def test_lines_wrap_between_words_and_never_exceed_the_width():
    text = view_terminal.to_terminal(EXAMPLE, width=40, colour=False)
    assert text.splitlines()[:9] == [
        "original       [CLS]  the  chef",
        "masked         [CLS]  the  [MASK]",
        "generator      [CLS]  the  man",
        "discriminator              ✓87%",
        "",
        "original       cooked   the   meal",
        "masked         c[MASK]  the   [MASK]",
        "generator      called   the   meal",
        "discriminator  ✗12%     !64%  =31%",
    ]


def test_colour_adds_escapes_and_nothing_else():
    coloured = view_terminal.to_terminal(EXAMPLE, width=80, colour=True)
    plain = view_terminal.to_terminal(EXAMPLE, width=80, colour=False)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert "\x1b[38;5;16;48;5;114mman\x1b[0m" in coloured
    assert "\x1b[38;5;16;48;5;203malled\x1b[0m" in coloured
    assert "\x1b" not in view_terminal.terminal_key([EXAMPLE], colour=False)


def _plain_words(pieces, **changes):
    """An example in which nothing was chosen; `changes` replace whole fields."""
    n = len(pieces)
    fields = dict(
        pieces=pieces,
        starts_word=[piece.startswith("▁") for piece in pieces],
        masked=[False] * n,
        kept=[False] * n,
        sampled=[None] * n,
        replaced=[False] * n,
        p_replaced=[0.0] * n,
    )
    return view.Example(**(fields | changes))


@pytest.mark.parametrize(("words", "turned"), [("▁السلام ▁عليكم", True), ("▁the ▁כלב ▁sat", False)])
def test_text_of_arabic_is_laid_out_from_the_right(words, turned):
    pieces = ["[CLS]", *words.split(), "[SEP]"]
    special = [piece.startswith("[") for piece in pieces]
    fragment = view_html.to_html(_plain_words(pieces, special=special))
    assert (" dir=rtl>" in fragment) == turned
    assert '<bdi class="special">[CLS]</bdi>' in fragment  # its brackets are not turned round


def test_wide_letters_count_twice_and_text_without_spaces_is_cut_between_pieces():
    example = _plain_words("▁ 東京 は 日本 の 首都 である 日本 の 首都".split())
    lines = view_terminal.to_terminal(example, width=35, colour=False).splitlines()
    assert [line for line in lines if line.startswith("original")] == [
        "original       東京は日本の",
        "original       首都である日本の首都",
    ]


def test_what_would_move_the_cursor_is_shown_as_a_dot():
    example = _plain_words(["▁a\x1b[2J", "▁b\nc"])
    text = view_terminal.to_terminal(example, colour=False)
    assert text.startswith("original       a·[2J  b·c\n")


def test_a_width_without_room_is_refused():
    with pytest.raises(ValueError, match="give at least 35 columns"):
        view_terminal.to_terminal(EXAMPLE, width=30)


def _said(pieces, **probabilities):
    """Tokens of WordPiece with the probabilities of one name."""
    ((name, values),) = probabilities.items()
    return [
        scoring.Token(piece, not piece.startswith("##"), "", (0, 0), **{name: p})
        for piece, p in zip(pieces, values)
    ]


JUDGED = _said(
    ["the", "chef", "un", "##believ", "##ably", "ate"], p_replaced=[0.004, 0.03, 0.02, 0.61, 0.5, 1]
)


def test_pieces_of_a_word_stand_together_each_over_its_own_probability():
    assert view_terminal.tokens_to_terminal(JUDGED, width=80, colour=False) == (
        "tokens         the  chef  un believ ably  ate\n"
        "discriminator  0%   3%    2% !61%   !50%  !100%\n"
    )
    assert view_terminal.tokens_to_terminal(JUDGED, width=35, colour=False) == (
        "tokens         the  chef\n"
        "discriminator  0%   3%\n"
        "\n"
        "tokens         un believ ably\n"
        "discriminator  2% !61%   !50%\n"
        "\n"
        "tokens         ate\n"
        "discriminator  !100%\n"
    )
    coloured = view_terminal.tokens_to_terminal(JUDGED, width=80)
    assert "\x1b[38;5;16;48;5;227mate\x1b[0m" in coloured


def test_the_probability_of_a_token_itself_is_no_verdict():
    tokens = _said(["a", "b", "c", "d", "e", "f"], p=[1, 0.994, 0.31, 0.0123, 0.00002, 7])
    assert view_terminal.tokens_to_terminal(tokens, width=80, colour=False) == (
        "tokens       a     b    c    d     e       f\n"
        "probability  100%  99%  31%  1.2%  <0.01%  >100%\n"
    )


def test_an_objective_without_discriminator_has_replacements_but_no_verdicts():
    blind = dataclasses.replace(EXAMPLE, p_replaced=[None] * 9)
    text = view_terminal.to_terminal(blind, 80, colour=False)
    assert "outcome                ~       ~             =       ·\n" in text
    assert "discriminator" not in text + view_html.to_html(blind)
    marks = "~ replaced   = the generator guessed the original"
    assert view_terminal.terminal_key([blind], colour=False) == marks
    words = "word replaced word masked, guessed right above a replaced word: the original"
    assert " ".join(_text(view_html.html_key([blind])).split()) == words
    assert text.endswith("2 of 9 tokens replaced; 1 lucky guess\n")
    fragment = view_html.to_html(blind)
    assert "--p" not in fragment and 'class="w chosen replaced"' in fragment


# A masked language model: three tokens are hidden, "the" is shown as "a", and "now" as it is.
PREDICTED = dataclasses.replace(
    EXAMPLE,
    kept=[False] * 5 + [True, False, True, False],
    sampled=[_] * 9,
    replaced=[False] * 9,
    p_replaced=[_] * 9,
    shown=[_] * 5 + [("a", True), _, _, _],
)


def test_without_a_generator_two_lines_say_what_the_network_was_shown():
    assert view_terminal.to_terminal(PREDICTED, width=80, colour=False) == (
        "original  [CLS]  the  chef    cooked   the  meal    now  [SEP]\n"
        "masked    [CLS]  the  [MASK]  c[MASK]  a    [MASK]  now  [SEP]\n"
        "\n"
        "5 of 9 tokens chosen: 3 shown as [MASK], 1 as another token, 1 as it is\n"
    )
    assert view_terminal.terminal_key([PREDICTED], colour=False) == ""


def test_without_a_generator_the_page_shows_the_masked_text():
    fragment, key = view_html.to_html(PREDICTED), view_html.html_key([PREDICTED])
    assert _text(fragment).startswith("[CLS] the [MASK] c[MASK] a [MASK] now [SEP]")
    assert (
        '<span class="w chosen replaced" title="original: chef\nshown to the network: [MASK]">'
        "<ruby>[MASK]<rt>chef</rt></ruby></span>"
    ) in fragment
    assert '<span class="w chosen" title="original: now\nshown to the network: now">now' in fragment
    for absent in ("generator", "discriminator", "caught", "lucky", "belief"):
        assert absent not in fragment + key
    assert view_html.page([PREDICTED, EXAMPLE], "").count("replaced and caught") == 1


def _text(fragment):
    """What a browser shows, without the small originals above replaced words."""
    return html.unescape(re.sub("<[^>]*>", "", re.sub("<rt>.*?</rt>", "", fragment)))


def test_html_joins_pieces_into_words():
    assert _text(view_html.to_html(EXAMPLE)).startswith("[CLS] the man called the meal now [SEP]")


def test_a_word_sampled_into_the_middle_of_another_gets_its_space():
    example = dataclasses.replace(
        EXAMPLE,
        sampled=[_, _, "man", _, "house", _, "meal", "now", _],
        sampled_starts_word=[False] * 4 + [True, False, True, True, False],
    )
    assert "c house the meal now" in _text(view_html.to_html(example))
    assert "c house  the   meal" in view_terminal.to_terminal(example, 80, colour=False)


def test_html_shades_by_belief_underlines_by_truth_and_tells_the_numbers():
    fragment = view_html.to_html(EXAMPLE)
    assert (
        '<span class="w chosen caught" style="--p:0.87" title="original: chef\n'
        'generator: man\ndiscriminator: 87.0% replaced"><ruby>man<rt>chef</rt></ruby></span>'
    ) in fragment
    assert 'class="w chosen missed" style="--p:0.12"' in fragment
    assert (
        '<span class="w alarm" style="--p:0.64" title="original: the\n'
        'discriminator: 64.0% replaced">the</span>'
    ) in fragment
    assert 'class="w chosen lucky"' in fragment
    assert "generator: now (the input kept the token)" in fragment


def test_html_escapes_what_stands_in_the_text():
    fragment = view_html.to_html(_plain_words(['▁<script>"&'], p_replaced=[0.9]))
    assert "<script" not in fragment and "&lt;script&gt;&#34;&amp;" in fragment


def test_a_page_is_whole_and_needs_nothing_else():
    page = view_html.page([EXAMPLE] * 2, "Rows <1>", "step 20 & so on")
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "<title>Rows &lt;1&gt;</title>" in page and "step 20 &amp; so on" in page
    assert page.count("<article") == 2 and "prefers-color-scheme:dark" in page
    for outside in ("http", "src=", "<script", "@import", "url("):
        assert outside not in page
    assert pages.unclosed(page) == []


def test_every_colour_that_a_page_names_is_defined_in_light_and_dark():
    assert style.LIGHT.keys() == style.DARK.keys()
    named = set(re.findall(r"var\(--([a-z]+)[),]", view_html.page([EXAMPLE], "")))
    assert named - {"p", "shade"} <= style.LIGHT.keys()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"kept": [False]}, "kept has 1 entries for 9 pieces"),
        ({"kept": [False, False, True] + [False] * 6}, "position 2 is both masked and kept"),
        ({"sampled": [None] * 9}, "position 2 is replaced, but"),
    ],
)
def test_an_example_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(EXAMPLE, **changes)
