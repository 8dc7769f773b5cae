# SPDX-License-Identifier: Apache-2.0
"""Imports point down: the wings of the package as a table, held against the code."""

import ast
import graphlib
import re

from support.corpus import ROOT

WINGS = (  # from the ground up: a wing may use any wing on a line above its own
    "host core",
    "config",
    "data model",
    "workdir objectives",
    "step",
    "report",
    "weights",
    "training",
    "speed finetuning",
    "checks",
    "cli",
)
COMMANDS = "main prepare show evaluate finetune convert score compare check flops benchmark".split()
TOP = (*COMMANDS, "__main__")  # the last runs a command by its name


def modules():
    """{name: path} of every module but the packages' own files."""
    base = ROOT / "electra_jax"
    return {
        ".".join(path.relative_to(base).with_suffix("").parts): path
        for path in sorted(base.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imports(path):
    """The modules of ours that a file imports, as data.text for electra_jax.data.text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("electra_jax"):
            package = node.module.removeprefix("electra_jax").lstrip(".")
            yield from (f"{package}.{alias.name}".lstrip(".") for alias in node.names)


def libraries(path):
    """The libraries that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def wing(module):
    return module.split(".")[0]


def test_every_module_is_a_command_or_stands_in_a_wing():
    known = {name for line in WINGS for name in line.split()}
    found = {wing(module) for module in modules()}
    assert found - set(TOP) == known, "give each new wing a line in WINGS"


def test_imports_point_down():
    line = {name: number for number, names in enumerate(WINGS) for name in names.split()}
    line |= dict.fromkeys(TOP, len(WINGS))
    upwards = [
        f"{module} -> {imported}"
        for module, path in modules().items()
        for imported in imports(path)
        if wing(imported) in line
        and wing(imported) != wing(module)
        and line[wing(imported)] >= line[wing(module)]
    ]
    assert upwards == [], "move what they share to a lower wing"


def test_no_circle_of_modules():
    graph = {module: set(imports(path)) & set(modules()) for module, path in modules().items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_only_the_model_knows_flax_and_only_the_checkpoint_knows_orbax():
    for library, allowed in (
        ("flax", "model."),
        ("orbax", "weights.checkpoint"),
        ("tensorflow", "nowhere"),
    ):
        who = [module for module, path in modules().items() if library in libraries(path)]
        assert [module for module in who if not module.startswith(allowed)] == [], library


def test_preparing_needs_no_jax():
    """Worker processes import these, or none is needed; jax costs seconds and memory."""
    tuning = ("finetuning.tuning.features", "finetuning.tuning.windows")
    prepares = ("data.", "finetuning.tasks.", *tuning)
    for module, path in modules().items():
        if module.startswith(prepares):
            assert "jax" not in libraries(path), module


def test_what_a_workdir_says_is_read_without_orbax():
    for module in ("metadata", "saved_config"):
        assert not {"orbax", "jax"} & set(libraries(modules()[f"workdir.{module}"]))


def test_the_page_on_architecture_has_the_same_wings():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| from the top") :].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    head, commands, *wings = rows
    assert (head, commands) == ("from the top", "commands")
    assert [row.replace("`", "").replace("/", "") for row in reversed(wings)] == list(WINGS)
    for name in COMMANDS:
        assert f"`{name}`" in page, name


def test_every_file_that_the_page_on_architecture_names_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    known = " ".join(WINGS).split()
    named = set(re.findall(rf"\b({'|'.join(known)})/(\w+)\b", page))
    assert len(named) > 15
    for wing_, name in named:
        assert (ROOT / "electra_jax" / wing_ / f"{name}.py").exists(), f"{wing_}/{name}"
