# SPDX-License-Identifier: Apache-2.0
"""Text from every kind of file, and the words it is made of."""

import collections
import gzip
import importlib.util
import json
import lzma
import pickle

import pyarrow
import pytest
from pyarrow import parquet

from electra_jax.data import builtin, text, text_files, vocabulary, vocabulary_training
from electra_jax.data.text_options import TextOptions

DOCUMENTS = ["one line\nanother line", "second document"]


def read(spec, **options):
    """(documents, counts) of a source, unit by unit."""
    (source,) = text.parse(spec)
    counts = collections.Counter()
    found = []
    for unit in text.units(source):
        found += unit.documents(TextOptions(**options), counts)
    return found, counts


def compress(path, data):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".xz":
        path.write_bytes(lzma.compress(data))
    elif path.suffix == ".zst":
        with pyarrow.CompressedOutputStream(pyarrow.OSFile(str(path), "wb"), "zstd") as stream:
            stream.write(data)
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["txt", "doc", "jsonl", "parquet"])
def test_the_same_documents_from_every_kind_of_file(kind, ending, tmp_path):
    if kind == "txt":
        data = b"\xef\xbb\xbfone line\r\nanother line\r\n\r\n\r\nsecond document"
    elif kind == "doc":
        data = (
            b'<doc id="1" url="u">\none line\n\nanother line\n</doc>\n'
            b'<doc id="2">\nsecond document\n</doc>\n'
        )
    elif kind == "jsonl":
        data = "\n".join(json.dumps({"text": d, "n": 1}) for d in DOCUMENTS).encode()
    else:
        buffer = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table({"text": DOCUMENTS}), buffer)
        data = buffer.getvalue().to_pybytes()
    name = {"txt": "a.txt", "doc": "a.txt"}.get(kind, f"a.{kind}") + ending
    compress(tmp_path / name, data)
    assert read(f"text:{tmp_path}/*")[0] == DOCUMENTS


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_a_file_may_be_one_document_whose_blank_lines_end_nothing(ending, tmp_path):
    compress(
        tmp_path / f"a.txt{ending}", b"a title\n\nfirst paragraph\r\n \n\nsecond paragraph\n\n"
    )
    compress(tmp_path / f"b.txt{ending}", b"\n\nanother book")
    assert read(f"text:{tmp_path}/*", documents="files")[0] == [
        "a title\nfirst paragraph\nsecond paragraph",
        "another book",
    ]
    assert len(read(f"text:{tmp_path}/*")[0]) == 4
    assert read(f"text:{tmp_path}/*", documents="lines")[0] == [
        "a title", "first paragraph", "second paragraph", "another book",
    ]  # fmt: skip


def test_a_line_may_be_a_document_without_blank_lines(tmp_path):
    (tmp_path / "a.txt").write_text("one abstract\nanother one\r\n\n\nthe last")
    found = ["one abstract", "another one", "the last"]
    assert read(f"text:{tmp_path}/*", documents="lines")[0] == found
    assert len(read(f"text:{tmp_path}/*")[0]) == 2


def test_where_a_file_is_a_document_tags_and_lines_of_json_still_end_some(tmp_path):
    (tmp_path / "a.txt").write_text("loose\n\nwords\n<doc id='1'>\none\n\ntwo\n</doc>\n\nmore\n")
    (tmp_path / "b.jsonl").write_text('{"text": "three\\n\\nfour"}\n\n{"text": "five"}\n')
    assert read(f"text:{tmp_path}/*", documents="files")[0] == [
        "loose\nwords", "one\ntwo", "more", "three\nfour", "five",
    ]  # fmt: skip
    assert read(f"text:{tmp_path}/*", documents="lines")[0] == [
        "loose", "words", "one\ntwo", "more", "three\nfour", "five",
    ]  # fmt: skip


@pytest.mark.parametrize("documents", ["blank_lines", "lines", "files"])
def test_a_tagged_document_may_stand_on_one_line(documents, tmp_path):
    (tmp_path / "a.txt").write_text(
        'before\n\n<doc id="1" title="a > b">hello world</doc>\n<doc id=2></doc>\nplain\n\nmore'
    )
    found, counts = read(f"text:{tmp_path}/*", documents=documents)
    after = [
        "before",
        "hello world",
        *(["plain\nmore"] if documents == "files" else ["plain", "more"]),
    ]
    assert (found, counts) == (after, {"empty": 1})


