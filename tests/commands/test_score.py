# SPDX-License-Identifier: Apache-2.0
"""A trained run scores the sentences of a file, and those of a notebook."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import electra_jax
from electra_jax import config as config_lib
from electra_jax import score as score_command
from electra_jax.objectives import scoring
from support.corpus import ROOT, small_run, write_corpus

LONG = " ".join(["the cat sees a letter in the morning"] * 6)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(configuration, workdir) of a run of two steps, whose rows hold 32 tokens.

    Of its 64 positions half are still as they were drawn.
    """
    base = tmp_path_factory.mktemp("trained")
    corpus = write_corpus(base / "corpus.txt")
    source, data = f"text:{corpus}", str(base / "data")
    config = small_run(source, data, schedule__steps=2, model__max_positions=64)
    electra_jax.train(config, base / "run")
    return config_lib.parse(config), base / "run"


def test_the_command_scores_pairs_of_a_trained_run(trained, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat sees a letter.\tletter the a sees cat.\n\na bird.\tbird a.\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "electra_jax.score", f"--workdir={trained[1]}",
            f"--input={pairs}", "--first_is_right", "--json",
        ],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [len(row["scores"]) for row in found["rows"]] == [2, 2]
    assert [row["line"] for row in found["rows"]] == [1, 3], "the second line is empty"
    assert found["first_wins"] == np.mean([row["best"] == 0 for row in found["rows"]])
    assert all(score < 0 for row in found["rows"] for score in row["scores"])


