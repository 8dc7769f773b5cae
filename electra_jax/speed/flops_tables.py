# SPDX-License-Identifier: Apache-2.0
"""Tables of the numbers of `flops_figures`, as text."""

import operator
from collections.abc import Sequence

from electra_jax.config import stages
from electra_jax.host import console_table
from electra_jax.speed import paper_flops

_NUMBERS = range(1, 6)  # columns between the name and the note
_KEY = (
    "script      2 x forward, tokens looked up by one-hot products: the paper's convention",
    "3x, sparse  the script's operations, 3 x forward, look-ups of tokens not counted",
    "honest      3 x forward, matrix products alone, true row lengths and slots: MFU's convention",
)


def of_paper(rows: Sequence[dict]) -> str:
    """Returns the table of the paper's models: training, inference, and what the columns mean."""
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

    differing = [row["name"] for row in rows if not row["equal"]]
    return "\n".join(
        [
            *console_table.lines(lines, right=_NUMBERS),
            "",
            *console_table.lines(_inference_cells(rows), right=_NUMBERS),
            "",
            f"script and paper differ in {len(differing)} of {len(rows)} rows:"
            f" {'; '.join(differing)}",
            "",
            *_KEY,
        ]
    )


def _inference_cells(rows):
    """Returns rows of (network, script, paper, verdict, honest) for the inference of one input."""
    title = f"inference, {paper_flops.INFERENCE_LENGTH} tokens"
    cells, seen = [(title, "script", "paper", "", "honest")], set()
    for row in rows:
        # Several training runs of the paper share a network, whose inference is shown once.
        network = row["name"].partition(",")[0]
        script, paper = row["inference_script"], row["inference_paper"]
        if network in seen or script is paper is None:
            continue

        seen.add(network)
        verdict = ""
        if script is not None and paper is not None:
            verdict = "equal" if _short(script, 2) == _short(paper, 2) else "differs"
        honest = row["inference_honest"]
        cells.append((network, _short(script), _short(paper, 2), verdict, _short(honest)))
    return cells


def of_config(found: dict) -> str:
    """Returns the table of what `flops_figures.of_config` and `mfu` found."""
    f = found
    steps = f"{f['steps']:,} steps" if f["steps"] else "as many steps as the speed allows"
    steps += f" ({f['budget']})" if f["budget"] != steps else ""
    rows = f"of {f['batch_size']:,} rows"
    if "stages" in f:
        known = [f"{x['steps']:,} steps of " if x["steps"] else "" for x in f["stages"]]
        shapes = [stages.Stage(0, x["sequence_length"], x["batch_size"]) for x in f["stages"]]
        words = map(operator.add, known, map(stages.describe, shapes))
        rows = "in stages: " + ", then ".join(words)

    lines = [
        f"{f['config']}: {f['objective']}, vocabulary {f['vocab_size']:,}, rows of"
        f" {f['sequence_length']}, {f['slots']} slots; {steps} {rows}",
        "",
    ]
    lines += console_table.lines(_parameter_cells(f), right=_NUMBERS)
    lines += ["", *console_table.lines(_operation_cells(f), right=_NUMBERS)]

    if "mfu" in f:
        padded = f" and {f['padding_rate']:.1%} padding" if f["padding_rate"] else ""
        lines += [
            "",
            f"{f['tokens_per_second']:,.0f} tokens/s{padded} on {f['devices']} x {f['device']}:"
            f" {_short(f['flops_per_second'])} FLOP/s, MFU {f['mfu']:.1%} of the datasheet;"
            f" the schedule takes {f['seconds'] / 3600:,.1f} h",
        ]

    return "\n".join(lines)


def _parameter_cells(f):
    """Returns rows of (part, number, sum): the parameters of each part of the model."""
    cells = [("parameters", "", "")]
    total = 0
    for part, trees in f["parameters"].items():
        cells += [(f"  {part}/{name}", f"{count:,}", "") for name, count in trees.items()]
        cells.append((f"  {part}", "", f"{sum(trees.values()):,}"))
        total += sum(trees.values())

    main = [f["parameters"].get(part, {}) for part in ("embeddings", "encoder", "discriminator")]
    # "encoder" is a part of its own if both networks share it. A delta of the embeddings is not
    # counted: it is added into the tables of the network that is kept.
    kept = sum(sum(trees.values()) - trees.get("embeddings_delta", 0) for trees in main)
    cells.append(("  main network with its tables", "", f"{kept:,}"))
    cells.append(("  all", "", f"{total:,}"))
    return cells


def _operation_cells(f):
    """Returns rows of (what, paper, honest): the operations in both conventions."""
    cells = [("FLOPs", "paper", "honest"), ("forward, per token", "", "")]
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

    return cells


def _short(number: float | None, digits: int = 3) -> str:
    """Returns a number as text: 1.294e18 -> `1.29e18`, None -> `-`."""
    if not number:
        return "-" if number is None else "0"
    return f"{number:.{digits - 1}e}".replace("e+0", "e").replace("+", "")
