# SPDX-License-Identifier: Apache-2.0
"""The settings that whatever reads text is given."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How the text of one source is read; the fields are those of `config.data`."""

    text_field: str = "text"
    documents: str = "blank_lines"
    invalid_utf8: str = "replace"
    min_document_characters: int = 0
