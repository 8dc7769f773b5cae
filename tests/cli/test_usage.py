# SPDX-License-Identifier: Apache-2.0
"""Help: at once, complete, and true to what the program really reads."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys

import pytest
from absl import flags

from electra_jax import __main__, configs
from electra_jax import config as config_lib
from electra_jax.cli import command, config_flag, distributed, settings_help, usage, wording
from electra_jax.host import program
from electra_jax.report import closing
from support import bert_folder
from support.corpus import ROOT

RUN = """
import runpy, sys
sys.argv = ["COMMAND", *sys.argv[1:]]
try:
    runpy.run_module("electra_jax.COMMAND", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    print("ended", ended.code, *sorted({"jax", "flax", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize("name", __main__.COMMANDS)
def test_help_comes_before_all_imports(name):
    shown = subprocess.run(
        [sys.executable, "-c", RUN.replace("COMMAND", name), "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown.splitlines()[-1] == "ended 0"  # and no library was imported
    assert shown.startswith(usage.summary(__main__.file_of(name)))
    assert shown.count(f"\n    python -m electra_jax.{name}") >= 3  # examples
    if name not in ("compare", "predict"):  # whose arguments are paths
        order = [shown.index(f"  --{flag}") for flag in ("config=", "workdir=", "config.SECTION")]
        assert order == sorted(order)


@pytest.mark.parametrize("name", (*__main__.COMMANDS, "cli.command", "cli.distributed"))
def test_the_flags_of_a_source_file_are_those_that_absl_knows(name):
    module = importlib.import_module(f"electra_jax.{name}")
    holders = [value for value in vars(module).values() if isinstance(value, flags.FlagHolder)]
    read = usage.flags_of(module.__file__)
    assert {flag.name for flag in read} == {holder.name for holder in holders}
    assert all(flag.help for flag in read)


def test_the_shared_flags_are_in_every_help():
    shared = [*usage.flags_of(command.__file__), *usage.flags_of(distributed.__file__)]
    assert {"workdir", "stop_timeout", "num_processes"} <= {flag.name for flag in shared}
    shown = usage.text(importlib.import_module("electra_jax.show").__file__)
    assert all(f"--{flag.name}" in shown for flag in shared)


def test_a_flag_is_written_with_its_choices_and_its_default(tmp_path):
    file = tmp_path / "command.py"
    file.write_text(
        '"""Does a thing.\n\nIn detail."""\n'
        'A = flags.DEFINE_enum("kind", "old", ["old", "new"], "Which one.")\n'
        'B = flags.DEFINE_bool("loud", False, "Says more.")\n'
        'D = flags.DEFINE_bool("parts", True, "Times parts.")\n'
        'C = flags.DEFINE_float("limit", some.SECONDS, "Seconds.", lower_bound=1)\n'
    )
    shown = usage.text(file)
    assert usage.summary(file) == "Does a thing."
    assert re.search(r"--kind=old\|new +Which one. Default: old.\n", shown)
    assert re.search(r"--loud +Says more.\n", shown)
    assert re.search(r"--\[no\]parts +Times parts. Default: on.\n", shown)
    assert re.search(r"--limit=X +Seconds.\n", shown)


@pytest.mark.parametrize("file", ("base", "finetune"))
def test_every_setting_has_its_default_and_a_reason(file):
    described = settings_help.settings(file)
    kind = importlib.import_module(settings_help._DECLARED_IN[file]).Config
    assert set(described) == set(config_lib.declared(kind))
    for path, lines in described.items():
        head, *reason = lines.splitlines()
        assert head.startswith(f"{path} = "), path
        if "." in path or file == "finetune":
            assert reason, f"{path} has no comment in configs/{file}.py"


@pytest.mark.parametrize("file", ("base", "finetune"))
def test_every_section_says_what_it_is_about(file):
    """A page of the documentation begins each section with it."""
    abouts = settings_help.sections(file)
    paths = settings_help.described(file)
    assert set(abouts) == {path.partition(".")[0] for path in paths if "." in path}
    for section, about in abouts.items():
        assert about.endswith(".") and "(" not in about.split()[0], section  # not dataclasses' own


def test_a_setting_is_described_from_where_it_is_declared(capsys):
    assert settings_help.show("model.norm_place", "base") == 0
    assert capsys.readouterr().out.splitlines() == [
        "model.norm_place = 'post'   one of 'post', 'pre'",
        "    after the residual sum, as in BERT | 'pre': before attention and feed-forward,"
        " and once more",
        "    after the last layer",
    ]
    assert settings_help.show("schedule.steps", "base") == 0
    assert "a whole number, 1 to 2147483647" in capsys.readouterr().out


def test_a_comment_above_a_blank_line_belongs_to_no_setting(tmp_path):
    file = tmp_path / "base.py"
    file.write_text(
        "def model():\n"
        "    # A heading.\n"
        "\n"
        "    # above\n"
        "    c.width = 3  # beside\n"
        "    c.heads = 2\n"
    )
    assert settings_help.comments(file) == {"model.width": "above beside", "model.heads": ""}


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("data.rowz", "did you mean 'data.rows'?"),
        ("nonsense", "sections: data, model, objective"),
    ],
)
def test_an_unknown_setting_is_an_error_with_a_hint(asked, line, capsys):
    assert settings_help.show(asked, "base") == 2
    assert line in capsys.readouterr().err


def test_the_overview_has_every_command(capsys, monkeypatch):
    files = {path.stem for path in (ROOT / "electra_jax").glob("*.py")}
    assert set(__main__.COMMANDS) == {name for name in files if not name.startswith("__")}
    for asked in ([], ["help"], ["--help"]):
        monkeypatch.setattr(sys, "argv", ["electra-jax", *asked])
        __main__.main()
        shown = capsys.readouterr().out
        assert all(f"\n  {name} " in shown for name in __main__.COMMANDS)


@pytest.mark.parametrize(
    ("called", "name", "main"),
    [
        ("python /venv/bin/electra-jax show --x", "electra-jax", "electra-jax main"),
        ("python -W error -m electra_jax x", "python -m electra_jax", "python -m electra_jax main"),
        ("python -m electra_jax.show", "python -m electra_jax", "python -m electra_jax.main"),
        ("python mine.py", "python -m electra_jax", "python -m electra_jax.main"),
    ],
)
def test_the_program_is_called_as_the_reader_has_called_it(called, name, main):
    assert program.name(called.split()) == name
    assert program.command("main", called.split()) == main


def test_all_that_names_a_command_names_it_as_it_was_called(capsys, monkeypatch, tmp_path):
    """Help, refusals, the overview and the lines at the end of a run."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "/venv/bin/electra-jax", "show"])
    for name in __main__.COMMANDS:
        shown = usage.text(__main__.file_of(name))
        assert shown.count(f"\n    electra-jax {name} ") >= 2 and "python -m" not in shown, name
    assert "To begin: electra-jax main --config=tiny" in __main__.overview()
    assert closing.text({}, "runs/a", False).count("electra-jax ") == 3
    with pytest.raises(config_lib.ConfigError, match="; electra-jax main --config=tiny --workdir"):
        config_flag.define_config(["show", f"--workdir={tmp_path / 'none'}"])


def test_nothing_else_in_the_package_spells_out_how_it_is_called():
    """What is printed takes it from host/program.py; docstrings are fitted or are for readers."""
    for file in (ROOT / "electra_jax").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        }
        for node in ast.walk(tree):
            said = node.value if isinstance(node, ast.Constant) else None
            if isinstance(said, str) and said not in docstrings:
                assert "python -m electra_jax." not in said, file


def test_help_names_pages_that_are_not_installed_in_words(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "data.md").touch()
    words = "a cluster (docs/data.md). docs/guides/gpu.md has more."
    fitted = "a cluster (docs/data.md). guides/gpu.md of the documentation has more."
    assert wording.pages(words, str(tmp_path)) == fitted
    assert wording.pages(words) == words  # a checkout has both


def test_a_paragraph_with_a_longer_name_keeps_its_width(monkeypatch):
    monkeypatch.setattr(wording, "pages", lambda words: words.replace("docs/", "elsewhere/"))
    shown = wording.fitted("Does.\n\n    an example\n\nIs told\nin docs/a.md.", 80)
    assert shown == "Does.\n\n    an example\n\nIs told in elsewhere/a.md."


def test_help_knows_commands_and_the_version_is_the_packages(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["electra-jax", "help", "finetune"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Fine-tunes a pre-trained encoder")
    assert "--config.encoder.init=fresh \\\n        --config.name=random" in shown

    monkeypatch.setattr(sys, "argv", ["electra-jax", "--version"])
    __main__.main()
    assert capsys.readouterr().out.strip() == importlib.metadata.version("electra_jax")


@pytest.mark.parametrize("asked", ("help all", "main --help"))
def test_a_reader_that_has_seen_enough_is_no_error(asked):
    line = f"{sys.executable} -m electra_jax {asked} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_is_an_error_with_a_hint(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["electra-jax", "evalute"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 2
    assert "did you mean 'evaluate'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "code", "lines"),
    [
        ("recipe.layer_decay", 0, ["recipe.layer_decay = 0.0   a number, 0 to 1"]),
        ("data.rows", 0, ["data.rows = 'pairs'   one of 'pairs', 'packed'"]),
        ("evaluation", 0, ["configs/base.py:", "configs/finetune.py:", "evaluation.times = 4"]),
        ("data.dev_shar", 2, ["did you mean 'data.dev_share'?"]),
        ("nonsense", 2, ["schedule", "recipe"]),
    ],
)
def test_help_knows_the_settings_of_pre_training_and_of_fine_tuning(
    asked, code, lines, capsys, monkeypatch
):
    for words in (["help", asked], [f"--help={asked}"]):
        monkeypatch.setattr(sys, "argv", ["electra-jax", *words])
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        assert ended.value.code == code
        shown = "".join(capsys.readouterr())
        assert all(line in shown for line in lines), shown


# Configurations by name


@pytest.mark.parametrize("given", ("tiny", "tiny.py", "configs/tiny.py"))
def test_a_name_finds_the_packages_configuration_from_any_folder(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert configs.path(given) == str(ROOT / "configs" / "tiny.py")


def test_a_file_of_ones_own_counts_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "tiny.py").write_text("")
    assert configs.path("configs/tiny.py") == "configs/tiny.py"
    assert configs.path("nothing") is None


def test_the_command_line_gets_the_file_first_and_keeps_the_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(ROOT / "configs" / "deberta_v3.py")
    for given, expected in (
        (
            ["--config=deberta_v3:tiny", "--config.seed=3"],
            [f"--config={file}:tiny", "--config.seed=3"],
        ),
        (["--config.seed=3", "-config", "deberta_v3"], ["-config", file, "--config.seed=3"]),
        (["--config.seed=3", "--config=deberta_v3"], [f"--config={file}", "--config.seed=3"]),
    ):
        assert config_flag.with_file(["main", *given]) == ["main", *expected]


@pytest.mark.parametrize("name", configs.names())
def test_every_configuration_is_a_module_of_the_package(name, tmp_path):
    module = importlib.import_module(f"electra_jax.configs.{name}")
    needs = [bert_folder.write(tmp_path / "bert")] if name == "continued" else []
    assert module.get_config(*needs).name
