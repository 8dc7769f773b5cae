# SPDX-License-Identifier: Apache-2.0
"""Vocabularies are repeatable, and other people's files do no harm."""

import io
import json
import random

import numpy as np
import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from electra_jax.data import vocabulary, vocabulary_training


def many_words():
    """Words of random letters, each as often as the others: every choice is a tie."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 7))) for _ in range(400)]
    return [" ".join(words)] * 2


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_training_twice_gives_the_same_pieces_though_many_are_tied(kind):
    found = {vocabulary_training.train(kind, 120, iter(many_words())).sha256 for _ in range(4)}
    assert len(found) == 1


def test_wordpiece_knows_the_frequent_characters_and_never_has_more_pieces_than_asked():
    lines = ["aaaa bbbb cccc dddd eeee ffff gggg"] * 3000 + ["\u4e00"]
    words = vocabulary_training.train("wordpiece", 64, iter(lines))
    assert "\u4e00" not in words.pieces  # one in 60,000
    assert {"a", "##a", "gggg"} <= set(words.pieces)
    assert vocabulary_training.train("wordpiece", 16, iter(lines)).size <= 16


def test_a_line_too_long_for_sentencepiece_is_learnt_in_parts():
    (line, _) = many_words()
    words = vocabulary_training.train("sentencepiece", 120, iter([f"{line} " * 40]))  # 80,000 bytes
    assert words.size == 120


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("b.txt is cut off"), OSError(5)])
def test_an_error_while_text_is_read_stays_itself(error):
    """SIGTERM in there was an error about the text, with the exit code of bad input."""

    def lines():
        yield "the cat sees a letter."
        raise error

    with pytest.raises(type(error)) as raised:
        vocabulary_training.train("sentencepiece", 40, lines())
    assert raised.value is error


def test_too_small_a_vocabulary_is_refused():
    alphabet = " ".join("abcdefghijklmnopqrstuvwxyz")
    with pytest.raises(ValueError, match="of 20 cannot be trained .* alone are 3[0-9]; take more"):
        vocabulary_training.train("sentencepiece", 20, iter([alphabet] * 20))
    with pytest.raises(ValueError, match="a vocabulary of 4 is too small; 16 is the least"):
        vocabulary_training.train("wordpiece", 4, iter([alphabet]))


@pytest.fixture
def byte_level(tmp_path):
    """A tokenizer.json as RoBERTa's: <s> and friends, Ġ before words."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the cat sat on the mat"] * 20, trainer)
    made.enable_truncation(3)
    made.enable_padding(length=9)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_pieces_of_bytes_are_spelled_as_people_read_them(byte_level):
    words = vocabulary.load(str(byte_level))
    (ids,) = words.encode(["the café"])
    assert [words.spelled(id_) for id_ in ids] == ["the", "▁", "c", "a", "f", "·", "·"]
    assert words.spelled(words.mask_id) == "<mask>"
    assert words.piece(ids[0]) == "Ġthe"


def test_markers_that_were_added_as_special_tokens_are_found_in_text(byte_level):
    """As transformers finds them; [MASK] and the like have a role and are plain text."""
    made = tokenizers.Tokenizer.from_file(str(byte_level))
    made.add_special_tokens(["[E1]", "[/E1]"])
    made.save(str(byte_level))
    words = vocabulary.load(str(byte_level))
    (ids,) = words.encode(["the [E1] cat [/E1] <mask>"])
    pieces = [words.piece(id_) for id_ in ids]
    assert pieces.count("[E1]") == pieces.count("[/E1]") == 1 and "<mask>" not in pieces


def test_a_tokenizer_json_speaks_without_its_special_tokens(byte_level):
    words = vocabulary.load(str(byte_level))
    assert (words.cls_id, words.pad_id, words.sep_id, words.unk_id, words.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    (ids,) = words.encode(["the cat <mask> sat </s> on the mat"])  # longer than its truncation
    assert not set(ids.tolist()) & set(words.special_ids)
    assert words.decode(ids).strip() == "the cat <mask> sat </s> on the mat"
    assert words.starts_word_V[words.pieces.index("Ġthe")]
    assert not words.starts_word_V[words.pieces.index("a")]


def test_spacing_and_truncation_of_a_tokenizer_json_make_no_other_vocabulary(byte_level):
    before = vocabulary.load(str(byte_level)).sha256
    content = json.loads(byte_level.read_text())
    content["truncation"] = content["padding"] = None
    byte_level.write_text(json.dumps(content, indent=7))
    assert vocabulary.load(str(byte_level)).sha256 == before


def model(**options):
    """A SentencePiece model of somebody else."""
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 20),
        model_writer=data,
        vocab_size=28,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return data.getvalue()


