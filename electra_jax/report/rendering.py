# SPDX-License-Identifier: Apache-2.0
"""Whole HTML pages from Jinja2 templates.

    values (numbers as text, charts as SVG)  ->  a template of `templates/`  ->  one HTML file

Python reads the metrics, chooses what is shown and writes the numbers; a template holds the
structure and the words of a page. Style sheets are files beside the templates and are included,
so a page needs no other file.

All text is escaped. Only charts (`drawing.svg`) and samples (`view_html.py`) are HTML already; the
templates mark them with `| safe`.
"""

import datetime
import os
import pathlib
from typing import Any

import jinja2

from electra_jax.report import style

_TEMPLATES = pathlib.Path(__file__).parent / "templates"


def environment(*folders: str | os.PathLike) -> jinja2.Environment:
    """The templates of this subpackage, and those of `folders`, which are searched first.

    An environment keeps its compiled templates, so make one per module, not one per page.
    """
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The package may be updated while a run is training. Its templates then stay those that
        # belong to the Python code in memory.
        auto_reload=False,
    )
    env.globals.update(light=style.LIGHT, dark=style.DARK, font=style.FONT)
    return env


_ENVIRONMENT = environment()


def render(template: str, **values: Any) -> str:
    """A template of this subpackage with its values. A value that is missing raises an error."""
    return _ENVIRONMENT.get_template(template).render(values)


REFRESH = 30  # seconds after which an open page loads itself again


def written(live: bool) -> dict[str, Any]:
    """What `live.html.j2` needs: when the page was written, and whether a newer one will come."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "refresh": REFRESH if live else None,
        "written": now.isoformat(timespec="seconds"),
        "written_words": f"{now:%Y-%m-%d %H:%M:%S} UTC",
    }


def fact(value: Any) -> str:
    """A setting or a count as it is written in a table."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(fact, value)) or "-"
    return str(value) or "-"
