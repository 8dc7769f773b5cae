# SPDX-License-Identifier: Apache-2.0
"""Pieces that are added to a vocab.txt: which they are, and that all of a run knows them."""

import dataclasses
import os
import re
import shutil

import pytest

from electra_jax import config as config_lib
from electra_jax.data import (
    planning,
    preparation,
    vocabulary,
    vocabulary_extension,
    vocabulary_training,
)
from electra_jax.speed import dry_run
from electra_jax.training import run_data, streamed_data
from electra_jax.weights import starting_checks
from support import bert_folder
from support.corpus import small_run, text_settings, write_corpus

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz.")
OLD = [*SPECIAL, *LETTERS, *(f"##{x}" for x in LETTERS[:-1]), "the"]


def made(pieces):
    return vocabulary.Vocabulary("wordpiece", "\n".join(pieces).encode(), True, True)


def vocab_txt(folder):
    path = folder / "vocab.txt"
    path.write_text("\n".join(OLD) + "\n")
    return str(path)


def test_the_pieces_that_save_most_tokens_come_first():
    """Six letters four times save 4 x 5 tokens, five letters 3 x 4, two letters nine times 9."""
    lines = ["zebras zebras quail the", "zebras zebras quail the", "quail the " + "ox " * 9]
    found = vocabulary_extension.extend(made(OLD), 3, lines)
    assert found.vocabulary.pieces == [*OLD, "zebras", "quail", "ox"]
    assert found.added == 3
    words, before = 4 + 3 + 9 + 3, 4 * 6 + 3 * 5 + 9 * 2 + 3
    assert (found.tokens_before, found.tokens_after) == (before / words, 1)


def test_only_as_many_are_added_as_are_asked_for():
    lines = ["zebras zebras quail quail"]
    assert vocabulary_extension.extend(made(OLD), 1, lines).vocabulary.pieces[len(OLD) :] == [
        "zebras"
    ]


def test_what_occurs_once_or_is_a_token_already_is_not_added():
    found = vocabulary_extension.extend(made(OLD), 9, ["the the the a a a zebras"])
    assert found.vocabulary.pieces == OLD and found.added == 0
    assert found.tokens_before == found.tokens_after


def test_a_letter_that_the_old_pieces_lack_is_added_though_it_saves_no_token():
    """A word with it is one [UNK], which says nothing."""
    found = vocabulary_extension.extend(made(OLD), 1, ["the ж the ж the ж"])
    assert found.vocabulary.pieces[len(OLD) :] == ["ж"]


def test_the_inside_of_words_is_reckoned_as_such():
    """`##ing` saves two tokens in each word, though there is a word `ing`."""
    words = [f"{first}ing" for first in "bcdfhjklmprstvwxz"]
    old = [*OLD, "ing"]
    found = vocabulary_extension.extend(made(old), 1, [" ".join(words)])
    assert found.vocabulary.pieces[len(old) :] == ["##ing"]


@pytest.mark.parametrize("lines", [[" ", "\n"], ["\u200b", "\u0301"]])
def test_no_text_is_refused(lines):
    """Nor is what has no words: blanks without width, or accents alone."""
    with pytest.raises(ValueError, match="there is no text to train a vocabulary on"):
        vocabulary_extension.extend(made(OLD), 5, lines)


def test_a_bracket_is_a_piece_like_others():
    found = vocabulary_extension.extend(made(OLD), 9, ["the [ the [ the ["])
    assert found.vocabulary.pieces[len(OLD) :] == ["["]


@pytest.mark.parametrize("count", [2, 2_000_000])
def test_any_number_of_pieces_may_be_asked_for(count):
    """Old ones and new ones may be fewer or more than a vocabulary that is trained may have."""
    found = vocabulary_extension.extend(made([*SPECIAL, "a", "##a"]), count, ["aaa aaa aaa"])
    assert found.vocabulary.pieces[7:] == ["aaa"]


def prepared(tmp_path, **changes):
    """(the settings, the lines that were said, the vocabulary of the folder)."""
    write_corpus(tmp_path / "text.txt", 60)
    settings = text_settings(
        f"text:{tmp_path}/text.txt", vocab_txt(tmp_path), 16, workers=1, heldout_fraction=0.1,
        **changes,
    )  # fmt: skip
    said = []
    folder = preparation.prepare(settings, str(tmp_path / "data"), said.append)
    return settings, said, vocabulary.load(os.path.join(folder, "vocab"))


def test_prepared_text_has_the_added_pieces(tmp_path):
    settings, said, found = prepared(tmp_path, added_pieces=20)
    assert found.pieces[: len(OLD)] == OLD and found.size == len(OLD) + 20
    (line,) = [line for line in said if "pieces added" in line]
    told = re.search(rf"20 pieces added to the {len(OLD)} of {settings.vocab}: .* (\S+) bef", line)
    assert 1 < float(re.search(r"has (\S+) tokens", line)[1]) < float(told[1])

    plain = planning.folder_of(dataclasses.replace(settings, added_pieces=0), "")
    assert planning.folder_of(settings, "") != plain


