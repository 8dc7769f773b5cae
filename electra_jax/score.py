# SPDX-License-Identifier: Apache-2.0
"""Scores sentences with a trained run, or compares alternatives: the higher, the more natural.

    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt
    python -m electra_jax.score --workdir=runs/tiny --input=pairs.tsv --first_is_right
    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt --long=truncate
    python -m electra_jax.score --workdir=runs/tiny --input=sentences.txt --tokens
    python -m electra_jax.score --workdir=runs/tiny --input=pairs.tsv --first_is_right --by=both

The file has one sentence per line, or several alternatives separated by tabs, of which the best one
is marked. Lines are printed while the next ones are scored. With --first_is_right the last line of
the output says how often the first alternative wins, as for minimal pairs such as BLiMP's, or for
label words in a prompt. If two alternatives share the highest score, or a score is not a number,
none is marked and none wins.

A sentence with more tokens than the run has positions for is an error that names its line;
--long=truncate scores its beginning, --long=skip leaves its line out.

--by says what the scores add up over the tokens, and defaults to the first of these that a run has:

    detection    log P(original), of the discriminator: one pass
    prediction   log p of each token, of a main network that predicts tokens
    correction   the same, of the head of objective.name=corrective_lm: one pass
    generator    the same, of the generator: one pass per token, which is masked in it
    both         the same, from what generator and discriminator say together: takes as long

With --tokens each sentence is followed by its pieces with a number for each: by detection the
probability that the piece was replaced, else that of the piece, whose logarithm is its score.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import dataclasses
import itertools
import json
import math
import shutil
import sys
from collections.abc import Sequence

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.data import progress_lines
from electra_jax.host import processes, staging
from electra_jax.objectives import scoring
from electra_jax.report import view_terminal
from electra_jax.training import trained_run

_INPUT = flags.DEFINE_string(
    "input", None, "A file with one sentence per line, or alternatives separated by tabs."
)
_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; default: the newest.", allow_override=True
)
_FIRST = flags.DEFINE_bool("first_is_right", False, "Print how often the first alternative wins.")
_LONG = flags.DEFINE_enum(
    "long", "refuse", ["refuse", "truncate", "skip"], "What to do with a sentence that is too long."
)
_BY = flags.DEFINE_enum("by", None, scoring.WAYS, "What the scores add up; see above.")
_TOKENS = flags.DEFINE_bool("tokens", False, "Also print the scores of each token.")
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of lines.", allow_override=True
)
_COLOUR = flags.DEFINE_enum(
    "colour",
    "auto",
    ["auto", "always", "never"],
    "Colour for --tokens; auto: only in a terminal.",
    allow_override=True,
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

    run = trained_run.open(config, workdir, _STEP.value, with_rows=False)
    if not processes.is_first():  # on a pod, for example: one process prints for all
        return

    scorer, limit = run.scorer(_BY.value), run.longest_row
    too_long = _too_long(run.vocabulary, numbered, limit)
    if _LONG.value == "skip":
        numbered = _without(numbered, too_long, limit)

    flat = [text for group in numbered.values() for text in group]
    names = [f"{_INPUT.value}:{line}" for line, group in numbered.items() for _ in group]
    one_by_one = scorer.of_tokens(flat, names, truncate=_LONG.value == "truncate")

    treated = {"truncate": "truncated", "skip": "skipped"}.get(_LONG.value, "")
    with progress_lines.Phases(logging.info) as phases:
        scored = _in_groups(numbered, _counted(one_by_one, len(flat), phases), scorer)
        if _JSON.value:
            _print_json(scored, too_long, treated)
        else:
            colour = printing.in_colour(_COLOUR.value)
            if _TOKENS.value:
                printing.say(view_terminal.tokens_key(scorer.way == "detection", colour) + "\n")
            printing.say_each(_lines(scored, colour))
            _report_long(too_long, treated, limit)


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line of the file with the score of each of its alternatives."""

    number: int
    texts: list[str]
    scores: list[float]
    best: int | None  # None: no alternative is preferred
    tokens: Sequence[list[scoring.Token]] = ()  # of each alternative, with --tokens


