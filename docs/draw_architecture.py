# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/architecture.svg: the subpackages, who imports whom, and the way of a batch.

    python docs/draw_architecture.py

The subpackages, their levels and what they hold are read from the table in docs/architecture.md,
the imports from the code. Of the imports only the transitive reduction is drawn: an arrow that
follows from others is left out. The way of a batch is listed here (`WAY`); each of its files has to
exist and to be named on the page. Whatever does not agree ends the drawing with a message.
"""

import ast
import dataclasses
import pathlib
import re
import textwrap
import xml.sax.saxutils

from electra_jax.report import style

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "electra_jax"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
COMMAND = "python docs/draw_architecture.py"
COMMANDS = "commands"


@dataclasses.dataclass(frozen=True)
class Stop:
    """A step of the way: what there is then, its file, and where both are written."""

    what: str
    file: str
    column: int
    label: str = "right"  # of the number; left; or right and below the line that continues there


WAY = (
    Stop("text", "data/text", 0, "below"),
    Stop("rows", "data/records", 1, "below"),
    Stop("batch on the mesh", "training/feed", 1, "below"),
    Stop("corrupted batch", "objectives/masking", 2, "left"),
    Stop("logits", "model/networks", 2, "below"),
    Stop("losses", "objectives/replaced_token_detection", 3),
    Stop("new state", "step/train_step", 3),
    Stop("report", "report/run_page", 3),
    Stop("checkpoint", "weights/checkpoint_series", 3),
)

# Lengths in pixels. Texts are given room for wide fonts, because every reader's is another.
WIDTH = 960
MARGIN = 24
LEFT, RIGHT = 64, 396  # of the boxes; arrows that pass a level run outside them
BETWEEN = 12  # two boxes on one level
HEIGHT, GAP = 60, 24  # of a box; from one level to the next
TRACK = 11  # from one arrow outside the boxes to the next
COLUMNS = (452, 522, 672, 770)  # of the stops
LETTERS = {1: 57, 2: 24}  # in a line of a phrase, by the number of boxes on the level
LONGEST_FILE = 22  # letters that fit beside the last column


# What there is to draw.


def levels(page: str) -> list[dict[str, str]]:
    """The table of the page from the top: per level the phrase of each subpackage."""
    table = page[page.index("| from the top") :].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    found = []
    for names, holds in rows:
        subpackages = re.findall(r"(\w+)", names)
        phrases = dict(re.findall(r"`(\w+)/`: (.+?)(?:; (?=`)|$)", holds))
        if subpackages == [COMMANDS]:
            phrases = {COMMANDS: holds.partition(":")[0]}
        elif len(subpackages) == 1:
            phrases = {subpackages[0]: holds}
        found.append(
            {subpackage: phrases[subpackage].replace("`", "") for subpackage in subpackages}
        )

    commands = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"configs"}
    in_table = {subpackage for level in found for subpackage in level}
    listed = set(found[0].get(COMMANDS, "").split(", "))
    different = (in_table ^ (folders | {COMMANDS})) | (listed ^ commands)
    if different:
        raise SystemExit(
            f"{', '.join(sorted(different))}: not both in the table of {PAGE.relative_to(ROOT)} "
            "and in the package; correct the table"
        )
    return found


def imports(subpackages: set[str]) -> dict[str, set[str]]:
    """The other subpackages whose modules a subpackage imports."""
    found = {subpackage: set() for subpackage in subpackages}
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.relative_to(PACKAGE).parts[0]
        subpackage = folder if folder in subpackages else COMMANDS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    package, *inside = f"{node.module}.{alias.name}".split(".")
                    if package == PACKAGE.name and inside[0] in subpackages - {subpackage}:
                        found[subpackage].add(inside[0])
    return found


def reduced(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The transitive reduction of a graph without circles."""

    def below(subpackage):
        return graph[subpackage].union(*(below(lower) for lower in graph[subpackage]))

    return {
        (subpackage, lower)
        for subpackage in graph
        for lower in graph[subpackage]
        if not any(lower in below(other) for other in graph[subpackage])
    }


