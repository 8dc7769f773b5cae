# SPDX-License-Identifier: Apache-2.0
"""What the pages tell a reader to type works: every command line is read, and run.

The tier `slow` runs those of the guides, the tier `exhaustive` all others.

`documented.py` finds the command lines, with the names that it puts for FOLDER and its like, and
lays out a folder with all that they name. A command that is added to a page is read and run here
as it stands; if it names what is not there, add it to the layout.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from support import command_server, corpus, documented
from support.corpus import ROOT

COMMANDS = documented.commands()

# These are copies of one run, so commands that differ in them alone are the same here.
_ALIKE = re.compile(r"runs/(tiny_paper|tiny|small|mine|wikipedia)\b")


def _alike(command):
    """What is run once, however often pages show it."""
    reads = command.module not in ("main", "prepare")
    return _ALIKE.sub("runs/*", command.what) if reads else command.what


ONCE = list({_alike(command): command for command in reversed(COMMANDS)}.values())[::-1]
OF_GUIDES = {_alike(command) for command in COMMANDS if command.page.startswith("docs/guides/")}

# Networks, text and steps of a size for tests, added where the command says nothing else.
SMALLER = {
    "config.data.source": "text:corpus/*.txt",
    "config.data.vocab": "train:wordpiece:150",
    "config.data.sequence_length": 32,
    "config.data.batch_size": 8,
    "config.data.workers": 1,
    "config.data.heldout_fraction": 0.1,
    "config.model.embedding_size": 16,
    "config.model.max_positions": 48,
    "config.model.discriminator.layers": 2,
    "config.model.discriminator.width": 32,
    "config.model.discriminator.heads": 2,
    "config.model.discriminator.feed_forward": 64,
    "config.schedule.steps": 2,
    "config.schedule.warmup_steps": 1,
    "config.evaluation.rows": 8,
}
SMALLER_GENERATOR = {
    "config.model.generator.layers": 1,
    "config.model.generator.width": 16,
    "config.model.generator.heads": 2,
    "config.model.generator.feed_forward": 32,
}
FEWER = {  # of fine-tuning
    "config.seeds": 1,
    "config.recipe.epochs": 1,
    "config.recipe.batch_size": 16,
    "config.evaluation.times": 1,
    "config.run.lengths": "(32,)",
    "config.data.dir": "glue",  # where the command would ask TFDS for GLUE
}
# A part of a command -> a part of the one of its page that makes what it reads.
AFTER = {
    "main --workdir=runs/continued": "convert --from=electra-small --workdir=runs/continued",
    "--workdir=runs/stage_2": "--workdir=runs/stage_1",
    "--workdir=runs/fast": "--workdir=runs/generator",
    "score --workdir=runs/electric": "main --config=configs/electric.py",
    "--control=random": "--config.name=random",
    "--control=before": "--config.name=before",
}
# Pre-training with one of these parts trains two steps. The others are run as they stand, up to
# --dry_run, and so are scripts of clusters and records of experiments: other tests train each
# objective, and each compilation takes ten seconds.
TRAINED = (
    "configs/tiny.py",
    "runs/mine",
    "runs/continued",
    "runs/stage_",
    "runs/fast",
    "runs/generator",
    "runs/electric",
    "data.added_pieces=2000",
)
# Parts of commands that are read and not run here, and why.
ONLY_READ = {
    "check ": "trains for minutes; checks/test_checks.py runs each check",
    "--from=electra_small": "needs Google's checkpoint; weights/test_google.py makes such ones",
    "configs/continue_from_google_small.py": "needs Google's checkpoint",
    "--push=": "needs an account of the Hub; weights/test_weights_on_the_hub.py",
    "=hf:": "reads the Hub; weights/test_weights_on_the_hub.py",
    "logging.writers=": "needs the package; report/test_real_services.py",
    "--ray=": "needs a cluster of Ray; data/test_ray.py",
    "configs/base.py --json": "times a base model for minutes",
    "batch_size=16": "times what configs/small.py alone has; speed/test_benchmark.py",
}


class Server(command_server.CommandServer):
    """Runs documented commands in a folder where all that they name lies."""

    def __call__(self, command, folder, more=(), parse_only=False, **env):
        """Runs one; returns its output. Fails where it does not end well."""
        module, argv = f"electra_jax.{command.module}", [*words(command, folder), *more]
        done = self.run(module, argv, os.environ | env, folder, parse_only)
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command.name}\n{shlex.join(argv)}\n{output[-3000:]}"
        return output


def words(command, folder):
    """The arguments as a shell gives them: quotes, braces and patterns."""
    line = f"printf '%s\\0' {command.rest}" if command.rest else "true"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.split("\0")[:-1]


@pytest.fixture(scope="module")
def server():
    found = Server(os.environ)
    yield found
    found.close()


def test_the_pages_have_commands():
    """If none are found, nothing below would fail."""
    pages = {command.page for command in COMMANDS}
    assert {"README.md", "docs/finetuning.md", "configs/tiny.py", "launch/slurm.sbatch"} <= pages
    assert len(COMMANDS) > 60 and len(ONCE) > 40
    for name in ("main", "finetune", "convert", "show", "evaluate", "score", "compare", "flops"):
        assert any(command.module == name for command in COMMANDS), name


def test_every_command_line_is_read(server, tmp_path):
    """Flags, fields and values of all of them, up to where the work would begin."""
    folder = documented.layout(tmp_path / "here")
    for command in ONCE:
        assert os.path.exists(ROOT / "electra_jax" / f"{command.module}.py"), command.name
        if command.rest:
            server(command, folder, parse_only=True)


FIELD = re.compile(r"(?:--config\.)?((?:[a-z_]+\.)+[a-z_0-9]+)(?:=.*)?")
FILE = re.compile(r"\.(py|safetensors|stablehlo|json|txt|lock)$")


def test_every_setting_that_a_page_names_is_one():
    """`section.field` and `section.field=value` in the text of README.md, docs/ and launch/."""
    trees = [corpus.load_config("base"), corpus.load_config("finetune")]
    sections = {name for tree in trees for name in tree if hasattr(tree[name], "keys")}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "launch").glob("*.md")]
    found = 0
    for page in pages:
        for quoted in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            match = FIELD.fullmatch(quoted)
            if not match or match[1].split(".")[0] not in sections or FILE.search(match[1]):
                continue
            if match[1] == "objective.init":  # a method, not a setting
                continue
            found += 1
            assert any(has(tree, match[1]) for tree in trees), f"{page.name}: {quoted}"
    assert found > 100


def has(tree, path):
    """Whether a tree of settings has the one at 'section.field'."""
    for name in path.split("."):
        if not hasattr(tree, "keys") or name not in tree:
            return False
        tree = tree[name]
    return True


@pytest.fixture(scope="module")
def plain(server, tmp_path_factory):
    """(a folder with a run of two steps, `made`; the function that runs a command in it)."""
    folder = documented.layout(tmp_path_factory.mktemp("documented") / "plain")

    def run(module, rest, more=()):
        server(documented.Command("here", 0, module, "", rest), folder, more)

    more = added({**SMALLER, **SMALLER_GENERATOR}, "")
    run("main", "--config=configs/tiny_paper.py --workdir=made", more)
    return folder, run


@pytest.fixture(scope="module")
def prepared(plain):
    """The folder that every command finds: runs of two steps, and an export."""
    made, run = plain
    folder = documented.layout(made.parent / "folder", made / "made")
    run("convert", "--workdir=made --to=hugging_face --out=electra-small")
    shutil.copytree(made / "electra-small", folder / "electra-small")
    return folder


@pytest.fixture(scope="module")
def tuned(plain):
    """The workdir of a fine-tuned run, for the commands that read one."""
    made, run = plain
    shutil.copytree(made / "made", made / "runs" / "tuned")
    run(
        "finetune",
        "--workdir=runs/tuned --config=configs/finetune_custom.py --config.name=finetune"
        " --config.recipe.head=two_layer",
        added(FEWER | {"config.data.dir": "."}, ""),
    )
    return made / "runs" / "tuned"


def added(settings, rest):
    """The settings as flags, less those that the command line gives."""
    return [f"--{name}={value}" for name, value in settings.items() if f"--{name}=" not in rest]


def is_dry(command):
    """Whether it only says what it would do."""
    if command.script or "--dry_run" in command.rest:
        return True
    if command.page.startswith("docs/experiments/"):
        return True
    return command.module == "main" and not any(part in f"{command.rest} " for part in TRAINED)


def smaller(command):
    """What is added to a command for a test's sake."""
    if is_dry(command):
        return ["--dry_run"]
    if command.module == "finetune":
        more = dict(FEWER)
        if "custom" in command.rest:
            more["config.data.dir"] = "tfds"  # as it stands: files lie where the command runs
        return added(more, command.rest)
    if (
        command.module in ("main", "prepare", "benchmark", "convert")
        and "--config=" in command.rest
    ):
        more = dict(SMALLER)
        more |= SMALLER_GENERATOR
        if "two_stage" in command.rest:  # whose networks have one shape
            shape = {n: v for n, v in SMALLER.items() if ".discriminator." in n}
            more |= {n.replace("discriminator", "generator"): v for n, v in shape.items()}
        if "generator_alone" in command.rest:  # its one network is the generator of the next run
            shape = SMALLER_GENERATOR.items()
            more |= {n.replace("generator", "discriminator"): v for n, v in shape}
        if "--from=" in command.rest or "continued.py:" in command.rest:  # shapes are the weights'
            theirs = (".model.", "vocab", "sequence_length")
            more = {n: v for n, v in more.items() if not any(part in n for part in theirs)}
        steps = ["--steps=1"] if command.module == "benchmark" else []
        return added(more, command.rest) + steps
    return []


