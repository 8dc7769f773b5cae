# SPDX-License-Identifier: Apache-2.0
"""FLOPs by both conventions: the paper's figures, and miniatures that are counted by hand."""

import json

import pytest

from electra_jax import config as config_lib
from electra_jax.model import accounting
from electra_jax.speed import flops_figures, flops_tables, paper_flops
from support import odd
from support.commands import command, complaint
from support.corpus import load_config

ROWS = {row["name"]: row for row in flops_figures.published()}


def short(number):
    return f"{number:.2e}".replace("e+", "e")


# What the released script prints, to three digits; the last column is the paper's own figure.
FIGURES = """
    ELMo                   3.41e18  3.3e18
    GPT                    3.97e19  4.0e19
    BERT-Small             1.42e18  1.4e18
    BERT-Base              6.43e19  6.4e19
    BERT-Large             1.92e20  1.9e20
    ELECTRA-Small          1.29e18  1.4e18
    ELECTRA-Small, 50 %    6.47e17  7.1e17
    ELECTRA-Small, 25 %    3.23e17  3.6e17
    ELECTRA-Small, 12.5 %  1.62e17  1.8e17
    ELECTRA-Small, 6.25 %  8.09e16  8.9e16
    ELECTRA-Base           6.42e19  6.4e19
    ELECTRA-Large, 400K    7.12e20  7.1e20
    ELECTRA-Large, 1.75M   3.11e21  3.1e21
    XLNet                  3.86e21  3.9e21
    ALBERT-xxlarge         3.11e22  3.1e22
"""


@pytest.mark.parametrize("line", FIGURES.strip().splitlines())
def test_the_figures_of_the_paper_and_of_its_script(line):
    name, script, paper = line.rsplit(maxsplit=2)
    row = ROWS[name.strip()]
    assert short(row["script"]) == script and row["paper"] == float(paper)


def test_the_figures_of_the_script_to_four_digits():
    four = {name: f"{ROWS[name]['script']:.3e}".replace("+", "") for name in ROWS}
    assert four["BERT-Small"] == "1.419e18" and four["ELECTRA-Small"] == "1.294e18"
    assert four["BERT-Base"] == "6.428e19" and four["ELECTRA-Base"] == "6.425e19"


def test_the_rows_in_which_script_and_paper_differ_are_named():
    differing = [name for name, row in ROWS.items() if not row["equal"]]
    assert differing == [
        "ELMo",
        "ELECTRA-Small",
        "ELECTRA-Small, 50 %",
        "ELECTRA-Small, 25 %",
        "ELECTRA-Small, 12.5 %",
        "ELECTRA-Small, 6.25 %",
    ]
    assert all(ROWS[name]["note"] for name in differing)
    assert f"differ in 6 of {len(ROWS)} rows: {'; '.join(differing)}" in flops_tables.of_paper(
        flops_figures.published()
    )
    # The paper's ELECTRA-Small rows are shares of what BERT-Small costs.
    for parts, name in ((2, "50"), (4, "25"), (8, "12.5"), (16, "6.25")):
        share = ROWS["BERT-Small"]["script"] / parts
        assert share == pytest.approx(ROWS[f"ELECTRA-Small, {name} %"]["paper"], rel=0.02)


@pytest.mark.parametrize(
    ("name", "script", "paper"),
    [
        ("ELECTRA-Small", "3.68e09", 3.7e9),
        ("BERT-Small", "3.68e09", 3.7e9),
        ("ELECTRA-Base", "2.86e10", 2.9e10),
        ("ELECTRA-Large, 400K", "8.75e10", None),
    ],
)
def test_inference_on_one_input_of_128_tokens(name, script, paper):
    assert short(ROWS[name]["inference_script"]) == script
    assert ROWS[name]["inference_paper"] == paper


def run_of(name):
    return next(row.run for row in paper_flops.PUBLISHED if row.name == name)


