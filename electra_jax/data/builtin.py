# SPDX-License-Identifier: Apache-2.0
"""The source `builtin`: English text from installed packages, for a first run without a download.

    pydoc topics, docstrings of the standard library and of the packages that we depend on
        -> parsed with ast, never imported
        -> paragraphs of prose, without code, tables, lists of parameters and markup
        -> one document per module, one sentence per line, each paragraph only once

The text depends on the installed versions, so their names and numbers are part of the source's
fingerprint. On one machine it is always the same.
"""

import ast
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import sysconfig
from collections.abc import Iterator

PACKAGES = (  # import names of what we depend on, directly or not
    "absl",
    "aiofiles",
    "dateutil",
    "etils",
    "flax",
    "fontTools",
    "fsspec",
    "google.protobuf",  # not all of `google`, into which any client of Google installs itself
    "humanize",
    "jax",
    "jaxlib",
    "matplotlib",
    "ml_collections",
    "ml_dtypes",
    "msgpack",
    "numpy",
    "opt_einsum",
    "optax",
    "orbax",
    "packaging",
    "PIL",
    "psutil",
    "pyarrow",
    "pyparsing",
    "requests",
    "rich",
    "safetensors",
    "scipy",
    "sentencepiece",
    "tensorboardX",
    "tensorflow_datasets",
    "tensorstore",
    "tokenizers",
    "tqdm",
    "treescope",
    "urllib3",
    "wrapt",
    "yaml",
)
BYTES = 3_400_000  # approximate size of the text, for its share of a mixture
TOPICS = "pydoc topics"
STANDARD_LIBRARY = "standard library"
_OWNERS = {"google.protobuf": ["protobuf"]}  # of parts that are not all of a top-level package

_LEAST_WORDS = 8  # in a paragraph
_LEFT_OUT = ("site-packages", "__pycache__", "idlelib", "test", "tests", "testing", "_vendor")


@dataclasses.dataclass(frozen=True)
class CorpusPart:
    """One unit of the source: a package, the standard library, or the pydoc topics."""

    name: str

    def documents(self) -> Iterator[str]:
        """Yields one document per file, in the order of the file names; one sentence per line."""
        seen: set[str] = set()

        for texts in self._texts():
            lines = []
            for text in texts:
                for paragraph in prose(text):
                    if paragraph not in seen:
                        seen.add(paragraph)
                        lines += sentences(paragraph)

            if lines:
                yield "\n".join(lines)

    def _texts(self) -> Iterator[list[str]]:
        """Yields the docstrings of each file, or each topic."""
        if self.name == TOPICS:
            yield from ([text] for text in _topics())
            return

        if self.name == STANDARD_LIBRARY:
            roots = [sysconfig.get_paths()["stdlib"]]
        else:
            found = _spec(self.name)
            roots = list(found.submodule_search_locations or []) if found else []

        for root in sorted(roots):
            for path in _sources(root):
                yield _docstrings(path)


def parts() -> list[CorpusPart]:
    """The topics, the standard library, and each package of PACKAGES that is installed."""
    installed = [name for name in PACKAGES if _spec(name) is not None]
    return [CorpusPart(TOPICS), CorpusPart(STANDARD_LIBRARY), *map(CorpusPart, installed)]


def identity() -> list[tuple[str, int]]:
    """(name and version, 0) of each part, as the fingerprint of the source."""
    distributions = importlib.metadata.packages_distributions()

    def version(name):
        if name in (TOPICS, STANDARD_LIBRARY):
            return platform.python_version()
        owners = _OWNERS.get(name) or sorted(set(distributions.get(name, [])))
        return " ".join(f"{owner} {importlib.metadata.version(owner)}" for owner in owners)

    return [(f"{part.name} {version(part.name)}", 0) for part in parts()]


