# SPDX-License-Identifier: Apache-2.0
"""Imports point down: the subpackages as a table, held against the code."""

import ast
import graphlib
import re

from support.corpus import ROOT

SUBPACKAGES = (  # from the ground up: a subpackage may use any subpackage on a line above its own
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
FINETUNING = ("tasks", "config", "results", "tuning")  # likewise, within finetuning
COMMANDS = (
    *("main", "prepare", "show", "evaluate", "finetune", "predict", "convert", "score"),
    *("compare", "check", "flops", "compile", "benchmark"),
)
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


def subpackage(module):
    return module.split(".")[0]


def part(module):
    """The part of a subpackage that a module is, or lies in: tasks for finetuning.tasks.files."""
    return module.split(".")[1]


def test_every_module_is_a_command_or_stands_in_a_wing():
    known = {name for line in SUBPACKAGES for name in line.split()}
    found = {subpackage(module) for module in modules()}
    assert found - set(TOP) == known, "give each new subpackage a line in SUBPACKAGES"


def test_imports_point_down():
    line = {name: number for number, names in enumerate(SUBPACKAGES) for name in names.split()}
    line |= dict.fromkeys(TOP, len(SUBPACKAGES))
    upwards = [
        f"{module} -> {imported}"
        for module, path in modules().items()
        for imported in imports(path)
        if subpackage(imported) in line
        and subpackage(imported) != subpackage(module)
        and line[subpackage(imported)] >= line[subpackage(module)]
    ]
    assert upwards == [], "move what they share to a lower subpackage"


def test_imports_within_fine_tuning_point_down():
    line = {name: number for number, names in enumerate(FINETUNING) for name in names.split()}
    upwards = [
        f"{module} -> {imported}"
        for module, path in modules().items()
        for imported in imports(path)
        if subpackage(module) == subpackage(imported) == "finetuning"
        and part(imported) != part(module)
        and line[part(imported)] >= line[part(module)]
    ]
    assert upwards == []


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
    tuning = [f"finetuning.tuning.{name}" for name in ("datasets", "features", "windows")]
    prepares = ("data.", "finetuning.tasks.", *tuning)
    for module, path in modules().items():
        if module.startswith(prepares):
            assert "jax" not in libraries(path), module


def test_the_plan_turns_the_configuration_into_parts_and_below_it_nobody_sees_it():
    """Data, networks, objectives and the step get typed arguments; a section at most."""
    free = ("core.", "host.", "data.", "model.", "objectives.", "step.")
    who = {
        module
        for module, path in modules().items()
        if module.startswith(free) and any(name.split(".")[0] == "config" for name in imports(path))
    }
    # `attention_choice` is a part of the plan; `planning` names the type of the section `data`,
    # from which it takes its settings.
    assert who == {"step.plans", "step.attention_choice", "data.planning"}


def test_what_a_workdir_says_is_read_without_orbax():
    for module in ("metadata", "saved_config"):
        assert not {"orbax", "jax"} & set(libraries(modules()[f"workdir.{module}"]))


def test_the_page_on_architecture_has_the_same_wings():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| from the top") :].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    head, commands, *subpackages = rows
    assert (head, commands) == ("from the top", "commands")
    assert [row.replace("`", "").replace("/", "") for row in reversed(subpackages)] == list(
        SUBPACKAGES
    )
    for name in COMMANDS:
        assert f"`{name}`" in page, name


def test_every_file_that_the_page_on_architecture_names_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    known = " ".join(SUBPACKAGES).split()
    named = set(re.findall(rf"\b({'|'.join(known)})/(\w+)\b", page))
    assert len(named) > 15
    for subpackage_, name in named:
        assert (ROOT / "electra_jax" / subpackage_ / f"{name}.py").exists(), f"{subpackage_}/{name}"
