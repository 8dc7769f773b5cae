# SPDX-License-Identifier: Apache-2.0
"""Files of words and tags, as the format of CoNLL is found in the wild."""

import dataclasses
import zipfile

import pytest

from electra_jax.finetuning.tasks import built_in, conll, custom, examples, new_files, reading, task


def read(name, place):
    return reading.read(built_in.named(name), str(place))


def read_custom(place, **settings):
    return reading.read(custom.task(settings), str(place))


def test_sentences_end_at_blank_lines_even_with_a_tab_in_them(tmp_path):
    (tmp_path / "wnut17train.conll").write_text(
        "Ann\tB-person\n\xa0\tO\n\t\nNew\tB-location\r\nYork\tI-location\r\n \r\nhi\tO", newline=""
    )
    (tmp_path / "emerging.dev.conll").write_text("Bob\tB-person\n\n\n")
    data = read("wnut17", tmp_path)
    assert [(e.words, e.tags) for e in data.train.examples] == [
        (("Ann", "\xa0"), ("B-person", "O")),
        (("New", "York"), ("B-location", "I-location")),
        (("hi",), ("O",)),
    ]
    assert data.task.labels == ("O", "B-location", "B-person", "I-location")


@pytest.mark.parametrize("words, noted", [(1_000, False), (1_001, True)])
def test_a_file_in_which_nothing_ends_a_sentence_is_pointed_out(tmp_path, words, noted):
    path = tmp_path / "new.txt"
    path.write_text("Bob\tO\n\n" + "Ann\tB-person\n" * words)
    report, source = examples.Report(), task.SplitFiles(files=(), label=-1)
    conll.read(str(path), source, True, "wnut17 test", report)
    line = f"{path} has a sentence of 1,001 words; only a blank line ends one"
    assert (line in report.lines()) is noted


def test_the_language_before_every_word_is_taken_off(tmp_path):
    (tmp_path / "en.train").write_text("en:Ann\tB-PER\nen:a:b\tO\n\n")
    (tmp_path / "en.dev").write_text("en:x\tO\n\nen:is\tO\n")
    data = read("wikiann_en", tmp_path)
    assert data.train.examples[0].words == ("Ann", "a:b")
    assert [e.words for e in data.dev["dev"].examples] == [("x",), ("is",)]
    (tmp_path / "en.train").write_text("en:Ann\tB-PER\nplain\tO\n\n")
    assert read("wikiann_en", tmp_path).train.examples[0].words == ("en:Ann", "plain")


def test_chunks_are_read_from_a_member_of_an_archive_and_dev_is_cut_off(tmp_path):
    train = "".join(f"w{i} NN B-NP\n. . O\n\n" for i in range(40))
    with zipfile.ZipFile(tmp_path / "conll2000.zip", "w") as archive:
        archive.writestr("conll2000/train.txt", train)
        archive.writestr("conll2000/test.txt", "a DT B-NP\nb NN I-NP\n")
    data = read("chunking", tmp_path)
    assert data.test["test"].examples == (
        examples.TaggedExample("0", ("a", "b"), ("B-NP", "I-NP")),
    )
    assert len(data.train.examples) + len(data.dev["dev"].examples) == 40
    assert data.train.files == (f"{tmp_path}/conll2000.zip/conll2000/train.txt",)


