# SPDX-License-Identifier: Apache-2.0
"""Parameters and floating-point operations: of the paper's models, or of a configuration.

    python -m electra_jax.flops
    python -m electra_jax.flops --config=configs/small.py
    python -m electra_jax.flops --config=configs/small.py --tokens_per_second=2849 --device=a100
    python -m electra_jax.flops --config=configs/small.py --json > small.json

Two conventions stand side by side. The paper's: a training step is two forward passes, and a token
is looked up by a product with a one-hot vector (`paper_flops.py`). The honest one: three forward
passes of matrix products, look-ups free (`accounting.py`, which also `mfu` is reckoned with).
"""

import dataclasses
import json
import operator
from collections.abc import Sequence

import jax
import numpy as np
from absl import flags

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.config import stages
from electra_jax.model import accounting
from electra_jax.speed import paper_flops, synthetic
from electra_jax.step import build
from electra_jax.training import budget
from electra_jax.workdir import prepared_data

_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object instead of a table.", allow_override=True
)
_SPEED = flags.DEFINE_float(
    "tokens_per_second",
    None,
    "A speed that was measured, of all devices, padding not counted: adds the MFU.",
)
_PADDING = flags.DEFINE_float(
    "padding_rate", 0.0, "The share of padding in the rows that ran at that speed."
)
_DEVICE = flags.DEFINE_string("device", None, "What ran at that speed; without it what is here.")
_DEVICES = flags.DEFINE_integer("devices", 1, "How many of them ran.", lower_bound=1)


def main(config: config_lib.Config | None, workdir: str | None) -> None:
    """Reckons and prints; nothing is trained or written."""
    _check_flags(config is None)
    if config is None:
        found = published()
        print(json.dumps({"published": found}) if _JSON.value else published_table(found))
        return
    found = of_config(
        config, prepared_data.vocabulary_size(config, workdir), _SPEED.value, _PADDING.value
    )
    if _SPEED.value is not None:
        kind = _DEVICE.value or jax.devices()[0].device_kind
        found |= mfu(found, _SPEED.value, kind, _DEVICES.value, _PADDING.value)
    print(json.dumps(found) if _JSON.value else table(found))


def published() -> list[dict]:
    """The rows of the paper's tables: its figure, its script's, and honest ones."""
    rows = []
    for row in paper_flops.PUBLISHED:
        found = {
            "name": row.name,
            "script": row.script,
            "paper": row.paper,
            "equal": row.equal,
            "script_3x_sparse": None,
            "honest": None,
            "inference_script": None,
            "inference_honest": None,
            "inference_paper": row.paper_inference,
            "note": row.why,
        }
        if row.run is not None:
            one = paper_flops.inference(paper_flops.at_length(row.run, _ONE).encoder)
            found |= {
                "script_3x_sparse": paper_flops.train(row.run, passes=3, sparse=True),
                "honest": paper_flops.honest(row.run),
                "inference_script": _ONE * one.billed(),
                "inference_honest": _ONE * one.products,
            }
        rows.append(found)
    return rows


def of_config(
    config: config_lib.Config,
    vocab_size: int,
    tokens_per_second: float | None = None,
    padding_rate: float = 0.0,
) -> dict:
    """Everything that the table of a configuration shows, as plain numbers.

    A budget of minutes buys a number of steps only where a speed is given; else that is None. What
    stands there of a token or a row is of the first stage; `train` is all of them. The speed does
    not count padding, `padding_rate` says what share of the places in a row that is.
    """
    kinds = stages.of(config)
    each = [_of_rows(stages.config_of(config, n), vocab_size) for n in range(len(kinds))]
    seconds = []
    if tokens_per_second is not None:
        places_per_second = tokens_per_second / (1 - padding_rate)
        seconds = [kind.batch_size * kind.sequence_length / places_per_second for kind in kinds]
    steps = stages.steps(config, [1 - padding_rate] * len(kinds), seconds)
    rows = [kind.batch_size * count for kind, count in zip(kinds, steps)] if steps else None
    train = {
        convention: sum(found["train_per_row"][convention] * n for found, n in zip(each, rows))
        if rows
        else None
        for convention in ("paper", "honest")
    }
    found = each[0] | {
        "budget": budget.in_words(config.schedule),
        "steps": steps and sum(steps),
        "train": train,
    }
    if len(kinds) > 1:
        found["stages"] = [
            {"sequence_length": kind.sequence_length, "batch_size": kind.batch_size}
            | {"steps": steps and steps[n], "train_per_row": each[n]["train_per_row"]}
            for n, kind in enumerate(kinds)
        ]
    return found


