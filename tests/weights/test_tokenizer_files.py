# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files give the ids of training, in several scripts, and come back as they were."""

import io
import json

import numpy as np
import pytest
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from electra_jax.data import vocabulary
from electra_jax.weights.formats import tokenizer_files
from support.many_scripts import KINDS, LINES, made


@pytest.fixture(scope="module", params=[*KINDS, "cased"])
def words(request):
    if request.param == "cased":
        return made("sentencepiece", lower_case=False, strip_accents=False)
    return made(request.param)


@pytest.fixture(scope="module")
def folder(words, tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    tokenizer_files.write(words, str(path), limit=64)
    return path


def test_ids_are_those_of_training_in_every_script(words, folder):
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    differ = [
        line
        for line, ids in zip(LINES, words.encode(LINES))
        if fast.encode(line, add_special_tokens=False).ids != ids.tolist()
    ]
    assert differ == []


def differing(words, lines):
    """The lines whose ids from the files are not those of training, with both cuts."""
    fast, found = tokenizer_files.fast(words), []
    for line, ids in zip(lines, words.encode(lines)):
        there = fast.encode(line, add_special_tokens=False)
        if there.ids != ids.tolist():
            found.append((line, [words.piece(n) for n in ids], there.tokens))
    return found


@pytest.mark.parametrize("lower_case", [True, False])
def test_marks_stay_behind_the_letters_that_change(lower_case):
    """Capitals with a mark for which there is no single letter; Burmese marks in their order."""
    words = made("sentencepiece", lower_case=lower_case, strip_accents=False)
    lines = ["О\u0301сень За\u0301мок", "Ẹ\u0300kọ́ Ọ\u0300rọ̀", "I\u0307 İ i", "ခွင့်"]
    assert differing(words, LINES + lines) == []


def test_a_mask_that_takes_the_blank_before_it_still_does():
    content = json.loads(made("tokenizer_json").native)
    mask = next(token for token in content["added_tokens"] if token["content"] == "<mask>")
    mask["lstrip"] = True
    own = vocabulary.Vocabulary("tokenizer_json", json.dumps(content).encode(), False, False)
    written = tokenizer_files.fast(own).encode("the <mask> fox", add_special_tokens=False).tokens
    assert " <mask>" in written and "Ġ" not in written


def own_model(**options):
    """The bytes of a SentencePiece model that somebody trained with other options."""
    model, symbols = io.BytesIO(), "[CLS],[SEP],[MASK]"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 5), model_writer=model, model_type="unigram", num_threads=1,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, pad_piece="[PAD]", unk_piece="[UNK]",
        control_symbols=symbols, minloglevel=2, **{"vocab_size": 440} | options,
    )  # fmt: skip
    return model.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"remove_extra_whitespaces": False},
        {"add_dummy_prefix": False},
        {"normalization_rule_name": "nfkc"},
        {"normalization_rule_name": "identity"},
    ],
)
def test_a_model_with_rules_of_its_own_is_written_with_them(options):
    words = vocabulary.Vocabulary("sentencepiece", own_model(**options), False, False)
    blanks = ["  two  blanks  ", " x", "x ", "\tx\t", "\u00a0x\u00a0", "a\u3000b\u3000", "\x85"]
    assert differing(words, LINES + blanks) == []


def test_bytes_of_unknown_letters_are_letters_again():
    model = own_model(byte_fallback=True, vocab_size=700)
    words = vocabulary.Vocabulary("sentencepiece", model, False, False)
    fast = tokenizer_files.fast(words)
    text = "Ⰰ ⰁⰂ"
    assert differing(words, [text]) == []
    assert fast.decode(fast.encode(text, add_special_tokens=False).ids) == text


def with_unused_pieces(model):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.pieces[-1].type = 5
    return proto.SerializeToString()


@pytest.mark.parametrize("kind", ["blanks at the ends of words", "unused pieces"])
def test_a_model_that_the_files_cannot_express_is_refused(tmp_path, kind):
    model = own_model(treat_whitespace_as_suffix=kind.startswith("blanks"))
    model = with_unused_pieces(model) if kind.startswith("unused") else model
    words = vocabulary.Vocabulary("sentencepiece", model, False, False)
    with pytest.raises(ValueError, match=f"with {kind} cannot be written.*--to=orbax"):
        tokenizer_files.write(words, str(tmp_path / "out"), limit=64)
    assert not (tmp_path / "out").exists()


def test_rows_begin_and_end_as_in_training(words, folder):
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    a, b = (ids.tolist() for ids in words.encode(["the fox", "a dog"]))
    found = fast.encode("the fox", "a dog")
    assert found.ids == [words.cls_id, *a, words.sep_id, *b, words.sep_id]
    assert found.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)


def test_the_vocabulary_comes_back_as_it_was(words, folder):
    assert tokenizer_files.read(str(folder)).sha256 == words.sha256


def test_settings_name_every_special_token(words, folder):
    about = json.loads((folder / "tokenizer_config.json").read_text())
    assert about["mask_token"] == words.piece(words.mask_id)
    assert about["pad_token"] == words.piece(words.pad_id)
    assert about["model_max_length"] == 64