def _counted(one_by_one, count, phases):
    """The same scores; meanwhile log lines say how many of them are done."""
    done = 0
    phases.begin("scoring", f"scoring {count:,} sentences", lambda: done / count)
    for value in one_by_one:
        done += 1
        yield value


def _in_groups(numbered, one_by_one, scorer):
    """Each line as soon as all of its alternatives are scored."""
    for line, texts in numbered.items():
        found = list(itertools.islice(one_by_one, len(texts)))
        numbers = [float(scores_N.sum()) for scores_N in found]
        (best,) = scoring.preferred([numbers])

        tokens = []
        if _TOKENS.value:
            for text, scores_N in zip(texts, found):
                tokens.append(scorer.tokens(text, scores_N))
        yield _Line(line, texts, numbers, best, tokens)


def _print_json(scored, too_long, treated):
    """Prints one object: the rows, how often the first alternative wins, the lines too long."""
    lines = list(scored)
    rows = [
        {
            "line": line.number,
            "texts": line.texts,
            "scores": [_finite(x) for x in line.scores],
            "best": line.best,
        }
        | ({"tokens": [_plain(tokens) for tokens in line.tokens]} if line.tokens else {})
        for line in lines
    ]
    about = {"first_wins": _share_of_first([line.best for line in lines])} if _FIRST.value else {}
    about |= {f"{treated}_lines": too_long} if treated else {}
    print(json.dumps({"rows": rows} | about, allow_nan=False))


def _plain(tokens):
    """The tokens of a text as JSON has them."""
    rows = [token.as_dict() for token in tokens]
    return [
        {name: _finite(x) if isinstance(x, float) else x for name, x in row.items()} for row in rows
    ]


def _finite(value):
    """A score as JSON has it: null where it is not a number."""
    return value if math.isfinite(value) else None


def _lines(scored, colour):
    """A line per sentence with its score, its tokens, and the summary of --first_is_right."""
    width = shutil.get_terminal_size((80, 24)).columns
    best = []
    for line in scored:
        best.append(line.best)
        several = len(line.texts) > 1
        for place, (text, value) in enumerate(zip(line.texts, line.scores)):
            mark = "* " if place == line.best and several else "  " if several else ""
            yield f"{value:10.3f}  {mark}{text}"
            if line.tokens:
                yield "\n" + view_terminal.tokens_to_terminal(line.tokens[place], width, colour)

    if _FIRST.value:
        undecided = sum(place is None for place in best)
        rest = f"; {undecided} undecided, which count as lost" if undecided else ""
        share = _share_of_first(best)
        yield f"the first alternative wins in {share:.1%} of {len(best)} lines{rest}"


def _report_long(too_long, treated, limit):
    """Says on standard error which lines are too long, and how they were treated."""
    if treated and too_long:
        shown = ", ".join(map(str, too_long[:10])) + (", ..." if len(too_long) > 10 else "")
        print(
            f"{len(too_long)} lines with more than {limit - 2} tokens were {treated}: {shown}",
            file=sys.stderr,
        )


def _share_of_first(best):
    """Returns how often the first alternative wins; a line without a winner counts as lost."""
    return sum(place == 0 for place in best) / len(best)


def _too_long(vocabulary, numbered, limit) -> list[int]:
    """Returns the numbers of the lines that have a sentence of more tokens than fit a row."""
    places = [line for line, group in numbered.items() for _ in group]
    flat = [text for group in numbered.values() for text in group]
    counts = scoring.token_counts(vocabulary, flat)
    return sorted({line for line, count in zip(places, counts) if count + 2 > limit})


def _without(numbered, too_long, limit):
    """The lines without those that are too long. Raises ConfigError if none is left."""
    skipped = set(too_long)
    kept = {line: group for line, group in numbered.items() if line not in skipped}
    if not kept:
        raise config_lib.ConfigError(
            f"{_INPUT.value}: every line has more than the {limit - 2} tokens that fit a row;"
            " take --long=truncate"
        )
    return kept


def read(path: str | None) -> dict[int, list[str]]:
    """Returns {line number from 1: the alternatives of that line}, without empty lines.

    Raises ConfigError if there is no such file, it is not UTF-8 or it has no sentence.
    """
    if not path:
        raise config_lib.ConfigError("--input names no file; give one with one sentence per line")

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