@pytest.mark.parametrize(
    ("name", "sparse", "three", "products", "share"),
    [
        ("ELECTRA-Small", "7.82e17", "1.17e18", "1.15e18", 0.40),
        ("ELECTRA-Base", "4.54e19", "6.81e19", "6.71e19", 0.29),
        ("ELECTRA-Large, 400K", "6.07e20", "9.10e20", "9.10e20", 0.15),
        ("ELECTRA-Large, 1.75M", "2.66e21", "3.98e21", "3.98e21", 0.15),
    ],
)
def test_what_two_passes_and_one_hot_products_make_of_a_run(name, sparse, three, products, share):
    run = run_of(name)
    assert short(paper_flops.train(run, sparse=True)) == sparse
    assert short(ROWS[name]["script_3x_sparse"]) == three
    assert short(ROWS[name]["honest"]) == products
    dense = paper_flops.train(run)
    saved = 1 - paper_flops.train(run, sparse=True) / dense
    assert saved == pytest.approx(share, abs=0.006)  # what the one-hot products make up


# The released small model: a generator of equal width, long rows.
SMALL_PLUS = paper_flops.Pretraining(
    paper_flops.NetworkSizes(256, 12, embedding_size=128),
    batch=128,
    steps=1,
    generator=paper_flops.NetworkSizes(256, 12, embedding_size=128),
)


@pytest.mark.parametrize(
    ("run", "length", "expected"),
    [
        (run_of("ELECTRA-Small"), 128, "9.16e09"),
        (SMALL_PLUS, 512, "8.14e10"),
        (run_of("ELECTRA-Base"), 128, "7.89e10"),
        (run_of("ELECTRA-Base"), 512, "3.47e11"),
        (run_of("ELECTRA-Large, 400K"), 512, "1.11e12"),
    ],
)
def test_a_training_row_with_three_passes_and_sparse_lookup(run, length, expected):
    run = paper_flops.at_length(run, length)
    assert short(paper_flops.train(run, 3, sparse=True) / (run.batch * run.steps)) == expected


@pytest.mark.parametrize(
    ("run", "share"),
    [
        (run_of("ELECTRA-Small"), 0.12),
        (SMALL_PLUS, 0.51),
        (run_of("ELECTRA-Base"), 0.15),
        (run_of("ELECTRA-Large, 400K"), 0.09),
    ],
)
def test_the_share_of_the_generator(run, share):
    whole = paper_flops.forward(run).as_script(sparse=True)
    alone = paper_flops.inference(run.encoder).as_script(sparse=True)
    assert 1 - alone / whole == pytest.approx(share, abs=0.006)


def test_a_token_of_small_costs_what_it_is_known_to_cost():
    run = run_of("ELECTRA-Small")
    discriminator = paper_flops.inference(run.encoder).as_script(sparse=True)
    both = paper_flops.forward(run).as_script(sparse=True)
    assert f"{discriminator:.2e} {both - discriminator:.1e}" == "2.09e+07 2.9e+06"
    assert f"{3 * both:.1e}" == "7.2e+07"


# One layer of width 4 with 2 heads and 8 in between; rows of 3, tables of width 2, 10 words.
MINIATURE = paper_flops.NetworkSizes(
    4, 1, length=3, vocab_size=10, embedding_size=2, heads=2, feed_forward=8
)


def test_a_miniature_by_hand_in_the_papers_convention():
    o = paper_flops.Operations
    # Look-up 2x2x10; position and segment 2x2x(3+2), sum 2x2, norm 5x2, dropout 4x2, and the
    # way from 2 to 4: 2x2x4 and a bias of 4.
    assert paper_flops.embeddings(MINIATURE) == o(16, 40, 20 + 4 + 10 + 8 + 4)
    # Query, key, value 3x2x4x4 and biases 3x4; scores 2x4x3; softmax, dropout, scale 10x3x2;
    # averages 2x4x3; output 2x4x4, bias 4, dropout 16, residual 4, norm 5 (not 20).
    # In and out 2x2x4x8, bias 8, activation 8x8; bias 4, dropout 16, residual 4, norm 20.
    assert paper_flops.layers(MINIATURE) == o(
        products=96 + 24 + 24 + 32 + 128,
        others=12 + 60 + 4 + 16 + 4 + 5 + 8 + 64 + 4 + 16 + 4 + 20,
    )
    # To 2: 2x4x2, bias 2, activation 16, norm 10; words 2x2x10, softmax 5x10, target 2x10.
    assert paper_flops.masked_head(MINIATURE) == o(16 + 40, 0, 2 + 16 + 10 + 50 + 20)
    # 2x4x4, bias 4, activation 32, logit 2x4.
    assert paper_flops.detection_head(MINIATURE) == o(32 + 8, 0, 36)
    run = paper_flops.Pretraining(MINIATURE, batch=5, steps=7)
    token = (16 + 40 + 46) + (304 + 217) + 0.15625 * (56 + 98)
    assert paper_flops.train(run) == pytest.approx(2 * 5 * 7 * 3 * token)
    assert paper_flops.train(run, 3, sparse=True) == pytest.approx(3 * 5 * 7 * 3 * (token - 40))