def test_too_little_text_for_so_many_pieces_is_said(tmp_path):
    _, said, found = prepared(tmp_path, added_pieces=5_000)
    (line,) = [line for line in said if line.startswith("warning: the text gives only")]
    count = int(re.search(r"only (\d+) pieces", line)[1])
    assert found.size == len(OLD) + count and 12 < count < 5_000


def test_folders_of_before_keep_their_names(tmp_path):
    """Rows that were prepared before there was this setting are not prepared again."""
    settings = text_settings("builtin", vocab_txt(tmp_path), 16)
    assert "added_pieces" not in planning.row_settings(settings)


def staged(tmp_path):
    """The settings of a run of two stages that adds to a vocabulary of nearly 128 pieces."""
    write_corpus(tmp_path / "text.txt", 60)
    path = vocab_txt(tmp_path)
    with open(path, "a") as file:
        file.writelines(f"[unused{n}]\n" for n in range(126 - len(OLD)))
    tree = small_run(
        f"text:{tmp_path}/text.txt", str(tmp_path / "data"), data__vocab=path,
        data__added_pieces=20, data__sequence_length=16, schedule__stages=((0.5, 32, 8),),
    )  # fmt: skip
    return config_lib.parse(tree)


def test_longer_rows_of_a_later_stage_have_the_same_vocabulary(tmp_path):
    config, run = staged(tmp_path), str(tmp_path / "run")
    ahead = dry_run.text(config, run)
    short, long = (
        vocabulary.load(os.path.join(folder, "vocab")) for folder in run_data.prepare(config, run)
    )
    assert short.pieces == long.pieces and short.size == 126 + 20

    # A run that goes on finds its rows. Its size was known before there were any: tables are padded
    # to 128 rows, and these need as many more.
    assert run_data.prepare(config, run)
    sizes = [told.splitlines()[1] for told in (ahead, dry_run.text(config, run))]
    assert sizes[0].startswith("parameters") and sizes[0] == sizes[1]


def test_a_vocabulary_that_is_gone_is_not_replaced_by_the_one_with_added_pieces(tmp_path):
    """Pieces would be added to it a second time, and the weights would not know them."""
    config = staged(tmp_path)
    run_data.prepare(config, str(tmp_path / "run"))
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="vocab.txt' does not exist"):
        run_data.prepare(config, str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ("train:wordpiece:64", "data.added_pieces=5 adds to a vocab.txt, and data.vocab='train:"),
        ("MODEL", "data.added_pieces=5 adds to a vocab.txt, and data.vocab=.* is a vocab.model"),
    ],
)
def test_pieces_are_added_to_a_vocab_txt_alone(tmp_path, words_model, vocab, message):
    vocab = vocab.replace("MODEL", words_model)
    tree = small_run("builtin", "", data__vocab=vocab, data__added_pieces=5)
    with pytest.raises(ValueError, match=message):
        planning.make_plan(planning.DataSettings.of(config_lib.parse(tree).data, 0), "")


@pytest.fixture(scope="module")
def words_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    lines = write_corpus(folder / "corpus.txt").read_text().splitlines()
    found = vocabulary_training.train("sentencepiece", 64, iter(lines))
    (folder / "a.model").write_bytes(found.native)
    return str(folder / "a.model")


@pytest.mark.parametrize("name", ["vocab", "vocab/vocab.txt"])
@pytest.mark.parametrize("streaming", ["off", "on"])
def test_pieces_are_not_added_to_the_copy_in_the_workdir(tmp_path, name, streaming):
    """Each start would add more of them, and imported weights would lose their vocabulary."""
    write_corpus(tmp_path / "text.txt", 60)
    folder = tmp_path / "run" / "vocab"
    made(OLD).save(str(folder))
    tree = small_run(
        f"text:{tmp_path}/text.txt", str(tmp_path / "data"), data__vocab=str(folder.parent / name),
        data__added_pieces=20, data__streaming=streaming,
    )  # fmt: skip
    prepare = run_data.prepare if streaming == "off" else streamed_data.open_rows
    with pytest.raises(
        config_lib.ConfigError, match="added_pieces=20 adds to .* another --workdir"
    ):
        prepare(config_lib.parse(tree), str(tmp_path / "run"))
    assert vocabulary.load(str(folder)).pieces == OLD


def test_weights_that_do_not_know_the_pieces_are_refused_with_the_remedy(tmp_path):
    folder = bert_folder.write(tmp_path / "bert")
    settings = dict(data__vocab=f"{folder}/vocab.txt", data__added_pieces=3)
    tree = small_run("builtin", "", **settings)
    tree.init["from"] = folder
    with pytest.raises(config_lib.ConfigError, match="added_pieces=3 adds; .*new_tokens='mean'"):
        starting_checks.check_vocabularies(config_lib.parse(tree))
    tree.init.new_tokens = "mean"
    starting_checks.check_vocabularies(config_lib.parse(tree))
