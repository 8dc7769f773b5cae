# SPDX-License-Identifier: Apache-2.0
"""Computes all pre-training metrics of a checkpoint on its held-out records, or of any weights.

    python -m electra_jax.evaluate --workdir=runs/tiny
    python -m electra_jax.evaluate --workdir=runs/tiny --step=500 --json
    python -m electra_jax.evaluate --workdir=runs/tiny --data='text:other/*.txt; new=text:n.txt'
    python -m electra_jax.evaluate --weights=hf:OWNER/NAME --data='text:other/*.txt'
    python -m electra_jax.evaluate --weights=FOLDER --workdir=runs/tiny --data='text:other/*.txt'

The text of --data is encoded with the run's own vocabulary and cut into rows as its own text was.
--weights are others than the run's, such as Hugging Face's, Google's or an export, with their own
vocabulary; of --workdir only the settings of rows and masks are taken then.
Beside each metric stands the value of a baseline that has learnt nothing; docs/evaluation.md
explains the values per word and per character. The workdir is read, never written.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import json
import shutil
import sys

from absl import flags, logging

from electra_jax import config as config_lib
from electra_jax.cli import command, printing
from electra_jax.data import evaluation_text
from electra_jax.host import console_table
from electra_jax.report import evaluation_table
from electra_jax.training import other_text, trained_run, weights_alone

_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; the newest without it.", allow_override=True
)
_WEIGHTS = flags.DEFINE_string(
    "weights",
    None,
    "Weights to evaluate on --data: a folder of Hugging Face, hf:OWNER/NAME, a checkpoint of"
    " Google's, an export, a workdir or its checkpoints/STEP.",
)
_DATA = flags.DEFINE_multi_string(
    "data",
    [],
    "[NAME=]SPEC, as data.source has it, such as text:GLOB or hf:OWNER/NAME. For several texts"
    " repeat the flag, or separate them by ';'. Without it the run's own held-out records.",
)
_CHARACTERS = flags.DEFINE_integer(
    "characters",
    1_000_000,
    "Characters to read from the beginning of each text of --data; 0: all.",
    lower_bound=0,
)
_TEXT_FIELD = flags.DEFINE_string(
    "text_field",
    "",
    "The field with the text in JSON lines and parquet of --data, with NAME=FIELD after a ';' that"
    " of a text of this name; default: data.text_field of the run.",
)
_DOCUMENTS = flags.DEFINE_string(
    "documents",
    "",
    "What ends a document of plain text in --data: blank_lines, lines or files, in the same way;"
    " default: data.documents of the run.",
)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object as the last line.", allow_override=True
)

_WIDTH = 160  # characters of a table that is written to a file
_FLAGS = {  # field in a message about text -> the flag that this command has instead
    "data.source=": "--data=",
    "data.source": "--data",
    "data.text_field": "--text_field",
    "data.documents": "--documents",
}


def main(config: config_lib.Config | None, workdir: str | None) -> None:
    """Evaluates and prints a table, and with --json an object."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    specs = "; ".join(_DATA.value)
    if _WEIGHTS.value is not None:
        found = _of_weights(config, workdir, specs, width)
    elif config is None:
        raise config_lib.ConfigError(
            "nothing to evaluate; name a run, --workdir=RUN, or weights and text, --weights=PATH"
            " --data=text:GLOB"
        )
    elif _DATA.present or specs:
        found = _on_other_text(config, workdir, specs, width)
    else:
        found = _on_records(config, workdir, width)

    if _JSON.value:
        printing.say(json.dumps(found, allow_nan=False))


def _on_records(config, workdir, width):
    """Prints the table for the run's held-out records; returns what --json prints."""
    run = trained_run.open(config, workdir, _STEP.value, evaluates=True)
    values = trained_run.evaluate(run)
    columns = evaluation_table.columns(values, "held-out")
    _print(run, f"{_name_of_run(run)}, on held-out records", columns, width)
    return {"step": run.step} | other_text.with_baselines(values)


def _on_other_text(config, workdir, specs, width):
    """Prints the table for the text of --data; returns what --json prints."""
    sources = _sources(specs)
    run = trained_run.open(config, workdir, _STEP.value, evaluates=True)
    return _on_texts(run, _texts(run, sources), _name_of_run(run), width)


def _of_weights(config, workdir, specs, width):
    """The same for --weights; a run that rows and masks are taken of is given, or two Nones."""
    command.check_alone("evaluate --weights")
    if not _WEIGHTS.value:
        raise config_lib.ConfigError("--weights= is empty; perhaps a shell variable is not set")
    if not specs:
        raise config_lib.ConfigError("--weights are evaluated on a text; give --data=text:GLOB")
    if _STEP.value is not None:
        raise config_lib.ConfigError(
            "--step chooses a checkpoint of --workdir; name WORKDIR/checkpoints/STEP as --weights"
        )
    sources = _sources(specs)
    recipe = config and weights_alone.recipe_of(config, workdir)
    run = weights_alone.open(_WEIGHTS.value, recipe)
    texts = _texts(run, sources)
    run = weights_alone.drawing_by(run, texts)
    return {"weights": _WEIGHTS.value} | _on_texts(run, texts, _WEIGHTS.value, width)


def _sources(specs):
    """The texts of --data by their names. Raises ConfigError for one that is not there."""
    try:
        sources = evaluation_text.parse(specs)
        # Before the weights are read, so that a misspelt name is reported at once.
        evaluation_text.check(sources, _TEXT_FIELD.value, _DOCUMENTS.value)
    except ValueError as error:
        raise _in_flags(error) from error
    return sources


def _texts(run, sources):
    """The rows of --data, cut for these weights. Raises ConfigError."""
    try:
        return other_text.read(
            run,
            sources,
            _CHARACTERS.value,
            _TEXT_FIELD.value,
            _DOCUMENTS.value,
            logging.info,
        )
    except ValueError as error:
        raise _in_flags(error) from error


def _on_texts(run, texts, what, width):
    """Evaluates and prints the table; `what` is the run or the weights in words."""
    found = other_text.evaluate(run, texts, logging.info)
    columns = list(found.by_source.items())
    if len(columns) > 1:
        columns.append(("all", found.pooled))
    _print(run, f"{what}, on text of --data", columns, width)
    printing.say_each(f"Note: {note}." for note in other_text.notes(run, found))
    return other_text.to_json(run.step, run, found)


def _name_of_run(run):
    return f"{run.config.name}, step {run.step:,} of {run.config.schedule.steps:,}"


def _print(run, what, columns, width):
    """Prints a title and the table."""
    vocabulary = run.vocabulary
    title = (
        f"{what}: rows of {run.stage.sequence_length} tokens, {vocabulary.kind} vocabulary of"
        f" {vocabulary.size:,}\n"
    )
    table = evaluation_table.table(columns, width)
    printing.say_each([title, console_table.for_reader(table, evaluation_table.COLOURS)])


def _in_flags(error):
    """Returns a ConfigError whose remedies are flags of this command, not fields."""
    line = str(error)
    for field, flag in _FLAGS.items():
        line = line.replace(field, flag)
    return config_lib.ConfigError(line)


if __name__ == "__main__":
    command.run(main, config_needed=False)