def check_way(page: str) -> None:
    for stop in WAY:
        if not (PACKAGE / f"{stop.file}.py").exists() or stop.file not in page:
            raise SystemExit(
                f"{stop.file}: not both a file of the package and named in "
                f"{PAGE.relative_to(ROOT)}; correct WAY in {COMMAND.split()[1]}"
            )


# Where it stands.


@dataclasses.dataclass(frozen=True)
class Box:
    subpackage: str
    lines: list[str]
    level: int
    left: float
    right: float
    sides: frozenset[str]  # with no other box between them and the edge

    @property
    def top(self):
        return MARGIN + self.level * (HEIGHT + GAP)

    @property
    def bottom(self):
        return self.top + HEIGHT

    def edge(self, side):
        return self.left if side == "left" else self.right


def boxes(table: list[dict[str, str]]) -> dict[str, Box]:
    found = {}
    for level, subpackages in enumerate(table):
        width = (RIGHT - LEFT - BETWEEN * (len(subpackages) - 1)) / len(subpackages)
        for place, (subpackage, phrase) in enumerate(subpackages.items()):
            if len(textwrap.wrap(phrase, LETTERS[len(subpackages)])) > 2:
                raise SystemExit(f"{subpackage}: {phrase!r} does not fit into its box; shorten it")

            # The narrowest lines that are not more: two of about one length.
            wraps = (
                textwrap.wrap(phrase, letters)
                for letters in range(20, LETTERS[len(subpackages)] + 1)
            )
            lines = min(wraps, key=len)

            left = LEFT + place * (width + BETWEEN)
            sides = ["left"] * (place == 0) + ["right"] * (place == len(subpackages) - 1)
            found[subpackage] = Box(subpackage, lines, level, left, left + width, frozenset(sides))
    return found


@dataclasses.dataclass(frozen=True)
class Detour:
    """An arrow that passes at least one level, outside the boxes on one side."""

    subpackage: str
    lower: str
    side: str
    track: int

    def x(self):
        away = TRACK * (self.track + 1.5)
        return LEFT - away if self.side == "left" else RIGHT + away


def detours(arrows: set[tuple[str, str]], placed: dict[str, Box]) -> list[Detour]:
    """Each on the innermost track that is free; short ones choose first."""

    def span(arrow):
        return placed[arrow[0]].level, placed[arrow[1]].level

    def overlap(one, other):
        return one[0] < other[1] and other[0] < one[1]

    found = []
    for arrow in sorted(sorted(arrows), key=lambda arrow: span(arrow)[1] - span(arrow)[0]):
        above, below = (placed[subpackage].sides for subpackage in arrow)
        taken = {
            (detour.side, detour.track)
            for detour in found
            if overlap(span((detour.subpackage, detour.lower)), span(arrow))
        }
        free = [
            (track, side)
            for track in range(len(arrows))
            for side in sorted(above & below or above)
            if (side, track) not in taken
        ]
        track, side = min(free)
        found.append(Detour(*arrow, side, track))
    return found


def height_at(
    detour: Detour, subpackage: str, every: list[Detour], placed: dict[str, Box]
) -> float:
    """Where a detour touches the side of a box.

    From the top: those that arrive, the inner tracks first, then those that leave, the outer tracks
    first. In this order no two of them cross.
    """
    here = [other for other in every if other.side == detour.side and subpackage == other.lower]
    here.sort(key=lambda other: other.track)
    leaving = [
        other for other in every if other.side == detour.side and subpackage == other.subpackage
    ]
    here += sorted(leaving, key=lambda other: -other.track)
    return placed[subpackage].top + HEIGHT * (here.index(detour) + 1) / (len(here) + 1)


# The parts of the picture, as text.


def text(x, y, words, kind, anchor="start"):
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{x:g}" y="{y:g}" class="{kind}"{where}>{xml.sax.saxutils.escape(words)}</text>'
    )


