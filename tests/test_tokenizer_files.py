# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files give the ids of training, in several scripts, and come back as they were."""

import json

import numpy as np
import pytest
import tokenizers

from electra_jax.data import vocabulary, vocabulary_training
from electra_jax.weights.formats import tokenizer_files

LINES = [
    "The quick brown fox jumps over the lazy dog, twice.",
    "In 1984 it cost $3.50 (about 2 %), didn't it?",
    "Der Fluß fließt übers Land; ÄÖÜ äöü, ﬁne ligatures.",
    "L'élève a mangé des pâtes à Noël, où ça ?",
    "El niño pequeño salió mañana; ¿qué hora es?",
    "Český kůň přeběhl řeku. Żółw ściga łódź.",
    "Ο γρήγορος σκύλος έτρεξε στην Αθήνα χθες.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ґанок, їжак і єдність: українською мовою.",
    "הכלב המהיר קפץ מעל הגדר אתמול בערב.",
    "الكلب السريع قفز فوق السياج مساء أمس، أليس كذلك؟",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়।",
    "வேகமான நரி சோம்பேறி நாயின் மேல் குதித்தது.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘었다.",
    "한국어 문장은 띄어쓰기가 있습니다. 좋아요!",
    "敏捷的棕色狐狸跳过了懒狗。今天天气很好。",
    "素早い茶色の狐がのろまな犬を飛び越えた。ﾊﾝｶｸ カタカナ。",
    "Nhanh như chớp, con cáo nâu nhảy qua con chó lười.",
    "Hızlı kahverengi tilki tembel köpeğin üstünden atlar: İIıi.",
    "სწრაფი ყავისფერი მელა ზარმაც ძაღლს გადაახტა.",
    "Արագ շագանակագույն աղվեսը ցատկեց ծույլ շան վրայով։",
    "   spaces   at both ends\tand tabs   ",
    "“Quoted” — dashes – and… dots; e-mail@example.org, C:\\path\\file",
    "x² + y² = z², ½ of ① is ＦＵＬＬ ｗｉｄｔｈ",
    "emoji 😀 and flags 🇫🇷, a family 👨‍👩‍👧",
    "co\u0301mbining a\u0308ccents na\u0303o composed",
    "ＡＢＣ １２３ ℃ ㎏ ㍿",
    "UPPER lower MiXeD camelCase snake_case",
]

KINDS = ["sentencepiece", "wordpiece", "tokenizer_json"]


def made(kind, lower_case=True, strip_accents=True):
    """A vocabulary of this kind, trained on the lines."""
    if kind != "tokenizer_json":
        size = 440 if kind == "sentencepiece" else 700
        return vocabulary_training.train(kind, size, iter(LINES * 3), lower_case, strip_accents)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return vocabulary.Vocabulary(kind, tokenizer.to_str().encode(), False, False)


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


def test_without_settings_a_vocab_txt_is_uncased(tmp_path):
    words = made("wordpiece")
    (tmp_path / "vocab.txt").write_bytes(words.native)
    assert tokenizer_files.read(str(tmp_path)).sha256 == words.sha256


def test_a_strangers_tokenizer_json_gives_its_own_ids(tmp_path):
    words = made("tokenizer_json")
    tokenizer_files.fast(words).save(str(tmp_path / "tokenizer.json"))
    found = tokenizer_files.read(str(tmp_path))
    for mine, other in zip(words.encode(LINES), found.encode(LINES)):
        np.testing.assert_array_equal(mine, other)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds neither vocab.txt nor tokenizer.json"):
        tokenizer_files.read(str(tmp_path))


def test_damaged_settings_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(made("wordpiece").native)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="tokenizer_config.json is no JSON object"):
        tokenizer_files.read(str(tmp_path))