def test_a_reader_of_scores_that_has_seen_enough_is_no_error(trained, tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("a bird.\n" * 8000)  # 160 kB of output, more than a pipe holds
    line = (
        f"{sys.executable} -m electra_jax.score --workdir={trained[1]} --input={path} | head -n 1;"
        " exit ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr and done.stdout.endswith("a bird.\n")


def score(trained, path, **values):
    """Calls the command in this process."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(input=str(path), **values):
        score_command.main(trained[0], str(trained[1]))


def test_a_score_that_is_no_number_is_null_in_json(capsys):
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(first_is_right=True):
        line = score_command._Line(3, ["a", "b"], [math.nan, 1.0], None)
        score_command._print_json([line], [], "")
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {
        "rows": [{"line": 3, "texts": ["a", "b"], "scores": [None, 1.0], "best": None}],
        "first_wins": 0.0,
    }


def test_by_both_networks_each_token_has_its_probability(trained, tmp_path, capsys):
    (tmp_path / "sentences.txt").write_text("a bird.\n")
    score(trained, tmp_path / "sentences.txt", tokens=True, json=True, by="both")
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    p_N = np.array([token["p"] for token in row["tokens"][0]])
    assert row["scores"] == [pytest.approx(np.log(p_N).sum(), abs=1e-4)]

    score(trained, tmp_path / "sentences.txt", tokens=True, by="both")
    key, *_, percentages, _ = capsys.readouterr().out.splitlines()
    assert key == "%: probability that the token stands there"
    assert percentages.startswith("probability ") and "!" not in percentages

    with pytest.raises(ValueError, match="cannot score by correction; it can by detection, gen"):
        score(trained, tmp_path / "sentences.txt", by="correction")


def test_a_notebook_scores_as_the_command_does(trained, tmp_path, capsys):
    texts = ["a bird.", "the cat sees a letter."]
    (tmp_path / "sentences.txt").write_text("\n".join(texts))
    scores = electra_jax.load_scorer(trained[1], by="both")
    for by, ask in (("both", scores), ("detection", electra_jax.load_scorer(trained[1]))):
        score(trained, tmp_path / "sentences.txt", tokens=True, json=True, by=by)
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert ask(texts).tolist() == [row["scores"][0] for row in rows]
        told = json.loads(json.dumps(ask.tokens(iter(texts))))
        assert told == [row["tokens"][0] for row in rows]

    with pytest.raises(ValueError, match="texts"):
        scores("a bird.")
    with pytest.raises(ValueError, match="more than the 30 that fit.*in Python truncate=True$"):
        scores([LONG])
    assert scores([LONG], truncate=True).shape == (1,)
    assert len(scores.tokens([LONG], truncate=True)[0]) == 30


def test_a_notebook_is_told_at_once_what_cannot_be_asked(trained, tmp_path):
    with pytest.raises(ValueError, match="cannot score by correction; it can by detection, gen"):
        electra_jax.load_scorer(trained[1], by="correction")
    with pytest.raises(config_lib.ConfigError, match=r"has no config.json; give that of a run"):
        electra_jax.load_scorer(tmp_path)
    with pytest.raises(config_lib.ConfigError, match=r"no checkpoint of step 1 .*; there are 2$"):
        electra_jax.load_scorer(trained[1], step=1)


def test_a_second_question_compiles_nothing(trained):
    scores = electra_jax.load_scorer(trained[1])
    first = scores(["a bird."])
    ((_, program),) = scores.scorer._programs
    assert program._cache_size() == 1
    assert scores(["a bird."]).tolist() == first.tolist() and program._cache_size() == 1


def test_tokens_follow_their_sentence_in_80_columns(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "a cat sees a letter in the morning"
    (tmp_path / "sentences.txt").write_text(f"{text}\ta bird.\n")
    score(trained, tmp_path / "sentences.txt", tokens=True)
    key, empty, first, *rest = capsys.readouterr().out.splitlines()
    assert key == "! more likely replaced than not   %: belief that it was replaced"
    assert empty == "" and first.endswith(f"  {text}")
    assert rest[0] == "" and rest[1].startswith("tokens         a  ")
    assert re.fullmatch(r"discriminator( +!?\d+%)+", rest[2])
    assert sum(line.endswith(" a bird.") for line in rest) == 1
    assert 70 < max(map(len, rest)) <= 80 and rest[-1] == ""


def test_tokens_have_their_characters_and_a_probability_in_json(trained, tmp_path, capsys):
    text = f"a cat  sees {LONG}"
    (tmp_path / "sentences.txt").write_text(text)
    score(trained, tmp_path / "sentences.txt", tokens=True, json=True, long="truncate")
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    (tokens,) = row["tokens"]
    assert len(tokens) == 30, "those that fit a row"
    assert [token["text"] for token in tokens] == [text[slice(*x["span"])] for x in tokens]
    assert tokens[0]["piece"] == "▁a" and tokens[0]["span"] == [0, 1]
    left_N = 1 - np.array([token["p_replaced"] for token in tokens])
    assert row["scores"] == [pytest.approx(np.log(left_N).sum(), abs=1e-4)]


def test_a_probability_that_is_no_number_is_null_in_json():
    token = scoring.Token("a", True, "a", (0, 1), p=math.inf)
    assert score_command._plain([token]) == [{"text": "a", "piece": "a", "span": (0, 1), "p": None}]


@pytest.mark.usefixtures("second_process")
def test_of_several_processes_the_first_one_scores(trained, tmp_path, capsys):
    (tmp_path / "sentences.txt").write_text("a bird.\n")
    score(trained, tmp_path / "sentences.txt")
    assert capsys.readouterr().out == ""


def test_a_long_sentence_is_refused_with_its_line_cut_or_left_out(trained, tmp_path, capsys):
    path = tmp_path / "sentences.txt"
    path.write_text(f"\ufeffa bird.\n\na dog.\t{LONG}\n{LONG}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"sentences.txt:3 has \d+ tokens, more than the 30 that"):
        score(trained, path)

    score(trained, path, long="truncate", json=True)
    found = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in found["rows"]] == [1, 3, 4]
    assert found["truncated_lines"] == [3, 4]
    assert found["rows"][0]["texts"] == ["a bird."], "a byte-order mark is no text"
    first = found["rows"][0]["scores"]

    score(trained, path, long="skip", json=True)
    found = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in found["rows"]] == [1] and found["skipped_lines"] == [3, 4]
    assert found["rows"][0]["scores"] == pytest.approx(first, abs=1e-4)

    score(trained, path, long="skip")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.err.strip().endswith("2 lines with more than 30 tokens were skipped: 3, 4")

    path.write_text(f"{LONG}\n")
    with pytest.raises(config_lib.ConfigError, match="every line has more than the 30 tokens"):
        score(trained, path, long="skip")