def test_a_miniature_by_hand_in_the_honest_convention():
    # Half of the steps have rows of 3 and one slot (0.405 x 3), half rows of 6 with two.
    run = paper_flops.Pretraining(MINIATURE, 5, 8, mask_rate=0.4, stages=((0.5, 3), (0.5, 6)))
    short_row = 3 * (16 + 304) + 1 * 56
    long_row = 6 * (16 + 304 + 4 * 3 * 4) + 2 * 56  # attention sees 3 more: 4 x 3 x 4 a token
    assert paper_flops.honest(run) == pytest.approx(3 * 5 * 4 * (short_row + long_row))


def test_the_honest_convention_is_that_of_the_mfu():
    run = run_of("ELECTRA-Small")
    words = 30_592  # a multiple of 128, to which the networks' table is padded
    run = paper_flops.Pretraining(
        paper_flops.NetworkSizes(256, 12, 128, words, 128),
        run.batch,
        run.steps,
        paper_flops.NetworkSizes(64, 12, 128, words, 128),
    )
    shapes = odd.pair(
        words,
        128,
        512,
        generator=odd.trunk(12, 64, 1, 256),
        discriminator=odd.trunk(12, 256, 4, 1024),
    )
    counted = accounting.with_generator(accounting.detection(shapes, 128), shapes, 128, 19)
    assert paper_flops.honest(run) == pytest.approx(counted.train * run.batch * run.steps)


@pytest.fixture(scope="module")
def small():
    return flops_figures.of_config(config_lib.parse(load_config("small")), 30_522)


def test_a_configuration_is_counted_as_the_published_row_is(small):
    assert small["train"]["paper"] == pytest.approx(ROWS["ELECTRA-Small"]["script"])
    assert small["train"]["honest"] == pytest.approx(ROWS["ELECTRA-Small"]["honest"], rel=1e-3)
    assert small["inference"]["paper"] == ROWS["ELECTRA-Small"]["inference_script"]
    # The layers of a plain trunk, counted apart from the accountant's whole.
    layers = paper_flops.layers(run_of("ELECTRA-Small").encoder).products
    assert small["forward_per_token"]["discriminator layers"]["honest"] == pytest.approx(layers)
    for name, passes in (("paper", 2), ("honest", 3)):
        token = sum(part[name] for part in small["forward_per_token"].values())
        assert passes * 128 * token == pytest.approx(small["train_per_row"][name])


def of(name):
    return flops_figures.of_config(config_lib.parse(load_config(name)), 30_522)


def test_a_masked_language_model_is_counted_as_the_published_one_is():
    found = of("masked_lm")
    assert found["train"]["paper"] == pytest.approx(ROWS["BERT-Small"]["script"])
    assert found["train"]["honest"] == pytest.approx(ROWS["BERT-Small"]["honest"], rel=1e-3)
    assert list(found["forward_per_token"]) == [
        "discriminator embeddings",
        "discriminator layers",
        "discriminator head",
    ]


def test_a_gate_and_a_window_change_what_layers_cost(small):
    tree = load_config("small")
    tree.model.update(feed_forward_kind="geglu", local_window=16, global_every=3)
    found = flops_figures.of_config(config_lib.parse(tree), 30_522)
    before, after = (kind["forward_per_token"]["discriminator layers"] for kind in (small, found))
    gate = 12 * 2 * 256 * 1024  # 12 layers of width 256
    assert after["paper"] - before["paper"] == pytest.approx(gate + 12 * 2 * 1024)
    # 8 of 12 layers see 16 to either side, and less at both ends, instead of 128.
    unseen = 128 * 128 - (128 * 33 - 16 * 17)
    windows = 8 * 4 * 256 * unseen / 128
    assert after["honest"] - before["honest"] == pytest.approx(gate - windows)


def test_a_frozen_generator_counts_its_forward_pass_alone(small):
    found, parts = of("fast_electra"), small["forward_per_token"]
    generator = sum(
        parts[f"generator {part}"]["paper"] for part in ("embeddings", "layers", "head")
    )
    saved = small["train_per_row"]["paper"] - found["train_per_row"]["paper"]
    assert saved == pytest.approx(128 * generator)