def _of_rows(config: config_lib.Config, vocab_size: int) -> dict:
    """What does not depend on how many rows there are."""
    objective = build.objective(config, synthetic.Words(vocab_size), np.ones(vocab_size))
    params = jax.eval_shape(objective.init, build.run_key(config))
    length = config.data.sequence_length
    counted = objective.flops(length)
    billed = _parts(config, vocab_size, paper_flops.OUTPUT_SHARE)
    parts = _parts(config, objective.networks.padded_vocab_size, objective.slots / length)
    done = {part: operations.products for part, operations in parts.items()}
    for network, count in (
        ("discriminator", counted.discriminator),
        ("generator", counted.generator + counted.generator_head),
    ):  # the layers may see less than the whole row, which the accountant knows
        if count:
            around = done[f"{network} embeddings"] + done[f"{network} head"]
            done[f"{network} layers"] = count / length - around
    billed_row = 0.0
    for part, operations in billed.items():
        frozen = part.startswith("generator") and counted.generator_passes == 1
        billed_row += (1 if frozen else 2) * length * operations.billed()
    one = paper_flops.inference(_shape(config, config.model.discriminator, vocab_size))
    judged = accounting.detection(objective.networks, length)
    return {
        "config": config.name,
        "objective": config.objective.name,
        "vocab_size": vocab_size,
        "sequence_length": length,
        "slots": objective.slots,
        "batch_size": config.data.batch_size,
        "parameters": {part: accounting.parameters(tree) for part, tree in params.items()},
        "forward_per_token": {
            part: {"paper": billed[part].billed(), "honest": done[part]} for part in done
        },
        "train_per_row": {"paper": billed_row, "honest": counted.train},
        "inference": {"paper": length * one.billed(), "honest": judged.discriminator},
    }


def mfu(
    found: dict, tokens_per_second: float, kind: str, devices: int, padding_rate: float = 0.0
) -> dict:
    """The share of the datasheet's peak that a speed is, in honest operations.

    A row costs as much with padding in it as without, so rows a second follow from both figures.
    """
    peak = accounting.peak(kind)
    if peak is None:
        known = ", ".join(name for name, *_ in accounting.PEAKS)
        raise config_lib.ConfigError(
            f"no datasheet figure is known for device {kind!r}; --device= one of {known}"
        )
    places_per_second = tokens_per_second / (1 - padding_rate)
    rate = places_per_second * found["train_per_row"]["honest"] / found["sequence_length"]
    kinds = found.get("stages", [found])
    places = sum(kind["batch_size"] * kind["steps"] * kind["sequence_length"] for kind in kinds)
    return {
        "tokens_per_second": tokens_per_second,
        "padding_rate": padding_rate,
        "device": kind,
        "devices": devices,
        "flops_per_second": rate,
        "mfu": rate / (peak * devices),
        "seconds": places / places_per_second,
    }


def published_table(rows: Sequence[dict]) -> str:
    """The paper's rows under each other, then inference, then what the columns are."""
    lines = [("training", "script", "paper", "", "3x, sparse", "honest", "note")]
    for row in rows:
        lines.append(
            (
                row["name"],
                _short(row["script"]),
                _short(row["paper"], 2),
                "equal" if row["equal"] else "differs",
                _short(row["script_3x_sparse"]),
                _short(row["honest"]),
                row["note"],
            )
        )
    below, seen = [(f"inference, {_ONE} tokens", "script", "paper", "", "honest")], set()
    for row in rows:
        network = row["name"].partition(",")[0]
        script, paper = row["inference_script"], row["inference_paper"]
        if network in seen or script is paper is None:
            continue
        seen.add(network)
        verdict = ""
        if script is not None and paper is not None:
            verdict = "equal" if _short(script, 2) == _short(paper, 2) else "differs"
        honest = row["inference_honest"]
        below.append((network, _short(script), _short(paper, 2), verdict, _short(honest)))
    differing = [row["name"] for row in rows if not row["equal"]]
    return "\n".join(
        [
            *_aligned(lines),
            "",
            *_aligned(below),
            "",
            f"script and paper differ in {len(differing)} of {len(rows)} rows:"
            f" {'; '.join(differing)}",
            "",
            *_KEY,
        ]
    )


