# SPDX-License-Identifier: Apache-2.0
"""The README.md of an export, from a Jinja2 template of `templates/`.

A template holds all words and the structure; Python gives names, numbers and what is there.
"""

import json
import pathlib
from typing import Any

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["json"] = json.dumps
_ENVIRONMENT.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "/")


def render(template: str, **values: Any) -> str:
    """A template with its values, as Markdown. A value that is missing raises an error."""
    return _ENVIRONMENT.get_template(template).render(values)
