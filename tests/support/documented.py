# SPDX-License-Identifier: Apache-2.0
"""Every command line in the documentation, and a folder in which all of them can be run.

commands()        what README.md, docs/, launch/ and the docstrings of commands and
                  configurations show, with PLACEHOLDERS filled in
layout(folder)    the runs, texts and tables that these commands name
"""

import ast
import dataclasses
import gzip
import lzma
import pathlib
import re
import shutil
from collections.abc import Iterator

from . import bert_folder, corpus, encoder_workdir
from .corpus import ROOT

# What a page writes where a reader puts a name of their own -> a name in `layout`.
PLACEHOLDERS = {
    "--config=...": "--config=configs/tiny.py",
    "--workdir=...": "--workdir=runs/new",
    "--workdir=RUN": "--workdir=runs/mine",
    "--workdir=WORKDIR": "--workdir=runs/mine",
    "--workdir=DIR": "--workdir=runs/pod",
    "--workdir=/shared/runs/base": "--workdir=runs/shared",
    "--workdir=gs://BUCKET/runs/base": "--workdir=runs/bucket",  # reading flags needs no gcsfs
    "--workdir=gs://BUCKET/runs/mine": "--workdir=runs/bucket",
    "--config=configs/text_tokens.py:tiny": "--config=configs/electra_15.py:tiny",
    "--config=configs/continued.py:WEIGHTS": "--config=configs/continued.py:bert",
    "--config=configs/continued.py:runs/general": "--config=configs/continued.py:bert",
    "--input=FILE": "--input=sentences.txt",
    "--from=WORKDIR/finetune/NAME/TASK": "--from=runs/tuned/finetune/finetune/custom",
    "--from=runs/small/finetune/NAME/TASK": "--from=runs/tuned/finetune/finetune/custom",
    "--from=runs/mine/finetune/NAME/TASK": "--from=runs/tuned/finetune/finetune/custom",
    "--from=runs/mine/finetune/finetune/sst2": "--from=runs/tuned/finetune/finetune/custom",
    "--from=FOLDER": "--from=electra-small",
    "--weights=FOLDER": "--weights=electra-small",
    "--out=FOLDER": "--out=exports/folder",
    "--out=...": "--out=exports/folder",
    "--config.data.dir=DATA": "--config.data.dir=glue",
    "--config.seed=S": "--config.seed=1",
    "--step=500": "--step=2",  # the runs of `layout` have two steps
    "--config.data.vocab=train:sentencepiece:32000": "--config.data.vocab=train:sentencepiece:64",
    "--config.data.vocab=train:sentencepiece:8000": "--config.data.vocab=train:sentencepiece:64",
}
# Runs that commands read, each a copy of one small run.
RUNS = (
    *("tiny", "tiny_paper", "small", "mine", "wikipedia", "domain", "a", "b"),
    *(f"mask{rate}-seed{seed}" for rate in (15, 25) for seed in range(3)),
)
_COMMAND = re.compile(
    r"(?:python3? -m (?P<module>electra_jax\.\w+)|(?P<script>launch/\w+\.(?:sh|sbatch)))"
    r"(?P<rest>[^`\n|>#]*)"
)
_CONTINUED = re.compile(r"[ \t]*\\\n[ \t#]*")
_OPTIONAL = re.compile(r" \[(.*)\]$")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command line of the documentation."""

    page: str  # relative to the repository
    line: int
    module: str  # 'main'; of a script what it starts
    script: str  # 'launch/local.sh', or ''
    rest: str  # what follows for the module, for a shell to read
    options: str = ""  # what stands before it, for the script

    @property
    def name(self) -> str:
        """Page, line and command, for messages."""
        return f"{self.page}:{self.line} {self.what}"

    @property
    def what(self) -> str:
        """The command line alone."""
        return " ".join(filter(None, (self.script or self.module, self.options, self.rest)))


def commands() -> list[Command]:
    """All command lines, page by page, in their order on the page."""
    found = []
    for path in _pages():
        page = str(path.relative_to(ROOT))
        for line, text in _texts(path):
            found += _in_text(page, line, text)
    return found


def layout(folder: pathlib.Path, run: pathlib.Path | None = None) -> pathlib.Path:
    """Writes what the commands name.

    Args:
      run: a finished run that every one of RUNS copies; None: they have a config.json alone.
    """
    folder.mkdir(parents=True)
    (folder / "configs").symlink_to(ROOT / "configs")
    for name in RUNS:
        if run is None:
            write_config(folder / "runs" / name)
        else:
            shutil.copytree(run, folder / "runs" / name)
    if run is None:
        for name in ("continued", "electric"):  # commands before those that read them make these
            write_config(folder / "runs" / name)

    bert_folder.write(folder / "bert")
    for name in ("corpus", "other", "domain", "general"):
        (folder / name).mkdir()
        corpus.write_corpus(folder / name / "text.txt", 60)
    (folder / "n.txt").write_text("the cat sees a letter.\n\na bird finds the river.\n")
    with gzip.open(folder / "n.jsonl.gz", "wt") as file:
        file.write('{"text": "the cat sees a letter."}\n{"text": "a bird finds the river."}\n')
    with lzma.open(folder / "articles.txt.xz", "wt") as file:
        file.write("the cat sees a letter.\n\na bird finds the river.\n")
    (folder / "sentences.txt").write_text("the cat sees a letter.\na bird.\n")
    (folder / "pairs.tsv").write_text("the cat sees a letter.\tletter the a sees cat.\n")

    encoder_workdir.write_tasks(folder, rows=40)
    for name in ("new", "more", "texts", "a", "b"):  # examples for `predict`
        (folder / f"{name}.txt").write_text("the cat is good\n")
        (folder / f"{name}.tsv").write_text("text\tlabel\nthe cat is good\t1\n")
        (folder / f"{name}.jsonl").write_text('{"text": "the cat is good"}\n')
    (folder / "glue").mkdir()
    for name in ("RTE", "STS-B", "MNLI", "diagnostic"):
        (folder / name).rename(folder / "glue" / name)
    _write_sets(folder / "glue")
    (folder / "names.conll").write_text(
        "".join(f"Ann B-PER\nsees O\nNew B-LOC\nYork{n} I-LOC\n. O\n\n" for n in range(40))
    )
    (folder / "judged.tsv").write_text(
        "query\tpassage\tgrade\n"
        + "".join(
            f"who sees {n} ?\tthe cat sees {n} .\t2\nwho sees {n} ?\ta bird sleeps .\t0\n"
            for n in range(60)
        )
    )
    for name, count in (("train_5500", 40), ("TREC_10", 4)):
        asked = (
            f"HUM:ind Who wrote Les Misérables {n} ?\nNUM:date When {n} ?" for n in range(count)
        )
        (folder / f"{name}.label").write_text("\n".join(asked), encoding="latin-1")
    return folder


def write_config(workdir: pathlib.Path) -> None:
    """Writes a workdir that holds a configuration only."""
    from electra_jax import config as config_lib  # noqa: PLC0415 - collecting needs no jax

    tree = corpus.small_run("text:corpus/*.txt", "")
    workdir.mkdir(parents=True)
    (workdir / "config.json").write_text(config_lib.to_json(config_lib.parse(tree)))


def _pages():
    docs = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "LOG.md")
    programs = sorted((ROOT / "configs").glob("*.py")) + sorted(
        (ROOT / "electra_jax").rglob("*.py")
    )
    return [ROOT / "README.md", *docs, *programs, *sorted((ROOT / "launch").iterdir())]


def _texts(path) -> Iterator[tuple[int, str]]:
    """(number of its first line, text): a page, a module's docstring, or a script's comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield 2, ast.get_docstring(ast.parse(text), clean=False) or ""
    elif path.suffix in (".sh", ".sbatch", ".yaml"):
        yield 1, "\n".join(line if line.startswith("#") else "" for line in text.splitlines())
    else:
        yield 1, text


