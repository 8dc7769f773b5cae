# SPDX-License-Identifier: Apache-2.0
"""launch/colab_tpu.ipynb: what its cells say, and all of them executed, killed and executed again.

The tier `parity` executes them, because they end with transformers. Only the cell that chooses the
size is another one there.
"""

import ast
import html
import importlib.metadata
import importlib.util
import json
import re
import sys
import types
import zipfile

import pytest

from electra_jax import config as config_lib
from electra_jax.report import writers
from electra_jax.weights.formats import modern_electra
from electra_jax.workdir import metadata, starts
from support import notebooks
from support.corpus import ROOT

TRAINS = 'WORKDIR = f"{PLACE}/{config.name}"'  # the first line of the cell that trains


def run(name, **names):
    """Runs one cell with these names defined; returns all names."""
    exec(notebooks.cells()[name], names)
    return names


def test_it_is_kept_without_outputs():
    for cell in notebooks.content()["cells"]:
        assert re.fullmatch(r"[a-z-]+", cell["id"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


def test_every_cell_has_a_few_words_before_it():
    kinds = [cell["cell_type"] for cell in notebooks.content()["cells"]]
    assert kinds[0] == "markdown" and "code code" not in " ".join(kinds)
    for source in notebooks.cells().values():
        assert len(source.split("\n")) <= 18 and max(map(len, source.split("\n"))) <= 100


@pytest.mark.parametrize("size", notebooks.SIZES)
def test_each_size_is_a_run_that_transformers_loads_by_itself(size):
    config = config_lib.parse(run("settings", SIZE=size, TEXT="builtin")["config"])
    assert (config.name, config.data.source) == (size, "builtin")
    assert config.checkpoint.every <= config.schedule.steps // 4
    assert modern_electra.is_published(modern_electra.trunk_of(config.model))
    assert config.model.discriminator_head == "token"


def test_the_sizes_that_it_names_are_all():
    text = json.dumps(notebooks.content())
    assert set(re.findall(r'SIZE == \\"(\w+)\\"', text)) < set(notebooks.SIZES)
    about = next(c for c in notebooks.content()["cells"] if c["id"] == "about-size")
    assert set(re.findall(r'`"(\w+)"`', "".join(about["source"]))) == set(notebooks.SIZES)


def test_outside_colab_it_works_beside_the_notebook_and_inside_on_the_drive(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", None)
    assert run("place")["PLACE"] == "runs"

    mounted = []
    colab = types.ModuleType("google.colab")
    colab.drive = types.SimpleNamespace(mount=mounted.append)
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    assert run("place")["PLACE"] == "/content/drive/MyDrive/electra_jax"
    assert mounted == ["/content/drive"]


@pytest.mark.parametrize(
    ("file", "code", "is_there"),
    [
        (None, None, False),
        ("code/electra_jax-main/pyproject.toml", None, False),  # unpacked one folder too deep
        ("code/pyproject.toml", None, True),
        ("electra_jax-0.1.0-py3-none-any.whl", "electra_jax-0.1.0-py3-none-any.whl", True),
        (None, "git+https://example.org/electra_jax", True),
    ],
)
def test_it_says_what_to_upload_where_there_is_nothing_to_install(
    tmp_path, monkeypatch, file, code, is_there
):
    monkeypatch.chdir(tmp_path)
    if file:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    install, magic, _ = notebooks.cells()["install"].partition("    %pip")
    assert magic and 'CODE = f"{PLACE}/code"' in install, "one line, which readers change"
    if code:
        install = install.replace('CODE = f"{PLACE}/code"', f"CODE = {code!r}")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if is_there:
        exec(install, {"PLACE": "."})
        assert "jax==" in (tmp_path / "jax.txt").read_text()
        return
    with pytest.raises(FileNotFoundError) as error:
        exec(install, {"PLACE": "."})
    assert str(error.value) == (
        "CODE=./code is no checkout and no wheel: upload a checkout there, or set CODE in this cell"
    )
    assert not (tmp_path / "jax.txt").exists()


def test_the_pages_link_to_it():
    for page in ("README.md", "docs/guides/colab.md", "launch/README.md"):
        assert "colab_tpu.ipynb)" in (ROOT / page).read_text(encoding="utf-8"), page


@pytest.mark.parity
def test_its_format_is_that_of_notebooks():
    import nbformat  # noqa: PLC0415 - the extra parity

    nbformat.validate(nbformat.reads(notebooks.NOTEBOOK.read_text(encoding="utf-8"), as_version=4))


@pytest.mark.parity
def test_all_cells_run_and_a_killed_runtime_goes_on_from_its_checkpoint(tmp_path):
    workdir = tmp_path / "runs" / "trial"

    def has_saved():
        return bool(metadata.steps(workdir / "checkpoints"))

    first = notebooks.execute(notebooks.of_size("trial"), tmp_path, kill=has_saved)
    saved = metadata.steps(workdir / "checkpoints")[-1]
    assert first.killed and 0 < saved < 40
    assert not (workdir / "finetune").exists()

    again = notebooks.execute(notebooks.of_size("trial"), tmp_path)
    assert [start["step"] for start in starts.read(workdir)] == [0, saved]
    rows = [(row["step"], row["kind"]) for row in writers.read(workdir / "metrics.jsonl")]
    assert [step for step, kind in rows if kind == "train"] == list(range(5, 41, 5))
    assert [step for step, kind in rows if kind == "eval"] == [20, 40]

    assert again.text(TRAINS, "image/png") and again.redrawn > 0
    shown = html.unescape(again.text("electra_jax.show_page(WORKDIR)", "text/html"))
    assert "trial, step 40" in shown and shown.count("<article") == 4
    scores = again.text("from IPython import display", "text/markdown")
    assert re.search(r"\| custom \| dev \| accuracy \| \*\*\d\d\.\d\d\*\* ", scores)

    filled = ast.literal_eval(again.text("import transformers"))
    assert len(filled) == 5 and all(0 < one["score"] < 1 for one in filled)
    (classify,) = [begin for begin in again.outputs if begin.startswith("classify = ")]
    said = ast.literal_eval(again.text(classify))
    assert len(said) == 2 and {one["label"] for one in said} <= {"numpy", "matplotlib"}


NEEDS = """
import os

def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(f"{folder}/made-1.dist-info")
    with open(f"{folder}/made-1.dist-info/METADATA", "w") as file:
        file.write("Metadata-Version: 2.1\\nName: made\\nVersion: 1\\nRequires-Dist: %s\\n")
    return "made-1.dist-info"

def build_wheel(folder, settings=None, metadata=None):
    raise OSError("only asked what it needs")
"""


@pytest.mark.parity
@pytest.mark.parametrize(
    ("needs", "said"),
    [("jax", "Would install made-1\n"), ("jax>=9999", "The user requested (constraint) jax==")],
)
def test_the_jax_that_is_there_is_never_replaced(tmp_path, monkeypatch, needs, said):
    """pip is really asked, with a newer jax at hand, and installs nothing."""
    place = tmp_path / "drive"
    (place / "code").mkdir(parents=True)
    backend = '[build-system]\nrequires = []\nbuild-backend = "needs"\nbackend-path = ["."]\n'
    (place / "code" / "pyproject.toml").write_text(backend)
    (place / "code" / "needs.py").write_text(NEEDS % needs)
    newer = {
        "METADATA": "Metadata-Version: 2.1\nName: jax\nVersion: 9999\n",
        "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "jax-9999-py3-none-any.whl", "w") as wheel:
        for name, text in newer.items():
            wheel.writestr(f"jax-9999.dist-info/{name}", text)
    for name, value in (("DRY_RUN", 1), ("NO_INDEX", 1), ("FIND_LINKS", tmp_path)):
        monkeypatch.setenv(f"PIP_{name}", str(value))

    hidden = f"""
import importlib.util
importlib.util.find_spec = lambda name: None
PLACE = {str(place)!r}
"""
    install = notebooks.cells()["install"]
    done = notebooks.execute([hidden, install], tmp_path)
    lines = "".join(out.get("text", "") for out in done.outputs[install.split("\n")[0]])
    assert said in lines.replace("\r", "")
    kept = (tmp_path / "jax.txt").read_text().split()
    assert {f"{name}=={importlib.metadata.version(name)}" for name in ("jax", "jaxlib")} <= set(
        kept
    )