def line(points: list[tuple[float, float]], kind: str, radius: float = 8) -> str:
    """A line with rounded corners; its parts are horizontal or vertical."""
    path = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:]):
        near, far = (_towards(corner, other, radius) for other in (before, after))
        path.append(f"L{near[0]:g} {near[1]:g}Q{corner[0]:g} {corner[1]:g} {far[0]:g} {far[1]:g}")
    path.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
    return f'<path d="{"".join(path)}" class="{kind}"/>'


def _towards(start, end, far):
    length = abs(end[0] - start[0]) + abs(end[1] - start[1])
    share = min(far, length / 2) / length if length else 0
    return tuple(a + (b - a) * share for a, b in zip(start, end))


def head(x: float, y: float, direction: tuple[int, int]) -> str:
    """The head of an arrow whose tip is at (x, y)."""
    right, down = direction
    sides = [(x - 6 * right + 3.5 * s * down, y - 6 * down + 3.5 * s * right) for s in (-1, 1)]
    corners = "L".join(f"{a:g} {b:g}" for a, b in [(x, y), *sides])
    return f'<path d="M{corners}Z" class="head"/>'


def draw_detour(detour: Detour, every: list[Detour], placed: dict[str, Box]) -> list[str]:
    start, end = placed[detour.subpackage], placed[detour.lower]
    leaves = height_at(detour, detour.subpackage, every, placed)
    points = [(start.edge(detour.side), leaves), (detour.x(), leaves)]

    if detour.side in end.sides:
        arrives = height_at(detour, detour.lower, every, placed)
        tip, direction = (end.edge(detour.side), arrives), (1 if detour.side == "left" else -1, 0)
        points.append((detour.x(), arrives))
    else:  # its neighbour is in the way: over it, and in from the top
        over = end.top - GAP / 2
        tip, direction = ((end.left + end.right) / 2, end.top), (0, 1)
        points += [(detour.x(), over), (tip[0], over)]
    return [line([*points, tip], "arrow"), head(*tip, direction)]


def draw_step_down(subpackage: str, lower: str, placed: dict[str, Box]) -> list[str]:
    """An arrow to the next level: straight where one box is above the other."""
    start, end = placed[subpackage], placed[lower]
    shared = max(start.left, end.left), min(start.right, end.right)
    if shared[0] < shared[1]:
        points = [(sum(shared) / 2, start.bottom), (sum(shared) / 2, end.top)]
    else:
        rightwards = end.left > start.left
        x, tip = (
            (start.right - 24, end.left + 24) if rightwards else (start.left + 24, end.right - 24)
        )
        middle = start.bottom + GAP / 2
        points = [(x, start.bottom), (x, middle), (tip, middle), (tip, end.top)]
    return [line(points, "arrow"), head(*points[-1], (0, 1))]


def draw_box(box: Box) -> list[str]:
    name = box.subpackage if box.subpackage == COMMANDS else f"{box.subpackage}/"
    first = box.top + (20 if len(box.lines) == 2 else 26)
    parts = [
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}" '
        f'height="{HEIGHT}" rx="8" class="box"/>',
        text(box.left + 12, first, name, "name"),
    ]
    for place, words in enumerate(box.lines, 1):
        parts.append(text(box.left + 12, first + 2 + 14 * place, words, "holds"))

    here = [i for i, stop in enumerate(WAY, 1) if stop.file.split("/")[0] == box.subpackage]
    for place, number in enumerate(reversed(here)):
        parts += draw_number(box.right - 16 - 20 * place, box.top + 16, number)
    return parts


def draw_number(x, y, number):
    return [
        f'<circle cx="{x:g}" cy="{y:g}" r="8.5" class="stop"/>',
        text(x, y + 3.7, str(number), "number", "middle"),
    ]