def test_stripes_of_a_file_are_its_documents_once(tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("\n\n".join(f"document {number}" for number in range(1500)))
    counts = collections.Counter()
    stripes = [
        list(text.FileUnit(str(path), k, 3).documents(TextOptions(), counts)) for k in range(3)
    ]
    assert all(stripes)
    assert sorted(sum(stripes, [])) == sorted(f"document {number}" for number in range(1500))


def test_invalid_utf8_is_replaced_and_counted_or_refused(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 au lait\n\nfine")
    found, counts = read(f"text:{tmp_path}/*")
    assert found == ["caf\ufffd au lait", "fine"]
    assert counts["invalid_utf8"] == 1
    with pytest.raises(ValueError, match=r"bad.txt: invalid UTF-8 near byte 3"):
        read(f"text:{tmp_path}/*", invalid_utf8="refuse")


def test_empty_short_and_odd_documents_are_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"text": t}) for t in ("", " \n ", "ab", "a\0bcdef"))
    )
    found, counts = read(f"text:{tmp_path}/*", min_document_characters=3)
    assert found == ["abcdef"]
    assert counts == {"empty": 2, "skipped_short": 1}


@pytest.mark.parametrize("groups", [1, 4])
def test_bad_bytes_of_parquet_are_counted_once_in_whatever_stripe_they_are(groups, tmp_path):
    """With a group of rows for each stripe none reads what another does; of one group all do."""
    table = pyarrow.table({"text": [f"caf {n}".encode() + b"\xe9" for n in range(8)]})
    path = str(tmp_path / "a.parquet")
    parquet.write_table(table, path, row_group_size=8 // groups)
    counts = [collections.Counter() for _ in range(4)]
    for stripe, own in enumerate(counts):
        list(text.FileUnit(path, stripe, 4).documents(TextOptions(), own))
    assert [own["invalid_utf8"] for own in counts] == ([8, 0, 0, 0] if groups == 1 else [2] * 4)


def test_a_line_of_megabytes_is_one_line(tmp_path):
    (tmp_path / "long.txt").write_text("word " * 1_000_000)
    (found,) = read(f"text:{tmp_path}/*")[0]
    assert len(found) == 4_999_999


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text": \n', "a.jsonl, line 2: not JSON"),
        ('{"body": "a"}\n', "no field 'text' .there is: body.; set data.text_field"),
        ('{"text": 3}\n', "line 1, field 'text' is int, not text; set data.text_field"),
        ('[{"text": "a"}, {"text": "b"}]', "a.jsonl is one list of records, .* as jq -c '[.]..' "),
        ('[\n  {"text": "a"},\n  {"text": "b"}\n]\n', "a.jsonl is one list of records, "),
        ('{\n  "text": "a"\n}\n', "a.jsonl breaks its records, .* as jq -c [.] does"),
    ],
)
def test_bad_json_lines_are_named(content, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(f"text:{tmp_path}/*")


def test_records_without_the_field_are_empty_documents(tmp_path):
    lines = ['{"title": "x"}', '{"text": "a"}', '{"title": "x", "text": null}', '{"text": "b"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read(f"text:{tmp_path}/*") == (["a", "b"], {"empty": 2})


@pytest.mark.parametrize("there, records", [(0, 3), (300, 1000)])
def test_a_field_that_no_record_has_at_first_is_misspelt(tmp_path, there, records):
    """In a long file that is known before its end."""
    names = ["text" if there and number >= there else "body" for number in range(records)]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"{name}": "a"}}\n' for name in names))
    with pytest.raises(ValueError, match="a.jsonl, line 1: no field 'text' .there is: body.; set"):
        read(f"text:{tmp_path}/*")


