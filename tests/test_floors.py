# SPDX-License-Identifier: Apache-2.0
"""Imports point down: the house as a table, held against the code."""

import ast

from corpus import ROOT

FLOORS = (  # from the ground up; a room may use any floor below its own
    "peers safe_files metadata",
    "processes",
    "timing batch streams config heap style lock logs metrics optimizer schedule averages sharding"
    " compilations finetuning.examples finetuning.files finetuning.tasks finetuning.catalogue"
    " checkpoint checks.result whole_folder interchange.hugging_face interchange.tensor_files"
    " interchange.card interchange.tensorflow_bundle interchange.google finetuning.scores"
    " finetuning.answers",
    "stages baselines model.layers corrupt data.builtin data.vocabulary data.records data.segments"
    " drawing finetuning.tables finetuning.columns finetuning.squad"
    " finetuning.custom interchange.orbax_export finetuning.config finetuning.rates",
    "saved_config",
    "fill model.attention model.feed_forward model.embeddings data.text data.pipeline view writers"
    " text_units"
    " alarms finetuning.labels finetuning.features interchange.tokenizer_files"
    " growing finetuning.submission model.task_heads",
    "model.encoder data.preparation report comparison finetuning.reading finetuning.batches",
    "model.generator model.discriminator model.two_towers comparison_page finetuning.statistics"
    " finetuning.datasets run_data evaluation_table data.evaluation_text",
    "model.networks objectives.phase finetuning.results",
    "accounting paper_flops objectives.corruption encoding finetuning.results_page finetuning.step",
    "objectives.measuring objectives.unigram_probe interchange.stablehlo finetuning.tuning"
    " finetuning.kept",
    "objectives.replaced_token_detection objectives.masked_lm objectives.replace_mlm",
    "objectives.masked_token_detection objectives.decoupled_detection objectives.fixed_generator"
    " objectives.frozen_generator objectives.electric objectives.adversarial_generator"
    " objectives.all_tokens_mlm",
    "train_step evaluation samples scoring feed signals profiling",
    "budget",
    "build",
    "weights",
    "initial finetuning.encoders",
    "conversion",
    "runs rehearsal finetuning.choices finetuning.tuned",
    "parts estimate bad_steps finetuning.forecast finetuning.running",
    "checkpointed output checks.made_up checks.kept checks.scoring",
    "training command other_text",
    "checks.analytic checks.trained",
    "checks.micro_run checks.arms",
    "checks.every",
    "main prepare show evaluate score benchmark flops compare check convert finetune",
)


def imports(path):
    """The modules of ours that a file imports, as data.text for electra_jax.data.text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("electra_jax"):
            package = node.module.removeprefix("electra_jax").lstrip(".")
            yield from (f"{package}.{alias.name}".lstrip(".") for alias in node.names)


def rooms():
    """{name: path} of every room but the packages' own files."""
    base = ROOT / "electra_jax"
    return {
        ".".join(path.relative_to(base).with_suffix("").parts): path
        for path in sorted(base.rglob("*.py"))
        if path.name != "__init__.py"
    }


def test_every_room_stands_on_a_floor():
    table = {room for floor in FLOORS for room in floor.split()}
    assert set(rooms()) - table == set(), "give each new room a floor in FLOORS"
    assert table - set(rooms()) == set(), "FLOORS names rooms that are gone"


def test_imports_point_down():
    floor = {room: n for n, names in enumerate(FLOORS) for room in names.split()}
    up = [
        f"{room} (floor {floor[room]}) -> {name} (floor {floor[name]})"
        for room, path in rooms().items()
        for name in imports(path)
        if name in floor and floor[name] >= floor[room]
    ]
    assert up == [], "move what they share to a lower floor"


def test_only_the_model_knows_flax_and_only_one_room_knows_orbax():
    for library, allowed in (("flax", "model"), ("orbax", "checkpoint"), ("tensorflow", "")):
        for room, path in rooms().items():
            found = [
                getattr(node, "module", None) or alias.name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names
            ]
            if not (allowed and room.startswith(allowed)):
                assert not [name for name in found if name.split(".")[0] == library], room


DATA_OF_FINETUNING = (
    "tasks custom examples files catalogue tables columns squad labels reading features"
)


def test_preparing_needs_no_jax():
    """Worker processes import these, or none is needed; jax costs seconds and memory."""
    tuning = {f"finetuning.{name}" for name in DATA_OF_FINETUNING.split()}
    for room, path in rooms().items():
        if room.startswith("data.") or room in tuning:
            text = path.read_text(encoding="utf-8")
            assert "import jax" not in text and "from jax" not in text, room