def draw_way(placed: dict[str, Box]) -> list[str]:
    stations = [placed[stop.file.split("/")[0]] for stop in WAY]
    parts = [
        f'<rect x="{RIGHT - 20}" y="{top}" width="{WIDTH - MARGIN - RIGHT + 20}" '
        f'height="{HEIGHT}" rx="8" class="lane"/>'
        for top in sorted({box.top for box in stations})
    ]

    at = [
        (COLUMNS[stop.column], box.top + (18 if stop.label == "below" else HEIGHT / 2))
        for stop, box in zip(WAY, stations)
    ]
    for here, there in zip(at, at[1:]):
        turns = [(there[0], here[1])] if here[0] != there[0] and here[1] != there[1] else []
        parts.append(line([here, *turns, there], "way", 14))

    for number, (stop, (x, y)) in enumerate(zip(WAY, at), 1):
        parts += draw_number(x, y, number) + draw_label(x, y, stop)
    return parts


def draw_label(x: float, y: float, stop: Stop) -> list[str]:
    folder, name = stop.file.split("/")
    files = [f"{folder}/", name] if len(stop.file) > LONGEST_FILE else [stop.file]

    x, anchor = (x - 15, "end") if stop.label == "left" else (x + 15, "start")
    y += 17 if stop.label == "below" else 4 - 7 * len(files)
    rest = [text(x, y + 14 * i, file, "file", anchor) for i, file in enumerate(files, 1)]
    return [text(x, y, stop.what, "what", anchor), *rest]


def draw_key(x: float, top: float) -> list[str]:
    return [
        text(x, top + 20, "The subpackages of electra_jax", "title"),
        line([(x, top + 48), (x + 34, top + 48)], "arrow"),
        head(x + 34, top + 48, (1, 0)),
        text(x + 46, top + 52, "imports; an arrow that follows from others is left out", "key"),
        line([(x, top + 76), (x + 34, top + 76)], "way"),
        *draw_number(x + 17, top + 76, 1),
        text(x + 46, top + 80, "the way of a batch, from text to a checkpoint", "key"),
    ]


def style_sheet() -> str:
    mono = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

    def colours(of):
        return (
            f".page{{fill:{of['page']}}}.box{{fill:{of['card']};stroke:{of['line']}}}"
            f".lane{{fill:{of['grid']}}}.arrow{{stroke:{of['muted']}}}.head{{fill:{of['muted']}}}"
            f".way{{stroke:{of['shared']}}}.stop{{fill:{of['shared']}}}.number{{fill:{of['card']}}}"
            f".name,.title,.what{{fill:{of['ink']}}}.holds,.file,.key{{fill:{of['muted']}}}"
        )

    return "\n".join(
        (
            f"text{{font-family:{style.FONT}}}.name,.file{{font-family:{mono}}}",
            ".title{font-size:16px;font-weight:600}.name{font-size:13px;font-weight:600}",
            ".what{font-size:12px;font-weight:600}.key{font-size:12px}.number{font-size:10.5px;"
            "font-weight:700}.holds{font-size:10.5px}.file{font-size:10px}",
            ".arrow,.way{fill:none}.arrow{stroke-width:1}.way{stroke-width:3}",
            colours(style.LIGHT),
            f"@media (prefers-color-scheme:dark){{{colours(style.DARK)}}}",
        )
    )


def picture() -> str:
    page = PAGE.read_text(encoding="utf-8")
    check_way(page)
    placed = boxes(levels(page))
    arrows = reduced(imports(set(placed)))
    beside = {(a, b) for a, b in arrows if placed[b].level - placed[a].level > 1}
    around = detours(beside, placed)

    parts = draw_way(placed)
    for subpackage, lower in sorted(arrows - beside):
        parts += draw_step_down(subpackage, lower, placed)
    for detour in around:
        parts += draw_detour(detour, around, placed)
    for box in placed.values():
        parts += draw_box(box)
    parts += draw_key(COLUMNS[0], MARGIN)

    height = max(box.bottom for box in placed.values()) + MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<!-- {COMMAND} -->",
            "<title>The subpackages of electra_jax and the way of a batch</title>",
            f"<style>\n{style_sheet()}\n</style>",
            f'<rect width="{WIDTH}" height="{height:g}" rx="12" class="page"/>',
            *parts,
            "</svg>\n",
        )
    )


def main():
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