def test_columns_that_change_are_refused_and_document_marks_left_out(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nsaid VBD B-VP O\n\nhe PRP O\n")
    (tmp_path / "valid.txt").write_text("EU NNP B-NP B-ORG\n")
    with pytest.raises(ValueError, match="train.txt:6: 3 columns where the first line has 4"):
        read("ner", tmp_path)
    # A no-break space is a word, not the end of a column.
    path.write_text("-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n\xa0 VBD  B-VP O\n")
    assert read("ner", tmp_path).train.examples == (
        examples.TaggedExample("0", ("EU", "\xa0"), ("B-ORG", "O")),
    )
    path.write_text("EU\nsaid\n")
    with pytest.raises(ValueError, match="train.txt:1: a word without a tag"):
        read("ner", tmp_path)


def test_plain_tags_are_refused_where_entities_are_asked_for(tmp_path):
    (tmp_path / "train.txt").write_text("we PRON\nare VERB\n\nhere ADV\n")
    settings = dict(kind="tagging", train="train.txt", dev="train.txt", label=1, text=0)
    with pytest.raises(ValueError, match="tag 'ADV'|tag 'PRON'|tag 'VERB'"):
        reading.read(custom.task(settings), str(tmp_path))
    reading.read(custom.task(settings | {"metrics": "token_accuracy"}), str(tmp_path))


def test_a_bare_tag_is_an_entity_where_there_is_one_kind(tmp_path):
    (tmp_path / "a.txt").write_text("breast B\ncancer I\nhere O\n")
    data = read_custom(tmp_path, kind="tagging", train="a.txt", dev="a.txt", label=1, text=0)
    assert data.task.labels == ("O", "B", "I")


def test_tags_that_the_task_names_stand_in_its_order(tmp_path):
    (tmp_path / "a.txt").write_text("a O\nb B-X\n")
    settings = dict(kind="tagging", train="a.txt", dev="a.txt", label=1, text=0)
    named = read_custom(tmp_path, labels="B-X,I-X,O", **settings)
    assert named.task.labels == ("B-X", "I-X", "O")  # also one that train does not have
    message = "train: tag 'B-X' of the sentence 'a b' is none of custom.labels, O, B-Y; name all"
    with pytest.raises(ValueError, match=message):
        read_custom(tmp_path, labels="O,B-Y", **settings)


@pytest.mark.parametrize("separator", ["\t", " "])
def test_comments_and_separators_at_the_end_are_no_words(tmp_path, separator):
    """A word may well be '#', at the beginning of a sentence too."""
    rows = ["###MEDLINE:95369245", "", "# doc_id = 1", "IL-2 B-X ", "gene O", "", "# O", "5 O "]
    text = "\n".join(
        row if row.startswith(("##", "# d")) else row.replace(" ", separator) for row in rows
    )
    (tmp_path / "a.txt").write_text(text + "\n")
    data = read_custom(tmp_path, kind="tagging", train="a.txt", dev="a.txt", label=1, text=0)
    assert [example.words for example in data.train.examples] == [("IL-2", "gene"), ("#", "5")]
    assert "comments skipped" in str(data.report.lines())


@pytest.mark.parametrize(
    "content", ["B-cells\nrise\n", "1 B-cells\n2 rise\n", "1 B-cells O\n2 rise unheard-of\n"]
)
def test_new_words_need_no_tags_and_no_column_for_them(tmp_path, content):
    (tmp_path / "new.txt").write_text(content)
    task = custom.task(dict(kind="tagging", train="a.txt", label=2, text=1))
    split = new_files.read_new(task, str(tmp_path / "new.txt"), examples.Report())
    assert [(example.words, example.tags) for example in split.examples] == [
        (("B-cells", "rise"), None)
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Ann\nsleeps\n", "new.txt:1: a word without a tag"),
        ("Ann NOUN\nsleeps VERB\n", "tag 'NOUN' of the sentence 'Ann sleeps' is none of O, B-"),
        (
            "a O\nb O\nc O\nd O\ne O\nf O\ng NN\n",
            "new.txt: tag 'NN' of the sentence 'a b c d e f ...' is none of O, B-",
        ),
    ],
)
def test_words_to_score_have_tags_that_the_metrics_can_read(tmp_path, content, message):
    """A kind of entities that train does not have is counted as missed, as in a dev set."""
    task = dataclasses.replace(built_in.named("ner"), labels=("O", "B-PER"))
    (tmp_path / "new.txt").write_text("Ann B-DOG\nsleeps O\n")
    split = new_files.read_labelled(task, str(tmp_path / "new.txt"), examples.Report())
    assert [example.tags for example in split.examples] == [("B-DOG", "O")]
    (tmp_path / "new.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        new_files.read_labelled(task, str(tmp_path / "new.txt"), examples.Report())


CONLL_U = """\
# sent_id = 1
# text = Er ist im Haus.
1 Er er PRON PPER _ 4 nsubj _ _
2 ist sein AUX VAFIN _ 4 cop _ _
3-4 im _ _ _ _ _ _ _ _
3 in in ADP APPR _ 5 case _ _
4 dem der DET ART _ 5 det _ _
5 Haus Haus NOUN NN _ 0 root _ SpaceAfter=No
5.1 ist sein AUX _ _ _ _ 5:cop _
6 . . PUNCT $. _ 5 punct _ _
"""


def write_conll_u(path, text=CONLL_U):
    lines = (line if line.startswith("#") else "\t".join(line.split()) for line in text.split("\n"))
    path.write_text("\n".join(lines) + "\n")


def test_lines_of_conll_u_that_are_no_words_of_their_sentence_are_skipped(tmp_path):
    """Else a word with the tag `_` would stand beside the two words that it is made of."""
    write_conll_u(tmp_path / "a.conllu")
    data = read_custom(
        tmp_path, kind="tagging", train="a.conllu", dev="a.conllu", text=1, label=3,
        metrics="token_accuracy",
    )  # fmt: skip
    words, tags = "Er ist in dem Haus .".split(), "PRON AUX ADP DET NOUN PUNCT".split()
    assert [(e.words, e.tags) for e in data.train.examples] == [(tuple(words), tuple(tags))]
    assert data.task.labels == ("ADP", "AUX", "DET", "NOUN", "PRON", "PUNCT")
    reported = data.report.counts
    assert reported["custom train", "lines for several words skipped, whose own lines follow"] == 1
    assert reported["custom train", "lines for words that are not written skipped"] == 1

    task = custom.task(dict(kind="tagging", train="a.conllu", text=1, label=3))
    new = new_files.read_new(task, str(tmp_path / "a.conllu"), examples.Report())
    assert [example.words for example in new.examples] == [tuple(words)]


@pytest.mark.parametrize("columns", [{}, {"label": 3}, {"text": 1, "label": 0}])
def test_the_numbers_of_conll_u_are_neither_words_nor_tags(tmp_path, columns):
    write_conll_u(tmp_path / "a.conllu")
    message = r"a.conllu:3: column 0 of CoNLL-U numbers the words; set custom.text=1, and custom.la"
    with pytest.raises(ValueError, match=message):
        read_custom(tmp_path, kind="tagging", train="a.conllu", dev="a.conllu", **columns)


def test_other_tables_of_ten_columns_are_read_as_they_are(tmp_path):
    """In one that numbers sentence and word as 1-1, 1-2 each line is a word."""
    write_conll_u(tmp_path / "a.tsv", "\n".join(f"1-{n} w{n} _ _ _ _ _ _ _ O" for n in (1, 2)))
    write_conll_u(tmp_path / "b.tsv", "\n".join(f"{n} a _ _ _ _ _ _ _ O" for n in ("3-4", "x")))
    for name, words in (("a.tsv", ("w1", "w2")), ("b.tsv", ("a", "a"))):
        data = read_custom(tmp_path, kind="tagging", train=name, dev=name, text=1)
        assert [example.words for example in data.train.examples] == [words]