MADE = {  # by command, where it names no other place: files that it must leave
    "finetune": "{workdir}/finetune/*/results.json",
    "main": "{workdir}/checkpoints/2",
    "convert": "{out}",
    "compare": "compare.html",
}


def _tier(command):
    of_guides = _alike(command) in OF_GUIDES
    return pytest.mark.slow if of_guides else pytest.mark.exhaustive


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=command.name, marks=_tier(command)) for command in ONCE]
)
def test_every_command_line_runs(command, server, prepared, request, tmp_path):
    for part, why in ONLY_READ.items():
        if part in f"{command.what} ":
            pytest.skip(why)
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder, symlinks=True)
    if command.module in ("main", "prepare") and "--config=" in command.rest:  # begins a run
        shutil.rmtree(folder / "runs")
        (folder / "runs").mkdir()
    if "runs/tuned" in command.rest:
        shutil.copytree(request.getfixturevalue("tuned"), folder / "runs" / "tuned")
    first = next((before for part, before in AFTER.items() if part in command.what), None)
    if first:
        earlier = next(c for c in COMMANDS if c.page == command.page and first in c.what)
        server(earlier, folder, smaller(earlier))
    if command.script and (command.rest or command.options):
        launch(command, folder)
    elif command.rest or command.module == "flops":
        env = {}
        if "mesh.fsdp=8" in command.rest:
            env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        server(command, folder, smaller(command), **env)
    else:
        return  # a page that speaks of the command, and shows no use of it
    check(command, folder)