def table(found: dict) -> str:
    """What was reckoned of a configuration, for a reader."""
    f = found
    steps = f"{f['steps']:,} steps" if f["steps"] else "steps by the speed"
    steps += f" ({f['budget']})" if f["budget"] != steps else ""
    rows = f"of {f['batch_size']:,} rows"
    if "stages" in f:
        known = [f"{x['steps']:,} steps of " if x["steps"] else "" for x in f["stages"]]
        kinds = [stages.Stage(0, x["sequence_length"], x["batch_size"]) for x in f["stages"]]
        rows = "in stages: " + ", then ".join(map(operator.add, known, map(stages.in_words, kinds)))
    lines = [
        f"{f['config']}: {f['objective']}, vocabulary {f['vocab_size']:,}, rows of"
        f" {f['sequence_length']}, {f['slots']} slots; {steps} {rows}",
        "",
    ]
    cells = [("parameters", "", "")]
    total = 0
    for part, trees in f["parameters"].items():
        cells += [(f"  {part}/{name}", f"{count:,}", "") for name, count in trees.items()]
        cells.append((f"  {part}", "", f"{sum(trees.values()):,}"))
        total += sum(trees.values())
    main = [f["parameters"].get(part, {}) for part in ("embeddings", "encoder", "discriminator")]
    # The encoder stands alone where it is shared; a delta of the tables is added into them.
    kept = sum(sum(trees.values()) - trees.get("embeddings_delta", 0) for trees in main)
    cells.append(("  main network with its tables", "", f"{kept:,}"))
    cells.append(("  all", "", f"{total:,}"))
    lines += [*_aligned(cells), ""]
    cells = [("FLOPs", "paper", "honest"), ("forward, a token", "", "")]
    both = {"paper": 0.0, "honest": 0.0}
    for part, counts in f["forward_per_token"].items():
        cells.append((f"  {part}", _short(counts["paper"]), _short(counts["honest"])))
        both = {name: both[name] + counts[name] for name in both}
    cells.append(("  all", _short(both["paper"]), _short(both["honest"])))
    for name, title in (
        ("train_per_row", "training, a row"),
        ("train", "training, the schedule"),
        ("inference", "inference, a row"),
    ):
        cells.append((title, _short(f[name]["paper"]), _short(f[name]["honest"])))
    lines += _aligned(cells)
    if "mfu" in f:
        padded = f" and {f['padding_rate']:.1%} padding" if f["padding_rate"] else ""
        lines += [
            "",
            f"{f['tokens_per_second']:,.0f} tokens/s{padded} on {f['devices']} x {f['device']}:"
            f" {_short(f['flops_per_second'])} FLOP/s, MFU {f['mfu']:.1%} of the datasheet;"
            f" the schedule takes {f['seconds'] / 3600:,.1f} h",
        ]
    return "\n".join(lines)


_ONE = paper_flops.INFERENCE_LENGTH
_PREDICTING = ("masked_lm", "replace_mlm", "all_tokens_mlm")  # the main network, not judging
_KEY = (
    "script      2 x forward, tokens looked up by one-hot products: the paper's convention",
    "3x, sparse  the script's operations, 3 x forward, tokens looked up for nothing",
    "honest      3 x forward, matrix products alone, true row lengths and slots: MFU's convention",
)


def _check_flags(alone: bool) -> None:
    if alone and _SPEED.value is not None:
        raise config_lib.ConfigError("--tokens_per_second needs a --config whose speed it is")
    if _SPEED.value is None and (_DEVICE.present or _DEVICES.present):
        raise config_lib.ConfigError("--device and --devices need --tokens_per_second")
    if _SPEED.value is not None and not 0 < _SPEED.value < float("inf"):
        raise config_lib.ConfigError(f"--tokens_per_second={_SPEED.value} is not positive")
    if not 0 <= _PADDING.value < 1:
        raise config_lib.ConfigError(
            f"--padding_rate={_PADDING.value} is no share of a row; it is from 0 to below 1, as the"
            " log and the benchmark print it"
        )


def _parts(
    config: config_lib.Config, vocab_size: int, predicted: float
) -> dict[str, paper_flops.Operations]:
    """Operations of a token in each part; heads over the words are asked for a share of them."""
    name, model = config.objective.name, config.model
    main = _shape(config, model.discriminator, vocab_size)
    head = paper_flops.detection_head(main)
    if name in _PREDICTING:
        share = 1.0 if name == "all_tokens_mlm" else predicted
        head = share * paper_flops.masked_head(main)
    parts = {
        "discriminator embeddings": paper_flops.embeddings(main),
        "discriminator layers": paper_flops.layers(main),
        "discriminator head": head,
    }
    if name == "electric":  # two towers, whose states together are asked at every token
        tower = _shape(config, model.generator, vocab_size)
        both = dataclasses.replace(tower, width=2 * tower.width)
        parts |= {
            "generator embeddings": 2 * paper_flops.embeddings(tower),
            "generator layers": 2 * paper_flops.layers(tower),
            "generator head": paper_flops.masked_head(both),
        }
    elif name not in config_lib.WITHOUT_GENERATOR:
        generator = _shape(config, model.generator, vocab_size)
        parts |= {
            "generator embeddings": paper_flops.embeddings(generator),
            "generator layers": paper_flops.layers(generator),
            "generator head": predicted * paper_flops.masked_head(generator),
        }
    return parts


def _shape(
    config: config_lib.Config, network: config_lib.Network, vocab_size: int
) -> paper_flops.Shape:
    """A network as the paper's script would be told of it."""
    return paper_flops.Shape(
        network.width,
        network.layers,
        config.data.sequence_length,
        vocab_size,
        config.model.embedding_size,
        network.heads,
        network.feed_forward,
        3 if config.model.feed_forward_kind == "geglu" else 2,
    )


def _short(number: float | None, digits: int = 3) -> str:
    """1.294e18 -> `1.29e18`."""
    if not number:
        return "-" if number is None else "0"
    return f"{number:.{digits - 1}e}".replace("e+0", "e").replace("+", "")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells under each other: names and the last of many columns left, numbers right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [
            cell.rjust(width) if place < 6 else cell
            for place, (cell, width) in enumerate(zip(row[1:], widths[1:]), 1)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


if __name__ == "__main__":
    command.run(main, config_needed=False)
