# SPDX-License-Identifier: Apache-2.0
"""Scores sentences with a trained run, or compares alternatives: the higher, the more natural.

    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt
    python -m electra_jax.score --workdir=runs/tiny --input=pairs.tsv --first_is_right
    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt --long=truncate

The file has one sentence per line, or several alternatives separated by tabs, of which the best one
is marked. With --first_is_right the last line of the output says how often the first alternative
wins, as for minimal pairs such as BLiMP's, or for label words in a prompt. If two alternatives
share the highest score, or a score is not a number, none is marked and none wins.

A sentence with more tokens than the run has positions for is an error that names its line;
--long=truncate scores its beginning, --long=skip leaves its line out. `objectives/scoring.py` says
what a score is for each objective.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import json
import math
import sys

import numpy as np
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.host import staging
from electra_jax.objectives import scoring
from electra_jax.training import opened as opened_lib

_INPUT = flags.DEFINE_string("input", None, "File with a sentence a line, or alternatives by tabs.")
_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; the newest without it.", allow_override=True
)
_FIRST = flags.DEFINE_bool("first_is_right", False, "Say how often the first alternative wins.")
_LONG = flags.DEFINE_enum(
    "long", "refuse", ["refuse", "truncate", "skip"], "What is done with a sentence too long."
)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of lines.", allow_override=True
)


def main(config: config_lib.Config, workdir: str) -> None:
    """Reads the sentences, scores them and prints the scores."""
    numbered = read(_INPUT.value)
    groups = list(numbered.values())
    if _FIRST.value and min(map(len, groups)) < 2:
        (text,) = next(group for group in groups if len(group) < 2)
        raise config_lib.ConfigError(
            f"--first_is_right compares alternatives, but {text[:60]!r} has none beside it; put a"
            " tab between alternatives"
        )

    opened = opened_lib.open_workdir(config, workdir, _STEP.value, with_rows=False)
    limit = opened.longest_row
    long = _too_long(opened.vocabulary, numbered, limit)

    if _LONG.value == "skip":
        numbered = {line: group for line, group in numbered.items() if line not in long}
        if not numbered:
            raise config_lib.ConfigError(
                f"{_INPUT.value}: every line has more than the {limit - 2} tokens that fit a row;"
                " take --long=truncate"
            )

    groups = list(numbered.values())
    flat = [text for group in groups for text in group]
    found = scoring.scores(
        opened.objective.placed(),
        opened.params,
        opened.vocabulary,
        flat,
        limit,
        names=[f"{_INPUT.value}:{line}" for line, group in numbered.items() for _ in group],
        truncate=_LONG.value == "truncate",
    )

    ends = np.cumsum([len(group) for group in groups])
    by_group = [part.tolist() for part in np.split(np.array(found), ends[:-1])]
    done = {"truncate": "truncated", "skip": "skipped"}.get(_LONG.value, "")

    if _JSON.value:
        _print_json(numbered, by_group, long, done)
    else:
        _print_lines(groups, by_group, long, done, limit)


def _print_json(numbered, by_group, long, done):
    """Prints one object: the rows, how often the first alternative wins, the long lines."""
    best = scoring.preferred(by_group)
    rows = [
        {"line": line, "texts": texts, "scores": [_finite(x) for x in numbers], "best": place}
        for (line, texts), numbers, place in zip(numbered.items(), by_group, best)
    ]
    about = {"first_wins": _share_of_first(best)} if _FIRST.value else {}
    about |= {f"{done}_lines": long} if done else {}
    print(json.dumps({"rows": rows} | about, allow_nan=False))


def _finite(value):
    """A score as JSON has it: null where it is not a number."""
    return value if math.isfinite(value) else None


def _print_lines(groups, by_group, long, done, limit):
    """Prints one line per sentence with its score, and the summary of the flags."""
    best = scoring.preferred(by_group)

    for texts, numbers, place in zip(groups, by_group, best):
        for number, (text, value) in enumerate(zip(texts, numbers)):
            mark = "* " if number == place and len(texts) > 1 else "  " if len(texts) > 1 else ""
            print(f"{value:10.3f}  {mark}{text}")

    if _FIRST.value:
        undecided = sum(place is None for place in best)
        rest = f"; {undecided} undecided, which count as lost" if undecided else ""
        share = _share_of_first(best)
        print(f"the first alternative wins in {share:.1%} of {len(groups)} lines{rest}")

    if done and long:
        shown = ", ".join(map(str, long[:10])) + (", ..." if len(long) > 10 else "")
        print(
            f"{len(long)} lines with more than {limit - 2} tokens were {done}: {shown}",
            file=sys.stderr,
        )


def _share_of_first(best):
    """Returns how often the first alternative wins; a line without a winner counts as lost."""
    return sum(place == 0 for place in best) / len(best)


def _too_long(words, numbered, limit) -> list[int]:
    """Returns the numbers of the lines that have a sentence of more tokens than fit a row."""
    places = [line for line, group in numbered.items() for _ in group]
    flat = [text for group in numbered.values() for text in group]
    over = scoring.too_long(words, flat, limit)
    return sorted({line for line, is_over in zip(places, over) if is_over})


def read(path: str | None) -> dict[int, list[str]]:
    """Returns {line number from 1: the alternatives of that line}, without empty lines.

    Raises ConfigError if there is no such file, it is not UTF-8 or it has no sentence.
    """
    if not path:
        raise config_lib.ConfigError("--input names no file; give one with a sentence a line")

    try:
        with open(staging.copied_file(path, "--input"), "rb") as file:
            data = file.read()
    except OSError as error:
        reason = error.strerror or error
        raise config_lib.ConfigError(f"--input={path} cannot be read: {reason}") from error

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise config_lib.ConfigError(
            f"{path}, line {number}: invalid UTF-8 (byte {data[error.start]:#04x}); convert the"
            " file, for instance with iconv -f latin1 -t utf-8"
        ) from error

    # Not splitlines(), which also cuts at other characters, so that numbers are those of an editor.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    groups = {number: line.split("\t") for number, line in enumerate(lines, 1) if line.strip()}
    if not groups:
        raise config_lib.ConfigError(f"{path} has no sentence")
    return groups


if __name__ == "__main__":
    command.run(main)