def test_a_mask_that_its_model_finds_in_text_becomes_unknown(tmp_path):
    (tmp_path / "a.model").write_bytes(model(user_defined_symbols="[MASK]"))
    words = vocabulary.load(str(tmp_path / "a.model"))
    (ids,) = words.encode(["the [MASK] cat"])
    assert words.mask_id == 4 and words.mask_id not in ids
    assert words.unk_id in ids


def test_other_spacing_rules_are_another_vocabulary(tmp_path):
    (tmp_path / "a.model").write_bytes(model(control_symbols="[MASK]"))
    (tmp_path / "b.model").write_bytes(model(control_symbols="[MASK]", add_dummy_prefix=False))
    first, second = (vocabulary.load(str(tmp_path / name)) for name in ("a.model", "b.model"))
    assert first.sha256 != second.sha256


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"\xff\xfe", "a.txt: not a vocab.txt"),
        ("a.txt", b"[PAD]\na\na\n", "a.txt: piece 'a' occurs twice"),
        ("a.txt", b"", "a.txt: the wordpiece vocabulary has no pad token"),
        ("a.model", b"", "a.model: the sentencepiece vocabulary has no pad token"),
        ("vocabulary.json", b'{"kind": "word', "vocabulary.json is damaged; prepare again"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(name, data, message, tmp_path):
    (tmp_path / name).write_bytes(data)
    path = tmp_path if name == "vocabulary.json" else tmp_path / name
    with pytest.raises(ValueError, match=message) as error:
        vocabulary.load(str(path))
    assert "\n" not in str(error.value)


def test_lines_of_a_vocab_txt_end_with_line_feeds_alone(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\u2028", "\x85", "b"]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(pieces).encode() + b"\r\n")
    assert vocabulary.load(str(tmp_path / "vocab.txt")).pieces == pieces


def test_no_lines_are_no_ids():
    words = vocabulary_training.train("wordpiece", 32, iter(["a cat"] * 9))
    assert words.encode([]) == []
    assert [ids.tolist() for ids in words.encode(["", ""])] == [[], []]


@pytest.fixture(scope="module")
def codecs(tmp_path_factory):
    """One vocabulary of each kind, with the characters of the texts below."""
    lines = ["the cafe on the mat, said Ann; 北京 han ﬁne ½"] * 20 + many_words()
    folder = tmp_path_factory.mktemp("codecs")
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(lines, trainer)
    made.save(str(folder / "tokenizer.json"))
    return {
        "sentencepiece": vocabulary_training.train("sentencepiece", 100, iter(lines)),
        "wordpiece": vocabulary_training.train("wordpiece", 100, iter(lines)),
        "tokenizer_json": vocabulary.load(str(folder / "tokenizer.json")),
    }


TEXTS = (
    "the cafe",
    "  The   CAFÉ on\tthe mat ",
    "the cafe\u0301, said",  # the accent is a character of its own
    "北京 the 北京",
    "한 the",  # three letters in one character
    "ﬁne ½ the",  # characters that become several
    "",
    " ",
    "\ud800 the",
)


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece", "tokenizer_json"])
def test_offsets_come_with_the_same_ids_and_read_forward(kind, codecs):
    words = codecs[kind]
    plain = words.encode(TEXTS)
    for text, ids, (again, spans) in zip(TEXTS, plain, words.encode_with_offsets(TEXTS)):
        assert again.tolist() == ids.tolist(), text
        assert spans.shape == (len(ids), 2) and spans.dtype == np.int32
        assert (spans[:, 0] <= spans[:, 1]).all() and (np.diff(spans[:, 0]) >= 0).all(), text
        assert not any(text[b:e] != text[b:e].strip() for b, e in spans), text
        covered = {place for begin, end in spans for place in range(begin, end)}
        left_out = {n for n, c in enumerate(text) if n not in covered and not c.isspace()}
        # Half a character is normalised away by some, and unknown to others.
        assert {text[n] for n in left_out} <= {"\ud800"}, text


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece", "tokenizer_json"])
def test_an_offset_is_where_the_word_stands_in_the_text(kind, codecs):
    text = "  The   CAFÉ on 北京 a cafe\u0301 , the mat"
    ((ids, spans),) = codecs[kind].encode_with_offsets([text])
    for word in ("CAFÉ", "on", "北京", "cafe\u0301", "mat"):
        begin = text.index(word)
        inside = [(b, e) for b, e in spans.tolist() if b < e and begin <= b < begin + len(word)]
        assert inside[0][0] == begin and inside[-1][1] == begin + len(word), word
    assert len(ids) == len(spans)


def test_a_folder_of_another_tokenizer_is_told_the_file_to_give(tmp_path):
    with pytest.raises(ValueError, match="holds no vocabulary.json; give a .model, .txt or"):
        vocabulary.load(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=f"give {tmp_path}/tokenizer.json"):
        vocabulary.load(str(tmp_path))
