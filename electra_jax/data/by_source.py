# SPDX-License-Identifier: Apache-2.0
"""Settings that may differ between the sources of text: data.text_field and data.documents.

'blank_lines'                every source has this value
'blank_lines; books=files'   all have it but the one that data.source calls books
"""

import unicodedata
from collections.abc import Collection


def of(value: str, source: str) -> str:
    """The value of a setting for the source of this name; '' if it has none."""
    plain, named = _parse(value)
    return named.get(source, plain)


def for_one(field: str, value: str, source: str, sources: Collection[str]) -> str:
    """A part of a line: how to set a field for this source alone; '' if there is no other one."""
    if len(sources) < 2:
        return ""
    plain, named = _parse(value)
    others = [f"{name}={own}" for name, own in named.items() if name != source]
    whole = "; ".join([*filter(None, [plain]), *others, f"{source}=..."])
    return f" (of this source alone: {field}='{whole}')"


def check(field: str, value: str, sources: Collection[str], choices: Collection[str] = ()) -> None:
    """Checks a setting for sources of these names.

    Raises ValueError, one line, if one of them has no value, a name is no source's, or a value is
    none of the choices.
    """
    try:
        plain, named = _parse(value)
    except ValueError as error:
        raise ValueError(f"{field}={value!r} {error}") from None

    for name in named:
        if name not in sources:
            raise ValueError(
                f"{field}={value!r}: no source is called {name!r}; known here:"
                f" {', '.join(sources)}; data.source names them: NAME=text:GLOB"
            )
        if not named[name]:
            raise ValueError(
                f"{field}={value!r} has no value for the source {name!r}; write {name}=VALUE, or"
                " leave it out for that of all others"
            )
    without = [name for name in sources if not named.get(name, plain)]
    if without:
        example = choices and next(iter(choices)) or "text"
        raise ValueError(
            f"{field}={value!r} has no value for the source {without[0]!r}; begin with that of all"
            f" others: {field}='{example}; NAME=VALUE'"
        )

    for found in (plain, *named.values()):
        if choices and found and found not in choices:
            raise ValueError(f"{field}={found!r} is not one of {', '.join(map(repr, choices))}")


def _parse(value: str) -> tuple[str, dict[str, str]]:
    """(The value of all that are not named, '' if there is none; those by name)."""
    plain: list[str] = []
    named: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(";"))):
        name, equals, rest = (half.strip() for half in part.partition("="))
        if not equals:
            plain.append(part)
        elif (name := unicodedata.normalize("NFC", name)) in named:
            raise ValueError(f"has two values for the source {name!r}; leave one out")
        else:
            named[name] = rest

    if len(plain) > 1:
        raise ValueError(
            f"has two values for all sources; say which source {plain[1]!r} is for:"
            f" '{plain[0]}; NAME={plain[1]}'"
        )
    return "".join(plain), named