def _spec(name):
    """Where a package is; None if it is not installed."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of a part of a package: the whole is missing
        return None


def prose(text: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring that are plain English, each on one line."""
    skip_deeper = None  # after "as follows::", everything that is indented more is code

    for block in re.split(r"\n[ \t]*\n", inspect.cleandoc(text)):
        lines = block.split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())

        if skip_deeper is not None:
            if indent > skip_deeper:
                continue
            skip_deeper = None

        if lines[-1].rstrip().endswith("::"):
            skip_deeper = indent

        if any(len(line) - len(line.lstrip()) != indent for line in lines) or indent > 4:
            continue  # hanging indents are parameters and code

        paragraph = _plain(" ".join(line.strip() for line in lines))
        if _is_prose(paragraph):
            yield paragraph


def sentences(paragraph: str) -> list[str]:
    """Cuts a paragraph after each full stop, ! or ? that is followed by a capital letter."""
    return re.split(r"(?<=[a-z0-9)\"'][.!?]) +(?=[A-Z\"])", paragraph)


_ROLE = re.compile(r":[a-z:]+:`~?\.?([^`<]*?)(?: *<[^`>]*>)?`")
_QUOTED = re.compile(r"``([^`]*)``|`~?([^`<]*?)(?: *<[^`>]*>)?`_*")
_STRESSED = re.compile(r"(?<!\w)\*{1,2}(\w[^*]*?)\*{1,2}(?!\w)")
_SPACE = re.compile(r"\s+")
_CODE = re.compile(
    r">>>|->|[=<>{}\[\]|\\^~@#$%]|\.\. |https?:|\w\(\)?\w*,|__|\w_\w+_\w|\w\.\w+\.\w"
)
_SECTION = re.compile(
    r"(?:args?|arguments|parameters|params|returns?|raises|yields|examples?|attributes|usage"
    r"|references|see also|keyword args|notes?|warnings?|copyright|license[sd]?|todo)\b[ :]*$"
    r"|(?:args|returns|raises|yields|example|copyright|todo)\b:?|:param|:return|[-*+•] |\d+[.)] "
    r"|.{0,40}copyright",
    re.IGNORECASE,
)


def _plain(text):
    """Removes the markup of reStructuredText and joins white space."""
    text = _ROLE.sub(lambda m: m[1].rpartition(".")[2] or m[1], text)
    text = _QUOTED.sub(lambda m: m[1] or m[2] or "", text)
    text = _STRESSED.sub(r"\1", text)
    return _SPACE.sub(" ", text).strip().removesuffix("::").strip()


def _is_prose(text):
    """True for English sentences: enough words, few symbols, a capital first, a full stop last.

    The thresholds are rules of thumb.
    """
    words = text.split(" ")
    if len(words) < _LEAST_WORDS or not text[0].isupper() or text[-1] not in ".!?":
        return False
    if _SECTION.match(text) or len(_CODE.findall(text)) > len(words) / 25:
        return False
    if not text.isascii():
        return False

    letters = sum(c.isalpha() or c in " .,;'-" for c in text)
    lower = sum(word.strip(".,;:!?()'\"").isalpha() and word[1:].islower() for word in words)
    small = sum(word in _COMMON for word in words)
    return letters > 0.95 * len(text) and lower > 0.5 * len(words) and small > 0.2 * len(words)


_COMMON = frozenset(
    "a an the of to in is are be for and or not that this it with as by on from if at which can"
    " will may must has have was were when than then you we all any no its only used".split()
)


def _topics():
    from pydoc_data import topics  # noqa: PLC0415 - 600 kB, and only this function needs it

    return [topics.topics[name] for name in sorted(topics.topics)]


def _sources(root):
    """Yields all .py files below a folder, sorted, except those of other packages and of tests."""
    for directory, names, files in os.walk(root):
        # Changed in place, which is how os.walk is told where to go.
        names[:] = sorted(n for n in names if n not in _LEFT_OUT)

        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(directory, name)


def _docstrings(path):
    """All docstrings of a file, in their order; none if the file does not parse."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return []  # files for other versions of Python, and tests of bad syntax

    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))

    return [text for node in nodes if (text := ast.get_docstring(node, clean=False))]
