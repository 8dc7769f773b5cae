# SPDX-License-Identifier: Apache-2.0
"""Adds to the site what is not written under docs/: mkdocs calls the functions `on_...` in here.

    README.md and its like     pages, from the files as they are                 PAGES
    configs/, linked sources   pages that show the file, or a notebook's cells   source/
    electra_jax/               a page per subpackage, for mkdocstrings           api/
    the declared settings      a page per configuration, as --help=all has them  settings/

The files link to each other by their places in the repository, so that the links also work where it
is read without the site. `_Links` turns them into links between pages. A link to something that is
neither stays as it is, and mkdocs refuses it (`validation` in mkdocs.yml).
"""

import ast
import html
import json
import pathlib
import posixpath
import re
import sys
from urllib import parse
from xml.etree import ElementTree

import markdown
from markdown import treeprocessors
from mkdocs.structure import files as site_files

ROOT = pathlib.Path(__file__).resolve().parents[2]

PAGES = {  # a Markdown file outside docs/ -> its page
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "launch/README.md": "launch.md",
}
SETTINGS = {  # a file of configs/ that has every setting -> the title of its page
    "base": "Settings of a run",
    "finetune": "Settings of fine-tuning",
}
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".md": "markdown"}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILES = {page: file for file, page in PAGES.items()}


def on_config(config):
    """Makes the package importable for the settings, and the links of all pages those of pages."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    config.markdown_extensions.append(_links)
    return config


def on_files(files, config):
    """Adds the pages that have no file under docs/."""

    def add(page, text=None, path=None):
        made = {"content": text} if path is None else {"abs_src_path": str(ROOT / path)}
        files.append(site_files.File.generated(config, page, **made))

    for file, page in PAGES.items():
        add(page, path=file)
    for file in sorted(_sources(files)):
        add(source_page(file), _source(file))
    add("source/configs/index.md", _configurations())
    for page, text in _api().items():
        add(page, text)
    for name, title in SETTINGS.items():
        add(f"settings/{name}.md", _settings(name, title))
    return files


def on_page_markdown(text, page, config, files):
    """Tells `_links` whose links it will see next."""
    _links.origin, _links.page = repository_path(page.file), page.file.src_uri
    return text


def repository_path(file):
    """Returns the path in the repository of what a page is made from; None for a made-up page."""
    if file.src_uri in _FILES:
        return _FILES[file.src_uri]
    return None if file.generated_by else f"docs/{file.src_uri}"


def source_page(path):
    """Returns the page that shows a file of the repository."""
    return f"source/{path}.md"


def linked(target, page):
    """Returns the path in the repository that a link of one of its files leads to, or None."""
    parts = parse.urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), parts.path))


def page_of(path):
    """Returns the page of a path in the repository, or None if it has none."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return source_page(path) if (ROOT / path).is_file() else None


# Links


class _Links(markdown.Extension):
    """Turns links between files of the repository into links between pages.

    A configuration that a page names in code, as `configs/base.py`, becomes a link as well.
    """

    origin: str | None = None  # the file whose links are read, as a path in the repository
    page: str = ""

    def extendMarkdown(self, md):  # noqa: N802 - the name is Markdown's
        """Runs after the links are found and before mkdocs looks for their pages."""
        md.treeprocessors.register(_LinkProcessor(self), "repository_links", 5)

    def to_page(self, target):
        """Returns a link of the current page as mkdocs reads it."""
        path = linked(target, self.origin) if self.origin else None
        page = page_of(path) if path else None
        if page is None:
            return target
        return parse.urlsplit(target)._replace(path=self.near(page)).geturl()

    def near(self, page):
        """Returns the path of a page from the current one."""
        return posixpath.relpath(page, posixpath.dirname(self.page) or ".")


class _LinkProcessor(treeprocessors.Treeprocessor):
    def __init__(self, links):
        super().__init__()
        self.links = links

    def run(self, root):
        for parent in list(root.iter()):
            for attribute in ("href", "src"):
                if parent.get(attribute):
                    parent.set(attribute, self.links.to_page(parent.get(attribute)))
            if parent.tag not in ("a", "pre") and self.links.origin is not None:
                self._link_configurations(parent)

    def _link_configurations(self, parent):
        for place, child in enumerate(parent):
            named = re.fullmatch(r"configs/\w+\.py", child.text or "")
            if child.tag == "code" and named and (ROOT / child.text).is_file():
                page = source_page(child.text)
                link = ElementTree.Element("a", href=self.links.near(page))
                link.tail, child.tail = child.tail, None
                link.append(child)
                parent[place] = link


_links = _Links()


# Sources


