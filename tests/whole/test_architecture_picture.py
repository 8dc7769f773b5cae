# SPDX-License-Identifier: Apache-2.0
"""The picture of the architecture is the one that the page and the code give now."""

import xml.etree.ElementTree

import pytest

from docs import draw_architecture
from support.corpus import ROOT

PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_committed_picture_is_the_one_that_is_drawn_now():
    same = PICTURE.read_text(encoding="utf-8") == draw_architecture.picture()
    assert same, f"the subpackages or their imports have changed; run `{draw_architecture.COMMAND}`"


def test_every_wing_is_in_the_picture_and_the_page_shows_it():
    words = [node.text for node in xml.etree.ElementTree.parse(PICTURE).iter()]
    subpackages = {path.parent.name for path in (ROOT / "electra_jax").glob("*/__init__.py")}
    subpackages.remove(
        "configs"
    )  # no subpackage: only the name under which configurations are imported
    assert {f"{subpackage}/" for subpackage in subpackages} <= set(words)
    assert "(images/architecture.svg)" in PAGE


def test_an_arrow_that_follows_from_others_is_left_out():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert draw_architecture.reduced(graph) == {("a", "b"), ("b", "c"), ("c", "d")}


@pytest.mark.parametrize("name", ["step", "flops"])
def test_a_table_without_a_wing_or_a_command_is_refused(name):
    lines = [line for line in PAGE.split("\n") if not line.startswith(f"| `{name}/`")]
    with pytest.raises(SystemExit, match=f"^{name}: not both in the table"):
        draw_architecture.levels("\n".join(lines).replace(f"`{name}`, ", ""))


def test_a_way_through_a_file_that_is_gone_is_refused(monkeypatch):
    gone = draw_architecture.Stop("losses", "objectives/gone", 3)
    monkeypatch.setattr(draw_architecture, "WAY", (*draw_architecture.WAY, gone))
    with pytest.raises(SystemExit, match="^objectives/gone: not both a file"):
        draw_architecture.picture()