def test_a_part_within_a_file_may_have_no_record_with_the_field(tmp_path):
    """A whole file says whether the field is misspelt, one of its parts does not."""
    names = ["text"] * 256 + ["body"] * 256 + ["text"] * 10
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"{name}": "a"}}\n' for name in names))
    found = [
        list(text_files.documents(str(path), TextOptions(), {}, [text_files.FilePart(*block)]))
        for block in text_files.blocks(str(path), TextOptions(), {}).tolist()
    ]
    assert found == [["a"] * 256, [""] * 256, ["a"] * 10]


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_a_truncated_file_is_named(ending, tmp_path):
    path = tmp_path / f"a.txt.{ending}"
    compress(path, ("some words here\n" * 50_000).encode())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=f"a.txt.{ending} cannot be read: .*is the file whole"):
        read(f"text:{tmp_path}/*")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "data.source is empty"),
        ("wiki", r"'wiki' is none of builtin, text:GLOB, text:ADDRESS.*NAME\[/CONFIG\]\[:SPLIT\]$"),
        ("a/*.txt", r"is none of builtin, text:GLOB.*; did you mean text:a/\*.txt\?$"),
        ("text:", "is none of"),
        ("builtin@-1", "must be a positive number"),
        ("builtin@1;text:a.txt", "1 of 2 sources of data.source have a weight"),
        ("text:/nowhere/*.txt", "matches no file; the folder /nowhere does not exist"),
    ],
)
def test_a_bad_source_is_one_line(spec, message):
    with pytest.raises(ValueError, match=message) as error:
        for source in text.parse(spec):
            text.fingerprint(source)
    assert "\n" not in str(error.value)


def test_sources_have_weights_and_names_of_their_own():
    sources = text.parse("text:en/*.txt@3; text:de/a.jsonl.gz@1 ;builtin@0.5")
    assert [(s.spec, s.name, s.weight) for s in sources] == [
        ("text:en/*.txt", "en", 3.0),
        ("text:de/a.jsonl.gz", "a", 1.0),
        ("builtin", "builtin", 0.5),
    ]
    assert [s.name for s in text.parse("text:x/*.txt;text:x/*.jsonl")] == ["x", "x2"]


DOCSTRING = """Return the sum of all numbers in the given list of values.

    The value of ``start`` is added to it, as in :func:`~math.fsum`.  It is
    used for numbers only and will not take strings.

    Parameters
    ----------
    values : list
        What to add up.

    For example, this is how it is used in a program::

        total = add(values)

        print(total)

    >>> add([1, 2])
    3

    - a list item that is not a sentence of its own
    """


def test_prose_is_what_a_docstring_says_in_sentences():
    assert list(builtin.prose(DOCSTRING)) == [
        "Return the sum of all numbers in the given list of values.",
        "The value of start is added to it, as in fsum. It is used for numbers only and will"
        " not take strings.",
    ]
    assert builtin.sentences("One is here. Two is there, e.g. this one. Three.") == [
        "One is here.",
        "Two is there, e.g. this one.",
        "Three.",
    ]


def test_the_topics_alone_are_thousands_of_words_and_always_the_same():
    topics = builtin.CorpusPart(builtin.TOPICS)
    found = list(topics.documents())
    assert found == list(topics.documents())
    lines = [line for document in found for line in document.split("\n")]
    assert sum(len(line.split()) for line in lines) > 10_000
    assert len(builtin.parts()) > 15


LINES = ["the cat sat on the mat", "a dog and a cat", "the café is open", "日本語 の テキスト"] * 50


SIZES = {"sentencepiece": 32, "wordpiece": 60}


@pytest.fixture(scope="module", params=SIZES)
def words(request):
    return vocabulary_training.train(request.param, SIZES[request.param], iter(LINES))