def _sources(files):
    """Returns the files that get a page of their own: configurations, and whatever is linked."""
    found = {f"configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    pages = [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    for page in pages:
        if not (ROOT / page).is_file():  # a page of PAGES
            continue
        for target in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            path = linked(target, page)
            if path and page_of(path) == source_page(path):
                found.add(path)
    return found


def _source(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        return _notebook(text)
    language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
    # Words of a source are found, but below pages that explain them.
    begin = f"---\nsearch:\n  boost: 0.1\n---\n\n# `{path}`\n\n"
    return f'{begin}``````{language} linenums="1"\n{text}``````\n'


def _notebook(text):
    """Returns the cells of a notebook, those with code as blocks."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"


def _configurations():
    """Returns the page that lists configs/ with the first line of each file."""
    lines = ["# Configurations", "", "| file | what it is |", "|---|---|"]
    for path in sorted((ROOT / "configs").glob("*.py")):
        lines.append(f"| [`configs/{path.name}`]({path.name}.md) | {_begin(path)} |")
    lines += ["", "Every setting is in [Settings of a run](../../settings/base.md)."]
    return "\n".join(lines) + "\n"


def _begin(path):
    """Returns the first paragraph of a module's docstring, for a table."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return _plain(" ".join(docstring.split("\n\n")[0].split()))


# Docstrings


def _api():
    """Returns {page: text} of the pages whose content mkdocstrings takes from the docstrings."""
    package = ROOT / "electra_jax"
    pages = {"api/index.md": _front(package), "api/commands.md": _commands(package)}
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        lines = [f"# `electra_jax.{folder.name}`", ""]
        lines += _block(f"electra_jax.{folder.name}", show_root_toc_entry=False)
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(package).with_suffix("").parts)
            if path.parent == folder and path.name == "__init__.py":
                continue
            if not path.with_name("__init__.py").exists():  # a file of an export, no module
                continue
            module = module.removesuffix(".__init__")
            lines += [f"## `{module}`", ""]
            lines += _block(f"electra_jax.{module}", heading_level=3, show_root_toc_entry=False)
        pages[f"api/{folder.name}.md"] = "\n".join(lines)
    return pages


def _front(package):
    """Returns the page of what `import electra_jax` gives, and the list of the other pages."""
    lines = ["# `electra_jax`", ""]
    lines += _block("electra_jax", show_root_toc_entry=False)
    lines += ["## Subpackages", "", "| subpackage | what it is |", "|---|---|"]
    for path in sorted(package.glob("*/__init__.py")):
        name = path.parent.name
        lines.append(f"| [`electra_jax.{name}`]({name}.md) | {_begin(path)} |")
    lines += ["", "The [commands](commands.md) are the modules of `electra_jax` itself."]
    return "\n".join(lines) + "\n"


def _commands(package):
    """Returns the page with the docstring of every command, with which --help begins as well."""
    lines = ["# Commands", ""]
    for path in sorted(package.glob("[!_]*.py")):
        lines += [f"## `python -m electra_jax.{path.stem}`", ""]
        lines += _block(f"electra_jax.{path.stem}", show_root_toc_entry=False, members=False)
    return "\n".join(lines)


def _block(name, **options):
    """Returns the lines that mkdocstrings replaces by the docstrings of a module."""
    lines = [f"::: {name}", "    options:"]
    return [*lines, *(f"      {key}: {str(value).lower()}" for key, value in options.items()), ""]


# Settings


def _settings(name, title):
    """Returns a page with every setting of a configuration, a section for each of its sections."""
    from electra_jax.cli import settings_help  # noqa: PLC0415 - `on_config` makes it importable

    abouts = settings_help.sections(name)
    lines = [
        f"# {title}",
        "",
        f"Defaults are those of [`configs/{name}.py`](../source/configs/{name}.py.md); other"
        " configurations change some. A setting is given on the command line as"
        " `--config.SECTION.NAME=VALUE`, and `--help=SECTION.NAME` prints what stands here.",
        "",
    ]
    section = None
    for path, setting in settings_help.described(name).items():
        if path.partition(".")[0] in abouts and path.partition(".")[0] != section:
            section = path.partition(".")[0]
            lines += [f"## {section} {{ #{section} }}", "", _plain(abouts[section]), ""]
        elif "." not in path and section is None:
            section = ""
            lines += ["## The run itself { #top }", ""]
        lines += [
            f"### `{path}` {{ #{path} }}",
            "",
            f"Default {_code(repr(setting.default))}, {_choices(setting.takes)}.",
            "",
            _plain(setting.reason),
            "",
        ]
    return "\n".join(lines)


def _choices(takes):
    """Returns what a setting takes, with the choices in code."""
    if not takes.startswith("one of "):
        return takes
    return "one of " + ", ".join(map(_code, takes.removeprefix("one of ").split(", ")))


def _code(text):
    return f"<code>{html.escape(text)}</code>"


def _plain(text):
    """Returns text that Markdown shows as it is, but for `code`."""
    kept = re.split(r"(`[^`]+`)", text)
    for place in range(0, len(kept), 2):
        kept[place] = re.sub(r"([\\`*_{}\[\]#|])", r"\\\1", html.escape(kept[place], quote=False))
    return "".join(kept)