@pytest.mark.parametrize("strip_accents", [True, False])
@pytest.mark.parametrize("lower_case", [True, False])
def test_a_strangers_vocab_txt_is_read_by_its_settings(tmp_path, lower_case, strip_accents):
    words = made("wordpiece", lower_case, strip_accents)
    (tmp_path / "vocab.txt").write_bytes(words.native)
    settings = {"do_lower_case": lower_case, "strip_accents": strip_accents}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokenizer_files.read(str(tmp_path)).sha256 == words.sha256


def test_a_piece_that_was_added_as_a_token_stays_whole(tmp_path):
    """As transformers writes it after `add_tokens` of a piece that vocab.txt has already."""
    words = made("wordpiece")
    piece = next(piece for piece in words.pieces[::-1] if piece.isascii() and piece.isalpha())
    fast = tokenizer_files.fast(words)
    fast.add_special_tokens([tokenizers.AddedToken(piece, normalized=False)])
    (tmp_path / "vocab.txt").write_bytes(words.native)
    fast.save(str(tmp_path / "tokenizer.json"))
    text = f"x{piece}x"
    (found,) = tokenizer_files.read(str(tmp_path)).encode([text])
    assert found.tolist() == fast.encode(text, add_special_tokens=False).ids
    assert found.tolist() != words.encode([text])[0].tolist()
    words.save(str(tmp_path / "vocab"))  # as beside an export of this package
    (again,) = tokenizer_files.read(str(tmp_path)).encode([text])
    assert again.tolist() == found.tolist()


def test_chinese_letters_that_are_not_parted_need_a_tokenizer_json(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(made("wordpiece").native)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenize_chinese_chars": false}')
    with pytest.raises(ValueError, match="does not part Chinese letters, so .*vocab.txt alone"):
        tokenizer_files.read(str(tmp_path))


def test_without_settings_a_vocab_txt_is_uncased(tmp_path):
    words = made("wordpiece")
    (tmp_path / "vocab.txt").write_bytes(words.native)
    assert tokenizer_files.read(str(tmp_path)).sha256 == words.sha256


@pytest.mark.parametrize("settings", [None, {"model_max_length": 512}])
def test_without_settings_pieces_with_capitals_tell_a_cased_vocab_txt(tmp_path, settings):
    """The folders of many models for a domain are vocab.txt, config.json and weights alone."""
    pieces = "[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the Aspirin é ##s".split()
    data = "".join(f"{piece}\n" for piece in pieces).encode()
    words = vocabulary.Vocabulary("wordpiece", data, False, False)
    (tmp_path / "vocab.txt").write_bytes(data)
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokenizer_files.read(str(tmp_path)).sha256 == words.sha256


def test_a_strangers_tokenizer_json_gives_its_own_ids(tmp_path):
    words = made("tokenizer_json")
    tokenizer_files.fast(words).save(str(tmp_path / "tokenizer.json"))
    found = tokenizer_files.read(str(tmp_path))
    for mine, other in zip(words.encode(LINES), found.encode(LINES)):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "PreTrainedTokenizerFast"])
def test_a_vocab_txt_of_another_class_gives_way_to_tokenizer_json_or_is_refused(
    tmp_path, file, kind
):
    """One for Japanese looks words up in a dictionary; its ids would be silently wrong."""
    words = made("wordpiece", lower_case=False, strip_accents=False)
    (tmp_path / "vocab.txt").write_bytes(words.native)
    (tmp_path / file).write_text(json.dumps({"tokenizer_class": kind}))
    with pytest.raises(ValueError, match=f"its tokenizer is a {kind}, so it cuts text otherwise"):
        tokenizer_files.read(str(tmp_path))

    tokenizer_files.fast(words).save(str(tmp_path / "tokenizer.json"))
    found = tokenizer_files.read(str(tmp_path))
    assert found.kind == "tokenizer_json"
    for mine, other in zip(words.encode(LINES), found.encode(LINES)):
        np.testing.assert_array_equal(mine, other)


def test_a_token_that_was_added_to_an_export_is_not_cut(words, folder):
    """As `add_tokens` and `save_pretrained` of transformers leave the folder."""
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    fast.add_tokens(["qzx"])
    fast.save(str(folder / "tokenizer.json"))
    (ids,) = tokenizer_files.read(str(folder)).encode(["qzx"])
    assert ids.tolist() == [words.size]


def test_a_vocab_txt_that_was_edited_in_an_export_is_not_passed_over(tmp_path):
    words = made("wordpiece")
    tokenizer_files.write(words, str(tmp_path), limit=64)
    path = tmp_path / "vocab.txt"
    path.write_text(path.read_text().replace(f"\n{words.pieces[-1]}\n", "\nfavipiravir\n"))
    with pytest.raises(ValueError, match="vocab.txt has been changed .'favipiravir' among others"):
        tokenizer_files.read(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds neither vocab.txt nor tokenizer.json"):
        tokenizer_files.read(str(tmp_path))


def test_damaged_settings_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(made("wordpiece").native)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="tokenizer_config.json is no JSON object"):
        tokenizer_files.read(str(tmp_path))