@pytest.mark.parametrize(
    ("budget", "speed", "steps"),
    [
        ({"budget": "tokens", "tokens": 128 * 128 * 10 + 1}, None, 11),
        ({"budget": "minutes", "minutes": 2.0}, 128 * 128, 120),  # a step a second
        ({"budget": "minutes", "minutes": 2.0}, None, None),
    ],
)
def test_other_budgets_buy_steps(budget, speed, steps):
    tree = load_config("small")
    tree.schedule.update(budget)
    found = flops_figures.of_config(config_lib.parse(tree), 30_522, speed)
    assert found["steps"] == steps
    honest = steps and found["train_per_row"]["honest"] * 128 * steps
    assert found["train"]["honest"] == honest
    text = " ".join(flops_tables.of_config(found).split())
    unknown = "as many steps as the speed allows (2m00s of training) of 128 rows"
    assert (unknown in text) == (steps is None)


@pytest.mark.parametrize(
    "name",
    [
        "all_tokens_mlm", "replace_mlm", "deberta_v3", "electra_15", "electric", "teams",
        "corrective_lm",
    ],
)  # fmt: skip
def test_the_parts_add_up_whatever_is_learnt(name):
    found = of(name)
    for convention, passes in (("paper", 2), ("honest", 3)):
        token = sum(part[convention] for part in found["forward_per_token"].values())
        row = found["train_per_row"][convention]
        assert passes * found["sequence_length"] * token == pytest.approx(row)


def test_a_layer_for_detection_and_the_selection_are_parts_of_their_own(small):
    found = of("teams")
    parts, before = found["forward_per_token"], small["forward_per_token"]
    for name in ("embeddings", "layers", "head"):
        same = f"discriminator {name}"
        assert parts[same] == pytest.approx(before[same])
    for convention, count in parts["discriminator own layer"].items():
        assert 12 * count == pytest.approx(before["discriminator layers"][convention])
    # At a slot: from 256 to 128, and products with five embeddings; 19 slots of 128 places.
    selection = parts["discriminator selection"]
    assert selection["honest"] == pytest.approx(19 / 128 * (2 * 256 * 128 + 2 * 5 * 128))
    others = (1 + 8 + 5) * 128 + (5 + 2) * 5
    assert selection["paper"] == pytest.approx(80 / 512 * (2 * 256 * 128 + 2 * 5 * 128 + others))
    # What is fine-tuned, or judges, has as many layers as without.
    assert found["inference"] == small["inference"]


def test_the_correction_costs_what_a_generators_head_of_that_width_would(small):
    found = of("corrective_lm")
    parts, before = found["forward_per_token"], small["forward_per_token"]
    for name in ("embeddings", "layers", "head"):
        assert parts[f"discriminator {name}"] == before[f"discriminator {name}"]
    # At a slot: from 256 to 128, and products with all embeddings; 19 slots of 128 places.
    honest = 19 / 128 * (2 * 256 * 128 + 2 * 30_592 * 128)
    assert parts["discriminator correction"]["honest"] == pytest.approx(honest)
    assert parts["discriminator correction"] == pytest.approx(parts["generator head"])
    assert found["inference"] == small["inference"]


def test_parameters_of_small_by_part(small):
    parts = small["parameters"]
    assert parts["discriminator"] == {
        "projection": 128 * 256 + 256,
        "encoder": 12 * (4 * 256 * 257 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256),
        "head": 256 * 257 + 257,
    }
    assert parts["embeddings"] == {
        "token": 30_592 * 128,
        "position": 512 * 128,
        "type": 2 * 128,
        "norm": 2 * 128,
    }
    assert parts["generator"]["head"] == 64 * 128 + 128 + 2 * 128 + 30_592


def test_mfu_by_hand(small):
    row = small["train_per_row"]["honest"]
    found = flops_figures.mfu(small, tokens_per_second=128_000, kind="NVIDIA H200", devices=2)
    assert found["flops_per_second"] == 1000 * row  # a thousand rows a second
    assert found["mfu"] == pytest.approx(1000 * row / (2 * 989e12))
    assert found["seconds"] == 1_000_000 * 128 / 1000