def test_special_ids_are_the_first_five_and_never_come_out_of_text(words):
    assert (words.pad_id, words.unk_id, words.cls_id, words.sep_id, words.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert words.special_ids == (0, 2, 3, 4)
    (ids,) = words.encode(["[CLS] the [MASK] cat [SEP] [PAD]"])
    assert not set(ids.tolist()) & set(words.special_ids)


def test_text_comes_back_without_accents_and_capitals(words):
    upper, lower = words.encode(["THE CAFÉ", "the cafe"])
    assert upper.tolist() == lower.tolist()
    assert words.decode([words.cls_id, *lower, words.sep_id]) == "the cafe"


def test_pieces_that_begin_a_word_are_marked(words):
    (ids,) = words.encode(["the cat sat on the mat"])
    assert sum(words.starts_word_V[ids]) == 6
    assert words.starts_word_V[list(words.special_ids)].all()


def test_lone_surrogates_and_nothing_at_all_are_harmless(words):
    surrogate, empty = words.encode(["\ud800 cat", ""])
    assert len(surrogate) >= 1
    assert len(empty) == 0


def test_a_vocabulary_comes_back_from_disk_and_from_another_process(words, tmp_path):
    words.save(str(tmp_path))
    for other in (vocabulary.load(str(tmp_path)), pickle.loads(pickle.dumps(words))):
        assert other.sha256 == words.sha256
        assert [ids.tolist() for ids in other.encode(LINES[:4])] == [
            ids.tolist() for ids in words.encode(LINES[:4])
        ]


def test_a_saved_vocabulary_that_was_exchanged_is_refused(words, tmp_path):
    words.save(str(tmp_path))
    other = vocabulary_training.train(words.kind, SIZES[words.kind] - 2, iter(LINES))
    native = tmp_path / vocabulary.FILES[words.kind]
    other.save(str(tmp_path / "other"))
    native.write_bytes((tmp_path / "other" / native.name).read_bytes())
    with pytest.raises(ValueError, match="is not the file that vocabulary.json describes"):
        vocabulary.load(str(tmp_path))


def test_wordpiece_is_berts(tmp_path):
    """Longest piece first, ## inside words, punctuation and Chinese characters alone."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", ",", "日", "!"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    words = vocabulary.load(str(tmp_path / "vocab.txt"))
    (ids,) = words.encode(["Unaffable, 日日 ünaff xyz!"])
    assert ids.tolist() == [5, 6, 7, 8, 9, 9, 5, 6, 1, 10]


def test_missing_special_tokens_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    with pytest.raises(ValueError, match=r"no mask token .\[MASK\] or <mask>."):
        vocabulary.load(str(tmp_path / "vocab.txt"))


def test_what_is_no_vocabulary_is_refused(tmp_path):
    (tmp_path / "broken.model").write_bytes(b"not a model")
    (tmp_path / "broken.json").write_bytes(b"{}")
    for path, message in (
        ("broken.model", "not a SentencePiece model"),
        ("broken.json", "not a tokenizer.json"),
        ("none.txt", "cannot be read"),
        ("what.bin", "is none of"),
    ):
        with pytest.raises(ValueError, match=message):
            vocabulary.load(str(tmp_path / path))


def test_too_large_a_vocabulary_names_the_largest():
    with pytest.raises(ValueError, match=r"of 5000 cannot be trained .* the most is \d+"):
        vocabulary_training.train("sentencepiece", 5000, iter(LINES))


def test_clients_of_google_are_no_part_of_the_builtin_text(tmp_path, monkeypatch):
    """They install themselves into the package `google`, of which protobuf alone is ours."""
    folder = tmp_path / "google" / "cloud"
    folder.mkdir(parents=True)
    sentence = "The client of a service is made once and used by all of the threads in a program."
    (folder / "client.py").write_text(f'"""{sentence}"""\n')
    before = builtin.identity()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()

    assert importlib.util.find_spec("google.cloud.client")  # else nothing here could fail
    found = [part for part in builtin.parts() if part.name.startswith("google")]
    assert [part.name for part in found] == ["google.protobuf"]
    assert all(sentence not in document for part in found for document in part.documents())
    assert builtin.identity() == before


@pytest.mark.parametrize("name", ["notes.csv", "notes.TSV.gz"])
def test_a_table_is_refused_and_told_how_it_can_be_read(tmp_path, name):
    (tmp_path / name).write_text("pmid,abstract\n1,a text\n")
    with pytest.raises(ValueError, match=r"is a table, .*\.jsonl or \.parquet \(data.text_field"):
        text.units(*text.parse(f"text:{tmp_path}/*"))


@pytest.mark.parametrize("name", ["dawiki-pages-articles.xml.bz2", "page.HTML", "crawl.warc.gz"])
def test_markup_is_refused_since_its_tags_would_be_trained_on(tmp_path, name):
    (tmp_path / name).write_text("<page><title>Faroe</title></page>\n")
    with pytest.raises(ValueError, match=rf"{name} is markup, .* as \.jsonl \(WikiExtractor does"):
        text.units(*text.parse(f"text:{tmp_path}/*"))