def check(command, folder):
    """Whether the files are there that the command is for."""
    given = dict(re.findall(r"--(workdir|out)=(\S+)", command.rest))
    if command.module == "main" and "workdir" not in given:
        given["workdir"] = "runs/*"
    wanted = "" if is_dry(command) else MADE.get(command.module, "")
    if "--workdir=runs/continued" in command.rest and command.module == "convert":
        wanted = "runs/continued/checkpoints/0"
    if wanted:
        wanted = wanted.format_map(given)
        assert list(folder.glob(wanted)), f"{command.name} left no {wanted}"


SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'


def launch(command, folder):
    """A script as a user starts it; srun runs here what it is given.

    Of gcloud there are only the command lines: launch/test_tpu_vm.py runs them.
    """
    programs = folder / "programs"
    programs.mkdir()
    # No link to the interpreter: one of a virtual environment would not find its packages.
    python = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    for name, text in (("srun", SRUN), ("python3", python)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    options, flags = shlex.split(command.options), words(command, folder)
    if "tpu_vm" in command.script:
        options.append("--dry-run")
    if flags:
        flags = ["--", *flags, "--dry_run"] if options else [*flags, "--dry_run"]
    if options == ["--dry-run"]:
        flags.remove("--")
    done = subprocess.run(
        ["bash", str(ROOT / command.script), *options, *flags],
        cwd=folder, capture_output=True, text=True,
        env=os.environ | {
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    assert done.returncode == 0, f"{command.name}\n{done.stderr[-3000:]}"