def test_a_speed_without_padding_is_more_rows_than_its_tokens_fill(small):
    """A thousand rows a second of which a fifth is padding."""
    row = small["train_per_row"]["honest"]
    found = flops_figures.mfu(small, 0.8 * 128_000, "NVIDIA H200", devices=1, padding_rate=0.2)
    assert found["flops_per_second"] == pytest.approx(1000 * row)
    assert found["seconds"] == 1_000_000 * 128 / 1000


@pytest.mark.parametrize(
    ("teraflops", "kinds"),
    [
        (989, ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB", "h100", "h200"]),
        (756, ["NVIDIA H100 PCIe"]),
        (835, ["NVIDIA H100 NVL", "NVIDIA H200 NVL"]),
        (2250, ["NVIDIA B200"]),
        (2500, ["NVIDIA GB200"]),
        (
            312,
            ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB"]
            + ["NVIDIA A100 80GB PCIe", "A100-SXM4-40GB", "NVIDIA A100-PG509-200", "a100"],
        ),
        (125, ["NVIDIA A10", "Tesla V100-SXM2-16GB", "v100"]),
        (112, ["Tesla V100-PCIE-16GB"]),
        (130, ["Tesla V100S-PCIE-32GB"]),
        (70, ["NVIDIA A10G"]),
        (121, ["NVIDIA L4"]),
        (181, ["NVIDIA L40"]),
        (362, ["NVIDIA L40S"]),
        (165, ["NVIDIA GeForce RTX 4090"]),
        (65, ["Tesla T4"]),
        (22.5, ["TPU v2"]),  # a core; two are a chip
        (61.5, ["TPU v3"]),  # the same
        (275, ["TPU v4"]),
        (197, ["TPU v5 lite", "TPU v5e"]),
        (459, ["TPU v5", "TPU v5p"]),
        (918, ["TPU v6 lite", "TPU v6e"]),
        (1153.5, ["TPU7x"]),
    ],
)
def test_the_peak_of_each_device_by_the_name_that_jax_gives_it(teraflops, kinds):
    assert [accounting.peak(kind) for kind in kinds] == [teraflops * 1e12] * len(kinds)


@pytest.mark.parametrize(
    "kind",
    ["cpu", "", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
    + ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA A1000", "NVIDIA"]
    + ["NVIDIA A10-24Q", "NVIDIA T400", "NVIDIA H20", "NVIDIA B300", "TPU v4 lite", "TPU v8"],
)
def test_a_part_or_a_relative_of_a_known_device_has_no_known_peak(kind):
    assert accounting.peak(kind) is None


def test_the_command_tells_of_a_configuration_and_of_a_speed():
    result = command(
        "--config=configs/small.py",
        "--tokens_per_second=128000",
        "--device=h200",
        module="electra_jax.flops",
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["discriminator/head", "66,049"] in lines
    assert ["main", "network", "with", "its", "tables", "13,558,017"] in lines
    assert ["all", "14,205,249"] in lines
    assert ["FLOPs", "paper", "honest"] in lines
    assert ["generator", "embeddings", "7.86e6", "1.64e4"] in lines
    assert ["training,", "the", "schedule", "1.29e18", "1.15e18"] in lines
    assert ["inference,", "a", "row", "3.68e9", "2.64e9"] in lines
    assert "128,000 tokens/s on 1 x h200: 8.99e12 FLOP/s, MFU 0.9%" in result.stdout


def test_the_command_alone_prints_the_papers_rows():
    result = command("--json", module="electra_jax.flops")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["published"] == flops_figures.published()
    text = flops_tables.of_paper(flops_figures.published())
    assert "ELECTRA-Small          1.29e18  1.4e18  differs     1.17e18  1.15e18  printed" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens_per_second=5"], "--tokens_per_second needs a --config"),
        (["--device=h200"], "--device and --devices need --tokens_per_second"),
        (
            ["--config=configs/small.py", "--tokens_per_second=5", "--device=abacus"],
            "no datasheet figure is known for device 'abacus'; --device= one of h200, h100",
        ),
        (
            ["--config=configs/small.py", "--tokens_per_second=5", "--padding_rate=1.5"],
            "--padding_rate=1.5 is not a share of the positions",
        ),
        (["--padding_rate=0.5"], "--padding_rate needs a --config"),
        (["--config=small", "--padding_rate=0.5"], "--padding_rate changes nothing here"),
        (["--config.seed=3"], "--config is missing"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message):
    assert message in complaint(*arguments, module="electra_jax.flops")