def _in_text(page, number, text) -> Iterator[Command]:
    """The commands of a text; a backslash at the end of a line joins it with the next."""
    joined = _CONTINUED.sub(" \f", text)
    for line in joined.split("\n"):
        for match in _COMMAND.finditer(line.replace("\f", "")):
            rest = f"{match['rest']} "
            for there, here in PLACEHOLDERS.items():
                rest = rest.replace(f" {there} ", f" {here} ")
            rest = rest.strip().rstrip(".,;:)")
            module = (match["module"] or "electra_jax.main").removeprefix("electra_jax.")
            script, options = match["script"] or "", ""
            if script:
                options, rest = _of_script(script, rest)
            optional = _OPTIONAL.search(f" {rest}")
            if optional:
                shorter = _OPTIONAL.sub("", f" {rest}").strip()
                yield Command(page, number, module, script, shorter, options)
                rest = f"{shorter} {optional[1]}"
            yield Command(page, number, module, script, rest, options)
        number += 1 + line.count("\f")


def _of_script(script, rest):
    """Splits the words after a script: (its own options, flags of electra_jax.main)."""
    options, _, flags = f"{rest} ".partition("-- ")
    if flags or "tpu_vm" in script:
        return options.strip(), flags.strip()
    if rest.startswith("--dry-run "):
        return "--dry-run", rest.removeprefix("--dry-run ")
    return "", rest


def _write_sets(folder):
    """A few rows of each set that commands name, in the form of its official files."""
    told = [("we are warm", 1), ("they are cold", 0), ("a bird is kind", 1), ("it is rude", 0)] * 6

    def write(path, *lines):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("\n".join(lines) + "\n")

    for split in ("train", "dev"):
        write(
            f"CoLA/{split}.tsv",
            *(f"x\t{label}\t\t{text} {n}" for n, (text, label) in enumerate(told)),
        )
        write(
            f"SST-2/{split}.tsv", "sentence\tlabel", *(f"{text}\t{label}" for text, label in told)
        )
        write(
            f"MRPC/{split}.tsv",
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            *(f"{label}\t1\t2\t{text}\t{text} too" for text, label in told),
        )
        write(
            f"QNLI/{split}.tsv",
            "index\tquestion\tsentence\tlabel",
            *(
                f"{n}\twho ?\t{text} {n}\t{('not_entailment', 'entailment')[label]}"
                for n, (text, label) in enumerate(told)
            ),
        )
    tagged = ["we PRP B-NP", "are VB B-VP", "here RB O", ""] * 8
    for split in ("train", "test"):
        write(
            f"conll2000/{split}.txt",
            *(f"{n % 9}{line}" if line else "" for n, line in enumerate(tagged)),
        )
    for split in ("train", "dev", "test"):
        write(f"wikiann/en.{split}", *["en:Ann\tB-PER", "en:sleeps\tO", ""] * 8)
    write("subjectivity/quote.tok.gt9.5000", *(f"we are warm {n}" for n in range(12)))
    write("subjectivity/plot.tok.gt9.5000", *(f"they are cold {n}" for n in range(12)))
